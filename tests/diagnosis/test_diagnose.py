"""All measures together: every encoding, every kind of model, what is looked at, figures."""
import json

import examples
import pytest
import tinydetr
import torch
from scripts import short
from tinybackbones import BUILD, images, randomize, randomized
from tinyfigures import examined
from torch import nn

from mmposenc.backbones import ViT
from mmposenc.lab.diagnose import Measure, diagnose, draw_measure, write_figures
from mmposenc.lab.diagnose.config_models import examined_of
from mmposenc.lab.diagnose.measure import line, table

NAMES = ['shift_view', 'shift_rolled', 'position_probe', 'attention_distance',
         'attention_distance_cells', 'attention_entropy', 'attention_entropy_share',
         'size_distance', 'size_correlation', 'padding_error', 'position_similarity']
KEYS = {'name', 'title', 'definition', 'unit', 'value', 'series', 'map', 'xlabel', 'ylabel', 'text'}


def maps(model, x=None):
    return examined(model).maps(images() if x is None else x)


def check(measures):
    assert [each.name for each in measures] == NAMES
    for each in measures:
        plain = json.loads(json.dumps(each.json(), allow_nan=False))
        assert set(plain) == KEYS and plain['unit'] and plain['definition'] and plain['text']
        assert each.measured != each.text.startswith('Not measured: ')
        for one in each.series or []:
            assert len(one['x']) == len(one['y']) > 0
        if each.map:
            assert len(each.map['values']) == len(each.map['rows'])
            assert {len(row) for row in each.map['values']} == {len(each.map['columns'])}


KINDS = {**{name: dict(rel_pos_encoding=cfg) for name, cfg in (
            (cfg['type'], {**examples.SMALL.get(cfg['type'], {}), **cfg})
            for cfg in reversed(examples.RELATIVE.values()))},
         **{name: dict(pos_encoding=cfg) for name, cfg in examples.TOKEN.items()}}


@pytest.mark.parametrize('name', short(
    sorted({*KINDS, *examples.classes()}), 'PEG', 'LearnedPositionEmbedding', 'IRPE', 'LePE',
    'RotaryEmbedding', 'QueryAbsolute1D', 'CoPE', 'RelativePositionBias'))
def test_every_encoding_with_class_tokens(name):
    options = dict(KINDS[name])
    if name == 'QueryAbsolute1D':
        options['rel_pos_encoding'] = {**options['rel_pos_encoding'], 'max_tokens': 17}
    model = ViT(embed_dims=16, num_layers=2, num_heads=2, patch_size=8, img_size=32, pool='cls',
                **options)
    randomize(model, 0.2)
    measures = diagnose(model, {'noise': torch.randn(1, 3, 32, 32)})
    check(measures)
    lacks = {'position_similarity'} if name in ('LePE', 'CRPE') else set()  # they add to values
    assert {each.name for each in measures if not each.measured} == lacks


@pytest.mark.parametrize('name', BUILD)
def test_maps_of_blocks_are_what_a_backbone_returns(name):
    model = randomized(BUILD[name](pos_encoding=dict(type='mmposenc.PEG'))).eval()
    found = {each.name: each for each in maps(model)}
    with torch.no_grad():
        outs = model(images())
    names = {'vit': ['input', *(f'blocks.{i}' for i in range(4))]}.get(
        name, ['stages.0 input', 'stages.0.blocks.0', 'stages.1 input', 'stages.1.blocks.0',
               'stages.1.blocks.1'])
    assert list(found) == names
    last = found[names[-1]].values
    if name == 'pvt':
        torch.testing.assert_close(last, outs[-1])
        torch.testing.assert_close(found['stages.0.blocks.0'].values, outs[0])
    else:
        norm = model.norm if name == 'vit' else model.norm1
        torch.testing.assert_close(norm(last.movedim(1, -1)).movedim(-1, 1), outs[-1])
    strides = {'vit': [8] * 5}.get(name, [4, 4, 8, 8, 8])
    assert [each.stride for each in found.values()] == strides
    assert (found[names[0]].prefix is not None) == (name == 'vit')


def test_strides_of_odd_sides_and_of_maps_that_lost_their_border():
    x = torch.randn(1, 3, 30, 45)
    assert [each.stride for each in maps(BUILD['swin'](), x)] == [4, 4, 8, 8, 8]
    x = torch.randn(1, 3, 64, 96)
    lost = maps(BUILD['pvt'](pos_encoding=dict(type='mmposenc.PEG', padding='none')), x)
    assert [tuple(each.values.shape[-2:]) for each in lost] == [(16, 24), (14, 22), (7, 11), (5, 9),
                                                               (5, 9)]
    assert [each.stride for each in lost] == [4, 4, 8, 8, 8]


@pytest.mark.parametrize('name, layers', [
    ('detr', ['encoder input', 'encoder.layers.0', 'encoder.layers.1']),
    ('deformable', [f'{layer} level {level}' for layer in (
        'encoder input', 'encoder.layers.0', 'encoder.layers.1') for level in (1, 0)])])
