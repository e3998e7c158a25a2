"""Swin V2: equal to timm's and mmpretrain's, blind to padding, with the parameters of its paper."""
import mmposenc  # noqa: F401  (before timm, mmpretrain)

# isort: split
import pytest
import torch
from timm import create_model
from timm.models.swin_transformer_v2 import SwinTransformerV2

from mmposenc.backbones import Swin, load_pretrained
from mmposenc.backbones.swin_archs import ARCHS
from mmposenc.checkpoint import convert, convert_back

V2 = dict(cosine=True, post_norm=True, qkv_bias='qv', window_bias='log_cpb')
SIZES = dict(embed_dims=12, num_layers=(2, 2), num_heads=(2, 3), mlp_ratio=2, drop_path_rate=0.)
IRPE = dict(type='mmposenc.IRPE', rpe_on='qkv')


def swin(window=4, **options):
    return Swin(**{**SIZES, **V2, 'window_size': window, **options}).double()


def randomize(module, std=0.3):
    """Also what starts at zero or one; the scales stay small (upstream hides tokens by -100)."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return module


def timm_swin(size, window=4, pretrained=((0, 0), (0, 0)), **options):
    model = randomize(SwinTransformerV2(
        img_size=size, embed_dim=12, depths=(2, 2), num_heads=(2, 3), window_size=window,
        mlp_ratio=2, drop_path_rate=0., num_classes=5, pretrained_window_sizes=pretrained,
        **options)).double()
    for stage, unit in zip(model.layers, pretrained, strict=True):
        for block in stage.blocks:
            sides = [u or w for u, w in zip(unit, block.attn.window_size, strict=True)]
            # In float64: its own are rounded to float32.
            block.attn.relative_coords_table = coordinates(block.attn.window_size, sides)
    return model


def coordinates(window, unit):
    axes = []
    for side, length in zip(window, unit, strict=True):
        offsets = torch.arange(1 - side, side, dtype=torch.float64) * 8 / (length - 1)
        axes.append(offsets.sign() * (1 + offsets.abs()).log2() / 3)
    return torch.stack(torch.meshgrid(*axes, indexing='ij'), -1)[None]


def assert_equal(own, theirs, own_outs, their_outs, x, source):
    results = []
    for model, outs_of in ((own, own_outs), (theirs, their_outs)):
        inputs = x.clone().requires_grad_()
        outs = outs_of(model, inputs)
        sum((out * (i + 1)).square().mean() for i, out in enumerate(outs)).backward()
        results.append((outs, inputs.grad))
    (outs, grad), (expected, expected_grad) = results
    for out, value in zip(outs, expected, strict=True):
        torch.testing.assert_close(out, value, rtol=0,
                                   atol=1e-10 * float(value.detach().abs().max()))
    torch.testing.assert_close(grad, expected_grad, rtol=0,
                               atol=1e-10 * float(expected_grad.abs().max()))
    grads = convert({n: p.grad for n, p in theirs.named_parameters()
                     if p.grad is not None}, source)
    for name, parameter in own.named_parameters():
        if parameter.grad is None:
            continue
        value = grads[f'backbone.{name}']
        assert value.abs().max() > 0, name
        torch.testing.assert_close(parameter.grad, value, rtol=0, msg=name,
                                   atol=1e-10 * float(value.abs().max()))


def equals_timm(own, theirs, hw):
    load_pretrained(own, theirs.state_dict())

    def their_outs(model, x):
        last, maps = model.forward_features(x), model.forward_intermediates(
            x, intermediates_only=True)
        return [maps[0], last.permute(0, 3, 1, 2)]

    def own_outs(model, x):
        return model(x)
    own.norm0 = torch.nn.Identity()  # timm has none behind the first stage
    assert_equal(own, theirs, own_outs, their_outs,
                 torch.randn(2, 3, *hw, dtype=torch.float64), 'swin')


@pytest.mark.parametrize('hw', [(32, 32), (64, 64), (64, 96), (160, 32)])
def test_equals_timm_at_any_size_of_whole_windows(hw):
    """Windows also where one spans the map."""
    theirs = timm_swin(32, always_partition=True, dynamic_img_size=True)
    equals_timm(swin(), theirs, hw)


@pytest.mark.parametrize('hw, windows, units', [
    ((32, 32), ((4, 4), (4, 4)), ((0, 0), (0, 0))), ((64, 32), ((2, 2), (2, 2)), ((0, 0), (0, 0))),
    ((48, 48), ((3, 3), (3, 3)), ((2, 2), (2, 2))), ((64, 64), ((8, 8), (8, 8)), ((4, 4), (2, 2))),
    ((64, 64), ((8, 8), (4, 4)), ((4, 4), (2, 2))), ((64, 64), ((8, 4), (4, 2)), ((4, 2), (4, 2)))])
def test_equals_timm_built_at_a_size(hw, windows, units):
    """A last stage of one window is not shifted; weights go to larger windows."""
    own = swin(windows, pad_small_map=False, pretrained_window_size=units)
    equals_timm(own, timm_swin(hw, windows, units), hw)


def mm_swin(**options):
    model = pytest.importorskip('mmpretrain.models').SwinTransformerV2(
        arch=dict(embed_dims=12, depths=[2, 2], num_heads=[2, 3], extra_norm_every_n_blocks=0),
        img_size=32, drop_path_rate=0., out_indices=(0, 1), **options)
    model = randomize(model).double()
    for stage in model.stages:
        for block in stage.blocks:
            attention = block.attn.w_msa
            sides = attention.window_size
            attention.relative_coords_table = coordinates(sides, sides)
    return model


@pytest.mark.parametrize('hw', [(32, 32), (64, 96), (37, 70), (9, 20)])
@pytest.mark.parametrize('window', [[4, 4], [4, 2]], ids=str)
def test_equals_mmpretrain_at_any_size(hw, window):
    """Where zeros that fill up windows take attention, as there."""
    theirs = mm_swin(window_size=window, pad_small_map=True)
    own = swin(tuple((side, side) for side in window), mlp_ratio=4, mask_window_padding=False)
    load_pretrained(own, theirs.state_dict())
    assert_equal(own, theirs, type(own).__call__, type(theirs).__call__,
                 torch.randn(2, 3, *hw, dtype=torch.float64), 'mmpretrain-swin')


ENCODINGS = {
    'plain': {}, 'no_bias': dict(window_bias=False), 'table': dict(window_bias=True),
    'peg': dict(pos_encoding=dict(type='PEG')), 'irpe': dict(rel_pos_encoding=IRPE),
    'wider': dict(window=((4, 4), (2, 6)), pretrained_window_size=3)}


@pytest.mark.parametrize('options', [dict(), dict(mask_window_padding=False),
                                     dict(pad_small_map=False)], ids=str)
@pytest.mark.parametrize('name', ENCODINGS)
def test_maps_do_not_see_padding(name, options):
    sizes = [(64, 32), (37, 70), (9, 70)]
    model = randomize(swin(**ENCODINGS[name], **options, mask_padding=True)).train()
    batch = torch.full((3, 3, 96, 104), 3.0, dtype=torch.float64)
    for image, (h, w) in enumerate(sizes):
        batch[image, :, :h, :w] = torch.randn(3, h, w, dtype=torch.float64)
    outs = model(batch, sizes)
    for image, (h, w) in enumerate(sizes):
        alone = model(batch[image:image + 1, :, :h, :w].clone())
        for own, padded in zip(alone, outs, strict=True):
            rows, cols = own.shape[-2:]
            torch.testing.assert_close(padded[image, :, :rows, :cols], own[0])
            assert padded[image, :, rows:].abs().sum() == 0
            assert padded[image, :, :, cols:].abs().sum() == 0


def test_a_window_wider_than_the_map_is_one_of_its_size():
    """With the unit of the smaller one, as V2's last stages are trained."""
    small = randomize(swin(3, num_layers=(2,), num_heads=(2,), pool='gap')).eval()
    large = swin(5, num_layers=(2,), num_heads=(2,), pool='gap', pretrained_window_size=3).eval()
    large.load_state_dict(small.state_dict())
    x = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    torch.testing.assert_close(small(x), large(x))


