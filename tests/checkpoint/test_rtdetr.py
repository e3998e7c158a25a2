"""Files of RT-DETR's releases and of Hugging Face fit the configs of their sizes, by all doors."""
import json
import lzma
import re

import pytest
import torch
from helpers.golden_files import GOLDEN_DIR

from mmposenc.checkpoint import convert_with_report, read_checkpoint, recognise

PUBLISHED = json.loads(lzma.decompress((GOLDEN_DIR / 'rt_detr_published.json.xz').read_bytes()))
CONFIGS = {
    'v1 r18': 'rt-detr_r18vd_4xb4-72e', 'v1 r34': 'rt-detr_r34vd_4xb4-72e',
    'v1 r50-m': 'rt-detr_r50vd-m_4xb4-72e', 'v1 r50': 'rt-detr_r50vd_4xb4-72e',
    'v1 r101': 'rt-detr_r101vd_4xb4-72e', 'v2 r18': 'rt-detrv2_r18vd_4xb4-120e',
    'v2 r34': 'rt-detrv2_r34vd_4xb4-120e', 'v2 r50-m': 'rt-detrv2_r50vd-m_4xb4-84e',
    'v2 r50': 'rt-detrv2_r50vd_4xb4-72e', 'v2 r101': 'rt-detrv2_r101vd_4xb4-72e'}
#: How files of transformers 4 name what version 5 names otherwise.
OLD = ((r'\.aifi\.', '.encoder.'), (r'\.o_proj\.', '.out_proj.'), (r'\.mlp\.fc', '.fc'),
       (r'^model\.decoder\.(class|bbox)_embed', r'\1_embed'))


def model_of(name, device, **options):
    """The model of a config, without the file of its backbone."""
    from mmengine.registry import MODELS, init_default_scope

    from mmposenc.engine import load_config
    init_default_scope('mmdet')
    cfg = load_config(f'mmposenc::detection/rt_detr/{name}_coco.py')
    cfg.merge_from_dict({'model.backbone.init_cfg': None, **options})
    with torch.device(device):
        return MODELS.build(cfg.model)


def shapes_of(state):
    return {name: value.shape for name, value in state.items() if 'num_batches' not in name}


@pytest.mark.parametrize('case', PUBLISHED)
def test_names_and_shapes_of_every_published_size(case) -> None:
    shapes = PUBLISHED[case]
    size = case.removeprefix('huggingface ')
    size, _, points = size.partition('-sp')
    model = model_of(CONFIGS[size], 'meta', **(
        {'model.decoder.layer_cfg.cross_attn_cfg.num_points': [int(points)] * 3} if points else {}))
    expected = shapes_of(model.state_dict())
    files = [shapes]
    if case.startswith('huggingface'):
        old = {}
        for name, shape in shapes.items():
            for pattern, new in OLD:
                name = re.sub(pattern, new, name)
            old.setdefault(name, shape)
        files.append(old)
    for file in files:
        state = {name: torch.empty(shape, device='meta') for name, shape in file.items()}
        assert recognise(state) == ('huggingface-' * case.startswith('h') + 'rt-detr')
        assert shapes_of(convert_with_report(state).state_dict) == expected


def test_a_release_loads_by_every_door(tmp_path) -> None:
    """As a training writes it, with averaged weights beside the others, and as a backbone alone."""
    from mmposenc.backbones.checkpoints import load_pretrained
    from mmposenc.commands.convert import main
    torch.manual_seed(0)
    state = {name: torch.rand(shape) for name, shape in PUBLISHED['v1 r18'].items()
             if 'num_batches' not in name and name not in ('decoder.anchors', 'decoder.valid_mask')}
    file = tmp_path / 'release.pth'
    torch.save({'model': {name: value + 1 for name, value in state.items()},
                'ema': {'module': state, 'updates': 3}, 'last_epoch': 71}, file)
    assert read_checkpoint(file).ignored == ['model', 'last_epoch', 'updates']
    main(['auto', str(file), str(tmp_path / 'ours.pth')])
    expected = torch.load(tmp_path / 'ours.pth')['state_dict']
    model = model_of(CONFIGS['v1 r18'], 'cpu')
    load_pretrained(model, file)
    torch.testing.assert_close({key: model.state_dict()[key] for key in expected},
                               dict(expected), rtol=0, atol=0)
    name = CONFIGS['v1 r18']
    pretrained = dict(type='Pretrained', checkpoint=str(file))
    for options in ({'model.init_cfg': pretrained}, {'model.backbone.init_cfg': pretrained}):
        other = model_of(name, 'cpu', **options)
        other.init_weights()
        for key, value in other.backbone.state_dict().items():
            assert 'num_batches' in key or torch.equal(value, expected[f'backbone.{key}'])
    assert torch.equal(other.decoder.layers[0].norms[0].weight, torch.ones(256))
    with pytest.raises(ValueError, match=r'(?s)does not fit the model:\n.*of another shape'):
        load_pretrained(model_of('rt-detr_r50vd-m_4xb4-72e', 'cpu'), file)
