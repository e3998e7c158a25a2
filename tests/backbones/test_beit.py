"""BEiT and timm's ViTs with relative positions against timm's models with the same weights."""
# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
import math
from functools import partial

import pytest
import timm
import torch
from timm.layers.pos_embed_rel import RelPosMlp
from timm.models.beit import Beit
from timm.models.vision_transformer_relpos import VisionTransformerRelPos

from mmposenc.attention import WindowAttention
from mmposenc.backbones import PVT, ViT, load_pretrained
from mmposenc.backbones.vit_archs import ARCHS
from mmposenc.checkpoint import convert, needed_options, recognise
from mmposenc.functional.bias_tables import resize_bias_table

SIZES = dict(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)
OURS = dict(img_size=32, patch_size=8, embed_dims=24, num_layers=2, num_heads=3)
NATIVE = (32, 32)
#: Larger, not square, smaller in one side, one patch high.
OTHERS = [(56, 56), (40, 24), (8, 64)]

BEIT = partial(Beit, **SIZES, init_values=0.1, use_abs_pos_emb=False)
RELPOS = partial(VisionTransformerRelPos, **SIZES)
SMALL = dict(type='mmposenc.LogSpacedCPB', mode='cr', hidden_dims=16, prefix_bias=False)
TABLES = dict(type='mmposenc.RelativePositionBias', resize='geometric')
#: timm's model, and arguments of ours.
MODELS = {
    'beit': (partial(BEIT, use_rel_pos_bias=True), dict(arch='beit-base')),
    'beit, pretrained': (partial(BEIT, use_shared_rel_pos_bias=True, use_fc_norm=False),
                         dict(arch='beitv2-base', final_norm=True, rel_pos_sharing='all')),
    'beit, class token': (partial(BEIT, use_rel_pos_bias=True, global_pool='token'),
                          dict(arch='beit-large', final_norm=True, pool='cls')),
    'relpos': (partial(RELPOS, qkv_bias=False, fc_norm=True, rel_pos_dim=16),
               dict(arch='relpos-small', rel_pos_encoding=SMALL)),
    'relpos, class token': (
        partial(RELPOS, qkv_bias=False, fc_norm=True, class_token=True, rel_pos_dim=16),
        dict(arch='relpos-base', class_token=True, rel_pos_encoding=SMALL)),
    'srelpos': (partial(RELPOS, qkv_bias=False, shared_rel_pos=True, rel_pos_dim=16),
                dict(arch='srelpos-small', rel_pos_encoding=SMALL)),
    'relpos of tables': (partial(RELPOS, rel_pos_type='bias', fc_norm=True),
                         dict(arch='relpos-base', qkv_bias=True, rel_pos_encoding=TABLES)),
    'relpos of tables, class token': (
        partial(RELPOS, rel_pos_type='bias', class_token=True, global_pool='token'),
        dict(arch='relpos-base', qkv_bias=True, final_norm=True, pool='cls', class_token=True,
             rel_pos_encoding=TABLES)),
    'relpos as Swin V2': (
        partial(RELPOS, rel_pos_type='mlpswin', rel_pos_dim=16, fc_norm=True),
        dict(arch='relpos-base', qkv_bias=True,
             rel_pos_encoding=dict(type='mmposenc.LogSpacedCPB', hidden_dims=16,
                                   prefix_bias=False))),
}


def models(name, **options):
    """timm's model with random weights, and ours with the same by the road of init_cfg."""
    build, given = MODELS[name]
    torch.manual_seed(0)
    theirs = build(num_classes=0).double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3 + 0.1)
    ours = ViT(**{**OURS, **given, **options}).double().eval()
    load_pretrained(ours, theirs.state_dict(), strict=not options)
    return theirs, ours


def in_float64(model):
    """Coordinates of RelPosMlp, which timm keeps in float32, and no others."""
    for module in model.modules():
        if isinstance(module, RelPosMlp):
            axes = [torch.arange(1.0 - side, side, dtype=torch.float64) *
                    (8 / (side - 1) if module.mode == 'swin' else 1) for side in module.window_size]
            base = 8 if module.mode == 'swin' else math.e
            logs = [axis.sign() * axis.abs().log1p() / math.log(base) for axis in axes]
            exact = torch.stack(torch.meshgrid(*logs, indexing='ij'), -1)
            torch.testing.assert_close(module.rel_coords_log, exact, atol=1e-6, rtol=0)
            module.rel_coords_log = exact