def test_branches_start_as_nothing_and_every_parameter_gets_a_gradient():
    """Norms behind branches start at zero, as in the release."""
    model = swin(pool='gap', drop_path_rate=0.2)
    block = model.stages[0].blocks[1]
    x = torch.randn(1, 64, 12, dtype=torch.float64)
    assert torch.equal(block.eval()(x, (8, 8)), x)
    assert block.attn.w_msa.cosine.logit_scale[0].exp().item() == pytest.approx(10)
    randomize(model)
    model(torch.randn(2, 3, 64, 70, dtype=torch.float64))[0].square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize('arch, theirs, dims, millions', [
    ('v2-tiny', 'tiny_window8_256', 768, 28), ('v2-tiny-w16', 'tiny_window16_256', 768, 28),
    ('v2-small', 'small_window8_256', 768, 50), ('v2-base-w16', 'base_window16_256', 1024, 88),
    ('v2-base-w12to24', 'base_window12to24_192to384', 1024, 88),
    ('v2-large-w12to16', 'large_window12to16_192to256', 1536, 197)])
def test_parameters_and_windows_are_those_of_timms_models(arch, theirs, dims, millions):
    """And the paper's millions, with the classifier."""
    with torch.device('meta'):
        own, model = Swin(arch, pool='gap'), create_model(f'swinv2_{theirs}')
    total = sum(p.numel() for p in own.parameters()) + 1000 * dims + 1000
    assert total == sum(p.numel() for p in model.parameters())
    assert round(total / 1e6) == millions
    for stage, layer in zip(own.stages, model.layers, strict=True):
        attention, other = stage.blocks[0].attn.w_msa, layer.blocks[0].attn
        assert attention.window_size == other.window_size
        unit = other.pretrained_window_size if any(other.pretrained_window_size) else (
            other.window_size)
        assert attention.rel_pos_encoding.window_size == unit


