"""RT-DETR's hybrid encoder against the release's numbers, and its promises about padding."""
import copy
import re

import pytest
import torch
from helpers.golden_files import assert_released, load_golden
from helpers.tiny_backbones import randomize

from mmposenc.detr import HybridEncoder

SIZES = dict(in_channels=(4, 6, 8), out_channels=8, expansion=0.5)


def layers(**attention):
    return dict(layer_cfg=dict(
        self_attn_cfg=dict(embed_dims=8, num_heads=2, **attention),
        ffn_cfg=dict(embed_dims=8, feedforward_channels=12, act_cfg=dict(type='GELU'))))


def build(encoder=None, **options):
    model = HybridEncoder(encoder=encoder or layers(), **{**SIZES, **options}).double()
    randomize(model, 0.3)
    return model


def maps(batch, height, width):
    sides = [(height, width)]
    for _ in range(2):
        sides.append(tuple((side + 1) // 2 for side in sides[-1]))
    return [torch.randn(batch, channels, *side, dtype=torch.float64)
            for channels, side in zip((4, 6, 8), sides, strict=True)]


#: Hugging Face's names and ours.
NAMES = ((r'^proj\.(\d)\.0', r'input_proj.\1.conv'), (r'^proj\.(\d)\.1', r'input_proj.\1.norm'),
         (r'^encoder\.', ''), (r'^aifi', 'encoders'), (r'attn\.o_proj', 'attn.attn.out_proj'),
         ('self_attn_layer_norm', 'norms.0'), ('final_layer_norm', 'norms.1'),
         (r'mlp\.fc1', 'ffn.layers.0.0'), (r'mlp\.fc2', 'ffn.layers.1'))


def renamed(state):
    for pattern, name in NAMES:
        state = {re.sub(pattern, name, key): value for key, value in state.items()}
    for key in [key for key in state if '.q_proj.' in key]:
        parts = [state.pop(key.replace('q_proj', f'{part}_proj')) for part in 'qkv']
        state[key.replace('q_proj.', 'attn.in_proj_')] = torch.cat(parts)
    return state


def test_equals_the_release():
    """On a square map and an oblong one."""
    params, rest = load_golden('rt_detr_hybrid')
    model = build().eval()
    fit = model.load_state_dict(renamed(params), strict=False)
    assert not fit.unexpected_keys
    assert all(key.endswith('num_batches_tracked') for key in fit.missing_keys)
    for number in range(2):
        outs = model([rest[f'x{number}.{level}'].double() for level in range(3)])
        for level, out in enumerate(outs):
            assert_released(out, rest[f'y{number}.{level}'])


ENCODINGS = {
    'plain': {}, 'gelan': dict(fusion='gelan', num_blocks=1),
    'none': dict(encoder_pos=None), 'two levels': dict(levels=(1, 2)),
    'table': dict(encoder_pos=dict(type='LearnedPositionEmbedding', grid_shape=(3, 4))),
    'peg': dict(encoder=dict(layers(), pos_encoding=dict(type='PEG'))),
    'irpe': dict(encoder=layers(rel_pos_encoding=dict(type='IRPE', rpe_on='qkv')))}


@pytest.mark.parametrize('name', ENCODINGS)
def test_an_image_in_a_padded_batch_gives_what_it_gives_alone(name):
    """Odd sides, too; and every parameter has a gradient."""
    model = build(**ENCODINGS[name]).eval()
    extents, (height, width) = [(13, 9), (5, 16), (1, 3)], (16, 18)
    alone = [maps(1, *extent) for extent in extents]
    mask = torch.ones(3, height, width, dtype=torch.bool)
    batch = [torch.full_like(each, 7.0) for each in maps(3, height, width)]
    for image, (rows, cols) in enumerate(extents):
        mask[image, :rows, :cols] = False
        for level, each in enumerate(alone[image]):
            batch[level][image, :, :each.shape[2], :each.shape[3]] = each[0]
    outs = model(batch, mask)
    sum(out.square().sum() for out in outs).backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    for image, each in enumerate(alone):
        for out, expected in zip(outs, model(each), strict=True):
            rows, cols = expected.shape[-2:]
            torch.testing.assert_close(out[image, :, :rows, :cols], expected[0])
            assert not out[image, :, rows:].any() and not out[image, :, :, cols:].any()


def test_training_does_not_see_how_much_padding_there_is():
    """With layers that are computed again."""
    model = build(dict(layers(rel_pos_encoding=dict(type='LePE')), num_cp=1))
    images, results = maps(2, 9, 12), []
    for more in (0, 7):
        twin = copy.deepcopy(model).train()
        mask = torch.zeros(2, 9 + more, 12, dtype=torch.bool)
        mask[:, 9:] = True
        batch = [torch.full_like(each, 3.0) for each in maps(2, 9 + more, 12)]
        for larger, each in zip(batch, images, strict=True):
            larger[:, :, :each.shape[2]] = each
        outs = twin(batch, mask if more else None)
        valid = [out[:, :, :side] for out, side in zip(outs, (9, 5, 3), strict=True)]
        sum(out.square().sum() for out in valid).backward()
        results.append(valid + [p.grad for p in twin.parameters()]
                       + [value for key, value in twin.state_dict().items() if 'running' in key])
    torch.testing.assert_close(*results)


def test_a_program_for_any_size():
    model = build(**ENCODINGS['peg']).eval()
    dynamic = torch.export.Dim.DYNAMIC
    program = torch.export.export(model, (maps(2, 20, 28),), strict=False, dynamic_shapes=(
        [{0: dynamic, 2: dynamic, 3: dynamic}] * 3,)).module()
    for size in ((20, 28), (16, 12)):
        x = maps(1, *size)
        torch.testing.assert_close(program(x), model(x))


def test_bad_maps_are_named():
    with pytest.raises(ValueError, match=r'inputs has 2 maps, but in_channels=\(4, 6, 8\)'):
        build()(maps(1, 8, 8)[:2])
    with pytest.raises(ValueError, match=r'inputs have sizes .* half of the one before'):
        build()([*maps(1, 8, 8)[:2], maps(1, 16, 16)[2]])