def test_a_detr_and_what_its_encoder_lacks(name, layers):
    peg = dict(pos_encoding=dict(type='mmposenc.PEG'))
    cfg = tinydetr.detr(attn=dict(rel_pos_encoding=tinydetr.IRPE), encoder=peg) if (
        name == 'detr') else tinydetr.deformable(levels=2, encoder=peg,
                                                 backbone=tinydetr.resnet(out_indices=(2, 3)),
                                                 channels=[16, 32])
    model = tinydetr.build(cfg).eval()
    examined = examined_of(model, 'mmdet')
    assert examined.model is model
    x = torch.randn(1, 3, 64, 96)
    found = examined.maps(x)
    assert [each.name for each in found][-len(layers):] == layers
    with torch.no_grad():
        from mmposenc.engine.config.models import image_samples
        memory = []
        model.encoder.register_forward_hook(lambda _, args, out: memory.append(out))
        model(x, image_samples(x), mode='tensor')
    cells = found[-1].values.flatten(2).transpose(1, 2)
    torch.testing.assert_close(cells, memory[0][:, :cells.shape[1]])
    assert found[-1].stride == (32 if name == 'detr' else 16)
    measures = diagnose(examined.model, {'noise': x}, examined.run)
    check(measures)
    missing = {each.name for each in measures if not each.measured}
    if name == 'detr':
        assert not missing
        padding = next(each for each in measures if each.name == 'padding_error')
        assert padding.value < 1e-4 and 'mask_padding=True' in padding.text
        names = [each['label'] for each in measures[-1].series]
        assert 'encoder positions' in names and 'encoder.layers.0.self_attn' in names
    else:  # points are sampled, and the backbone is a ResNet
        assert missing == set(NAMES[3:7])


def test_a_resnet_with_context_pooling_and_a_backbone_that_is_not_ours():
    from mmposenc.backbones import CPResNet
    torch.manual_seed(0)
    found = maps(CPResNet(20), torch.randn(1, 3, 32, 32))
    assert [each.name for each in found] == [f'layer{i}.{j}' for i in (1, 2, 3) for j in range(3)]
    assert [each.stride for each in found] == [1] * 3 + [2] * 3 + [4] * 3
    measures = diagnose(CPResNet(20).eval(), {'noise': torch.randn(1, 3, 32, 32)})
    check(measures)
    assert not next(each for each in measures if each.name == 'attention_entropy').measured
    foreign = maps(nn.Conv2d(3, 4, 4, stride=4), torch.randn(1, 3, 32, 40))
    assert [(each.name, each.stride) for each in foreign] == [('map 0', 4)]


def test_frozen_stages_in_bfloat16():
    """Their numbers are bfloat16, and what is computed of them is not."""
    model = randomized(BUILD['vit'](frozen_stages=4, frozen_dtype='bfloat16',
                                    pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding')))
    assert {each.values.dtype for each in maps(model)} == {torch.float32}
    measures = diagnose(model, {'noise': images()[:1, :, :, :32]})
    check(measures)
    assert all(each.measured for each in measures)


def test_nothing_of_the_model_changes_and_the_seed_decides():
    model = randomized(BUILD['vit'](pos_encoding=dict(type='mmposenc.PEG'))).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = [len(module._forward_hooks) for module in model.modules()]
    pictures = {'pictures': images()[..., :32]}
    first = [each.json() for each in diagnose(model, pictures)]
    assert [each.json() for each in diagnose(model, pictures)] == first
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    other = [each.json() for each in diagnose(model, pictures, seed=1)]
    changed = [a['name'] for a, b in zip(first, other, strict=True) if a != b]
    assert changed == ['position_probe']


@pytest.mark.parametrize('model, given, message', [
    (BUILD['vit'], {}, 'images={} must hold at least one batch'),
    (BUILD['vit'], {'x': torch.zeros(3, 32, 32)}, r"images\['x'\] has shape \(3, 32, 32\)"),
    (BUILD['vit'], {'x': torch.zeros(1, 3, 30, 32)}, r"images\['x'\] are 30 x 32 pixels"),
    (nn.Flatten, {'x': torch.zeros(1, 3, 32, 32)}, 'model=Flatten has no blocks')])
def test_bad_images_and_a_model_with_nothing_to_look_at(model, given, message):
    with pytest.raises(ValueError, match=message):
        diagnose(model(), given)


def test_figures_show_the_numbers(tmp_path):
    measure = Measure('m', 'Title', 'd', 'cells', 'over', 'up')
    full = measure.of('text', 1.0, [line('one', [0, 1, 2], [0.5, float('nan'), 1.5])],
                      table(['r0', 'r1'], ['c0', 'c1', 'c2'], [[1, 2, 3], [4, None, 6]]))
    assert full.series[0]['y'] == [0.5, None, 1.5]
    lines, picture = draw_measure(full, 'config.py, untrained').axes[:2]
    assert lines.lines[0].get_ydata()[[0, 2]].tolist() == [0.5, 1.5]
    assert picture.images[0].get_array()[1, 2] == 6
    files = write_figures([full, measure.missing('no reason')], tmp_path, 'x', suffix='.svg')
    assert [each.name for each in files] == ['m.svg'] and '</svg>' in files[0].read_text()
    with pytest.raises(ValueError, match="suffix='.jpg' must be one of"):
        write_figures([full], tmp_path, 'x', suffix='.jpg')
    with pytest.raises(ValueError, match="measure 'm' has nothing to draw"):
        draw_measure(measure.missing('none'), 'x')