def test_explicit_arguments_override_the_arch():
    with torch.device('meta'):
        model = Swin('v2-base-w12to24')
        attention = [stage.blocks[1].attn for stage in model.stages]
        assert [a.window_size[0] for a in attention] == [24, 24, 24, 12]
        assert [a.shift_size[1] for a in attention] == [12, 12, 12, 6]
        units = [a.w_msa.rel_pos_encoding.window_size for a in attention]
        assert units == [(12, 12)] * 3 + [(6, 6)]
        model = Swin('v2-base-w12to24', window_size=8, pretrained_window_size=0, cosine=False,
                     post_norm=False, qkv_bias=True, num_layers=(1, 1, 1, 1))
        attention = model.stages[3].blocks[0].attn
        assert attention.window_size == attention.w_msa.rel_pos_encoding.window_size == (8, 8)
        assert attention.w_msa.cosine is None and attention.w_msa.qkv.bias is not None
        assert model.stages[0].downsample.norm.weight.numel() == 4 * 128
        plain = Swin('tiny')
        assert plain.stages[0].blocks[0].attn.window_size == (7, 7)
    assert len(ARCHS) == 24


def test_weights_go_to_any_window_and_back_to_timm():
    theirs = timm_swin(32)
    own = swin(window=((6, 3), (2, 5)), pretrained_window_size=4)
    load_pretrained(own, theirs.state_dict())
    state = convert_back({**convert(theirs.state_dict(), 'swin')}).state_dict
    for name, value in theirs.state_dict().items():
        assert torch.equal(state[name], value)


@pytest.mark.parametrize('sharing', ['layer', 'stage'])
def test_plain_weights_fit_where_an_encoding_is_added_to_the_bias(sharing):
    plain = randomize(swin(rel_pos_sharing=sharing)).eval()
    both = swin(rel_pos_sharing=sharing, rel_pos_encoding=IRPE).eval()  # whose tables start at 0
    load_pretrained(both, plain.state_dict(), strict=False)
    x = torch.randn(1, 3, 64, 50, dtype=torch.float64)
    for out, expected in zip(both(x), plain(x), strict=True):
        torch.testing.assert_close(out, expected)


@pytest.mark.parametrize('options, message', [
    (dict(arch='v3-tiny'), "arch='v3-tiny' must be one of 'tiny', .*'v2-tiny'"),
    (dict(arch='v2-tiny', window_bias='cpb'), "window_bias='cpb' must be True, False or 'log_cpb'"),
    (dict(arch='v2-tiny', window_size=(8, 8, 8)), r'window_size=\(8, 8, 8\) must be a number'),
    (dict(arch='v2-tiny', window_size=(8, 8, 8, 0)), 'window_size'),
    (dict(arch='v2-tiny', pretrained_window_size=(12, 12, 12)), 'pretrained_window_size='),
    (dict(arch='v2-tiny', pretrained_window_size=-1), 'window_size'),
    (dict(arch='v2-tiny', qkv_bias='q'), "qkv_bias='q' must be True, False or 'qv'")])
def test_bad_options_are_named(options, message):
    with torch.device('meta'), pytest.raises(ValueError, match=message):
        Swin(**options)