def close(got, expected, share):
    span = float(expected.detach().max() - expected.detach().min())
    torch.testing.assert_close(got, expected, atol=share * max(span, 1e-3), rtol=0)


@pytest.mark.parametrize('size', [NATIVE, *OTHERS])
@pytest.mark.parametrize('name', MODELS)
def test_equals_timm(name, size):
    """The pooled feature, its gradients of the image and of all weights: to rounding, but for
    timm's resizing of tables, which is in float32."""
    theirs, ours = models(name)
    if name == 'relpos as Swin V2' and 8 in size:
        pytest.skip('timm divides 0 by 0 on one row')
    theirs.set_input_size(img_size=size)
    in_float64(theirs)
    has_table = any(key.endswith('bias_table') for key in theirs.state_dict())
    share = 1e-6 if has_table and size != NATIVE else 1e-10
    image = torch.randn(2, 3, *size, dtype=torch.float64)
    outs = []
    for model in (theirs, ours):
        leaf = image.clone().requires_grad_()
        out = model(leaf)
        out = out[0] if isinstance(out, tuple) else out
        (out * torch.arange(24.0, dtype=torch.float64).cos()).sum().backward()
        outs.append((out, leaf.grad))
    for got, expected in zip(outs[1], outs[0], strict=True):
        close(got, expected, share)
    state = {key: parameter.grad for key, parameter in theirs.named_parameters()}
    grads = convert(state, recognise(state))
    for key, parameter in ours.named_parameters():
        expected = grads[f'backbone.{key}']
        if parameter.shape == expected.shape:  # tables of another grid: encodings/test_upstream.py
            close(parameter.grad, expected, share)
        else:
            assert key.endswith('position_bias_table') and size != NATIVE


@pytest.mark.parametrize('name', ['beit', 'beit, pretrained', 'relpos'])
def test_maps_equal_timm(name):
    theirs, ours = models(name, out_indices=(0, 1))
    theirs.set_input_size(img_size=(40, 24))
    image = torch.randn(1, 3, 40, 24, dtype=torch.float64)
    expected = theirs.forward_intermediates(image, indices=[0, 1], intermediates_only=True)
    if name == 'beit, pretrained':  # whose last norm is of the tokens
        expected[1] = theirs.norm(expected[1].movedim(1, -1)).movedim(-1, 1)
    for got, one in zip(ours(image), expected, strict=True):
        close(got, one, 1e-6)


@pytest.mark.parametrize(('name', 'options'), [
    ('beit_base_patch16_224', dict(arch='beit-base')),
    ('beit_large_patch16_384', dict(arch='beit-large', img_size=384)),
    ('beitv2_base_patch16_224', dict(arch='beitv2-base')),
    ('beitv2_large_patch16_224', dict(arch='beitv2-large')),
    ('vit_relpos_small_patch16_224', dict(arch='relpos-small')),
    ('vit_relpos_medium_patch16_224', dict(arch='relpos-medium')),
    ('vit_relpos_base_patch16_224', dict(arch='relpos-base')),
    ('vit_relpos_base_patch16_clsgap_224', dict(arch='relpos-base', class_token=True)),
    ('vit_srelpos_small_patch16_224', dict(arch='srelpos-small')),
    ('vit_srelpos_medium_patch16_224', dict(arch='srelpos-medium')),
])
def test_archs_are_timms_models(name, options):
    with torch.device('meta'):
        theirs, ours = timm.create_model(name, num_classes=0), ViT(**options)
    state = {key: value.shape for key, value in ours.state_dict().items()}
    source = recognise(theirs.state_dict())
    assert {f'backbone.{key}': shape for key, shape in state.items()} == {
        key: value.shape for key, value in convert(theirs.state_dict(), source).items()}
    assert ours.blocks[0].norm1.eps == theirs.blocks[0].norm1.eps
    assert ours.blocks[0].attn.num_heads == theirs.blocks[0].attn.num_heads
    told = needed_options(convert(theirs.state_dict(), source))
    assert told == [f'model.backbone.{key}={value}' for key, value in
                    (options | dict(arch=options['arch'].replace('v2', ''))).items()]
    if source == 'beit':
        assert ARCHS[options['arch']]['layer_scale_init_value'] == theirs.blocks[0].init_values


