"""Files of RT-DETR, D-FINE, DEIM and RF-DETR, of releases and of Hugging Face, fit the configs of
their sizes, by all doors."""
import re

import pytest
import torch
from helpers.released_detectors import names_in

from mmposenc.checkpoint import convert_with_report, read_checkpoint, recognise

PUBLISHED = (names_in('rt_detr_published.json.xz') | names_in('d_fine_published.json.xz')
             | names_in('rf_detr_published.json.xz'))
CONFIGS = {
    'd-fine n': 'd-fine_n_4xb32-132e',
    **{f'd-fine {size}': f'd-fine_{size}_4xb8-132e' for size in 'smlx'},
    **{f'rf-detr {size}': f'rf-detr_{size}_4xb4-100e' for size in (
        'nano', 'small', 'medium', 'large', 'base', 'large-2025', 'xlarge', '2xlarge')},
    'v1 r18': 'rt-detr_r18vd_4xb4-72e', 'v1 r34': 'rt-detr_r34vd_4xb4-72e',
    'v1 r50-m': 'rt-detr_r50vd-m_4xb4-72e', 'v1 r50': 'rt-detr_r50vd_4xb4-72e',
    'v1 r101': 'rt-detr_r101vd_4xb4-72e', 'v2 r18': 'rt-detrv2_r18vd_4xb4-120e',
    'v2 r34': 'rt-detrv2_r34vd_4xb4-120e', 'v2 r50-m': 'rt-detrv2_r50vd-m_4xb4-84e',
    'v2 r50': 'rt-detrv2_r50vd_4xb4-72e', 'v2 r101': 'rt-detrv2_r101vd_4xb4-72e'}
#: How files of transformers 4 name what version 5 names otherwise.
OLD = ((r'\.aifi\.', '.encoder.'), (r'\.o_proj\.', '.out_proj.'), (r'\.mlp\.fc', '.fc'),
       (r'\.mlp\.layers\.0\.', '.fc1.'), (r'\.mlp\.layers\.1\.', '.fc2.'),
       (r'^model\.decoder\.(class|bbox)_embed', r'\1_embed'))


def model_of(name, device, **options):
    """The model of a config, without the file of its backbone."""
    from mmengine.registry import MODELS, init_default_scope

    from mmposenc.engine import load_config
    init_default_scope('mmdet')
    folder = next(kind for kind in ('d-fine', 'rf-detr', 'rt-detr') if kind in name)
    cfg = load_config(f'mmposenc::detection/{folder.replace("-", "_")}/{name}_coco.py')
    cfg.merge_from_dict({'model.backbone.init_cfg': None, **options})
    with torch.device(device):
        return MODELS.build(cfg.model)


def shapes_of(state):
    return {name: value.shape for name, value in state.items()
            if not name.endswith(('num_batches_tracked', 'grid_shape'))}


@pytest.mark.parametrize('case', PUBLISHED)
def test_names_and_shapes_of_every_published_size(case) -> None:
    shapes = PUBLISHED[case]
    size = case.removeprefix('huggingface ')
    size, _, points = size.partition('-sp')
    model = model_of(CONFIGS[size], 'meta', **(
        {'model.decoder.layer_cfg.cross_attn_cfg.num_points': [int(points)] * 3} if points else {}))
    expected = shapes_of(model.state_dict())
    if case.startswith('d-fine'):
        assert shapes_of(model_of(f'deim-{CONFIGS[size]}', 'meta').state_dict()) == expected
    files = [shapes]
    if case.startswith('huggingface') and 'rf-detr' not in case:  # Files of that are newer.
        old = {}
        for name, shape in shapes.items():
            for pattern, new in OLD:
                name = re.sub(pattern, new, name)
            old.setdefault(name, shape)
        files.append(old)
    if case.startswith('rf-detr'):  # RF-DETR-Seg, as its training writes it.
        files.append({f'model.{name}': shape for name, shape in shapes.items()}
                     | {'model.segmentation_head.bias': [1]})
    for file in files:
        state = {name: torch.empty(shape, device='meta') for name, shape in file.items()}
        source = next((kind for kind in ('d-fine', 'rf-detr') if kind in case), 'rt-detr')
        assert recognise(state) == ('huggingface-' * case.startswith('h') + source)
        assert shapes_of(convert_with_report(state).state_dict) == expected


@pytest.mark.parametrize('case, larger', [
    ('v1 r18', 'v1 r50-m'), ('d-fine s', 'd-fine m'), ('rf-detr nano', 'rf-detr small')])
def test_a_release_loads_by_every_door(case, larger, tmp_path) -> None:
    """As a training writes it, with averaged weights beside the others, and as a backbone alone."""
    from mmposenc.backbones.checkpoints import load_pretrained
    from mmposenc.commands.convert import main
    torch.manual_seed(0)
    state = {name: torch.rand(shape) for name, shape in PUBLISHED[case].items()
             if 'num_batches' not in name and name not in ('decoder.anchors', 'decoder.valid_mask')}
    file = tmp_path / 'release.pth'
    torch.save({'model': {name: value + 1 for name, value in state.items()},
                'ema': {'module': state, 'updates': 3}, 'last_epoch': 71}, file)
    assert read_checkpoint(file).ignored == ['model', 'last_epoch', 'updates']
    main(['auto', str(file), str(tmp_path / 'ours.pth')])
    expected = torch.load(tmp_path / 'ours.pth')['state_dict']
    config = CONFIGS[case]
    model = model_of(config, 'cpu')
    load_pretrained(model, file)
    torch.testing.assert_close({key: model.state_dict()[key] for key in expected},
                               dict(expected), rtol=0, atol=0)
    pretrained = dict(type='Pretrained', checkpoint=str(file))
    for options in ({'model.init_cfg': pretrained}, {'model.backbone.init_cfg': pretrained}):
        other = model_of(config, 'cpu', **options)
        other.init_weights()
        for key, value in other.backbone.state_dict().items():
            name = f'backbone.{key}'
            assert name not in shapes_of({name: value}) or torch.equal(value, expected[name])
    assert torch.equal(other.decoder.layers[0].norms[0].weight, torch.ones(256))
    with pytest.raises(ValueError, match=r'(?s)does not fit the model:\n.*of another shape'):
        load_pretrained(model_of(CONFIGS[larger], 'cpu'), file)