@pytest.mark.parametrize('train', [False, True])
@pytest.mark.parametrize('name', ['beit', 'srelpos', 'relpos of tables', 'relpos as Swin V2'])
def test_an_image_in_a_padded_batch_gives_what_it_gives_alone(name, train):
    _, ours = models(name, mask_padding=True)
    ours.train(train)
    sizes = [(29, 40), (48, 17), (48, 40)]
    batch = torch.randn(3, 3, 48, 40, dtype=torch.float64)
    for pool in (True, False):
        if not pool:
            ours.out_indices = (0, 1)
        outs = ours(batch, sizes)
        for i, (height, width) in enumerate(sizes):
            alone = ours(batch[i:i + 1, :, :height, :width])
            for out, own in zip(outs, alone, strict=True):
                out = out[i:i + 1] if pool else out[i:i + 1, :, :own.shape[2], :own.shape[3]]
                torch.testing.assert_close(out, own, atol=1e-10, rtol=0)


@pytest.mark.parametrize('cfg', [
    dict(type='mmposenc.RelativePositionBias', window_size=(3, 5), resize='geometric-cubic'),
    dict(type='mmposenc.LogSpacedCPB', hidden_dims=8),
    dict(type='mmposenc.LogSpacedCPB', hidden_dims=8, mode='cr')])
def test_the_encodings_in_pvt(cfg):
    """Where keys lie on a coarser grid: a padded batch gives what its images give alone."""
    torch.manual_seed(0)
    model = PVT(embed_dims=(8, 12), num_layers=(1, 1), num_heads=(1, 2), sr_ratios=(2, 1),
                mlp_ratios=(1, 1), patch_sizes=(4, 2), out_indices=(0, 1), mask_padding=True,
                rel_pos_encoding=cfg).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    sizes = [(33, 40), (48, 17)]
    batch = torch.randn(2, 3, 48, 40, dtype=torch.float64)
    outs = model(batch, sizes)
    for i, (height, width) in enumerate(sizes):
        for out, own in zip(outs, model(batch[i:i + 1, :, :height, :width]), strict=True):
            torch.testing.assert_close(out[i:i + 1, :, :own.shape[2], :own.shape[3]], own,
                                       atol=1e-10, rtol=0)


def test_a_resized_table_in_swins_windows():
    """A window is a grid of its own: the table of another window is resized to it."""
    attention = WindowAttention(12, 3, (4, 6), rel_pos_encoding=dict(
        type='mmposenc.RelativePositionBias', window_size=(7, 7), resize='bicubic'))
    table = attention.rel_pos_encoding.relative_position_bias_table
    plain = WindowAttention(12, 3, (4, 6), rel_pos_encoding=dict(
        type='mmposenc.RelativePositionBias'))
    plain.load_state_dict({
        **attention.state_dict(), 'rel_pos_encoding.relative_position_bias_table':
        resize_bias_table(table.t().reshape(3, 13, 13), (4, 6), 'bicubic').flatten(1).t()})
    x = torch.randn(5, 24, 12)
    torch.testing.assert_close(attention(x), plain(x), atol=1e-6, rtol=0)


@pytest.mark.parametrize(('options', 'message'), [
    (dict(final_norm='pooled', pool='cls'), "final_norm='pooled' with pool='cls'"),
    (dict(final_norm='mean'), "final_norm='mean' must be True, False, 'every' or 'pooled'"),
])
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        ViT(**OURS, **options)


def test_a_full_freeze_takes_the_norm_of_the_mean():
    model = ViT(**OURS, pool='gap', final_norm='pooled', frozen_stages=2)
    assert not any(parameter.requires_grad for parameter in model.parameters())
