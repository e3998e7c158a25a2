"""Every family against timm's model with the same weights: features and gradients at any size, and
every arch against timm's model of that name."""
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import timm
import torch
import yaml
from helpers.scripts import ROOT
from helpers.tiny_backbones import (
    KINDS,
    close,
    flat,
    randomize,
    results,
    unfilled,
    without_grids,
)
from timm.layers.pos_embed_rel import RelPosMlp
from timm.models import vision_transformer_sam
from timm.models.beit import Beit
from timm.models.deit import VisionTransformerDistilled
from timm.models.eva import Eva
from timm.models.pvt_v2 import PyramidVisionTransformerV2
from timm.models.swin_transformer import SwinTransformer
from timm.models.swin_transformer_v2 import SwinTransformerV2
from timm.models.twins import Twins
from timm.models.vision_transformer_relpos import VisionTransformerRelPos
from torch import nn

from mmposenc.backbones import PVT, Swin, ViT, load_pretrained
from mmposenc.backbones.arch_of_weights import needed_options
from mmposenc.backbones.archs.vit import ARCHS
from mmposenc.backbones.vit_layers import pair_of_scales
from mmposenc.checkpoint import convert, convert_back, convert_with_report, recognise
from mmposenc.checkpoint.key_biases import MASK

PATCH, NATIVE = 8, (32, 32)
SIZES = dict(img_size=32, patch_size=PATCH, embed_dim=24, depth=2, num_heads=3, num_classes=5)
OURS = dict(img_size=32, patch_size=PATCH, embed_dims=24, num_layers=2, num_heads=3)
#: timm resizes every table so, whatever the release did.
TABLE = dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bicubic_antialias')


class Case(NamedTuple):
    """timm's model, ours, what is compared of timm's, the sizes of images, and how close."""

    theirs: Callable[..., nn.Module]
    ours: Callable[..., nn.Module]
    features: Callable[[Any, torch.Tensor], Any]
    sizes: list[tuple[int, int]] = [NATIVE]
    resized: float = 1e-6  # of the span, at another size than the native
    native: float = 1e-10


def maps(model, x, norm=True):
    return model.forward_intermediates(x, indices=[0, 1], norm=norm, intermediates_only=True)


def last_map(model, x):
    cells = model.forward_features(x)[:, model.num_prefix_tokens:]
    return [cells.mT.unflatten(2, [side // PATCH for side in x.shape[-2:]])]


def pooled(model, x):
    return [model.forward_head(model.forward_features(x), pre_logits=True)]


def swin_maps(model, x):
    return [maps(model, x, norm=False)[0], model.forward_features(x).permute(0, 3, 1, 2)]


TIMM = yaml.safe_load((ROOT / 'tests' / 'golden' / 'timm_models.yaml').read_text())
NAMES, PYRAMIDS = TIMM['vit'], TIMM['stages']


def small(arch, name=None, theirs=(), **options):
    """timm's model of an arch, and ours, with few channels and timm's way to resize a table."""
    name = name or NAMES[arch]
    if 'pos_encoding' in ARCHS[arch]:
        options['pos_encoding'] = dict(interpolation='bicubic_antialias', interpolation_offset=0.0)
    elif arch in ('tiny', 'small'):
        options['pos_encoding'] = TABLE
    if name.endswith('dinov3'):
        options['qkv_bias'] = False
    return (partial(timm.create_model, name, **SIZES, dynamic_img_size=True, **dict(theirs)),
            partial(ViT, arch, **OURS, **options))


def vit(arch, **view):
    theirs = dict(dynamic_img_pad=True)
    if 'siglip' in arch:  # timm has GELU itself in some models of the name
        theirs |= dict(global_pool='avg', fc_norm=False, act_layer='gelu_tanh')
    return small(arch, None, theirs, **view)


VIT = ('small', 'dinov2-small', 'dinov2-giant', 'dinov2-small-reg', 'dinov2-giant-reg',
       'tipsv2-base', 'deit3-small', 'siglip-so400m', 'clip-base')
#: By a name of our own: the arch, timm's name where it is another, and what differs in our model.
EVA = {
    **{arch: (arch, None, {}) for arch in (
        'dinov3-small', 'dinov3-huge-plus', 'eva02-small', 'eva02-base', 'pe-lang-large',
        'rope-vit-small-axial', 'rope-vit-base-mixed', 'rope-vit-large-axial-ape',
        'rope-vit-small-mixed-ape')},
    'dinov3 with bias': ('dinov3-small', 'vit_small_patch16_dinov3_qkvb', {}),
    'eva02 of CLIP': ('eva02-large', 'eva02_large_patch14_clip_224', dict(attn_norm=True)),
    'timm reg gap': ('tiny', 'vit_medium_patch16_rope_reg1_gap_256', dict(
        class_token=False, register_tokens=1, layer_scale_init_value=1.0, rel_pos_encoding=dict(
            type='RotaryEmbedding', axes='yx', theta=10000.0, reference_grid=(16, 16)),
        qkv_bias='qv', final_norm='pooled', pos_encoding=None))}


def eva(kind, **view):
    arch, name, options = EVA[kind]
    theirs, ours = small(arch, name, dict(global_pool='avg') if 'CLIP' in kind else {})
    return theirs, partial(ours, **options, **view)


BEIT = partial(Beit, **SIZES, init_values=0.1, use_abs_pos_emb=False)
RELPOS = partial(VisionTransformerRelPos, **SIZES)
SMALL = dict(type='mmposenc.LogSpacedCPB', mode='cr', hidden_dims=16, prefix_bias=False)
TABLES = dict(type='mmposenc.RelativePositionBias', resize='geometric')
RELATIVE = {
    'beit': (partial(BEIT, use_rel_pos_bias=True), dict(arch='beit-base')),
    'beit, pretrained': (partial(BEIT, use_shared_rel_pos_bias=True, use_fc_norm=False),
                         dict(arch='beitv2-base', final_norm=True, rel_pos_sharing='all')),
    'relpos': (partial(RELPOS, qkv_bias=False, fc_norm=True, rel_pos_dim=16),
               dict(arch='relpos-small', rel_pos_encoding=SMALL)),
    'srelpos': (partial(RELPOS, qkv_bias=False, shared_rel_pos=True, rel_pos_dim=16),
                dict(arch='srelpos-small', rel_pos_encoding=SMALL)),
    'relpos of tables': (partial(RELPOS, rel_pos_type='bias', fc_norm=True),
                         dict(arch='relpos-base', qkv_bias=True, rel_pos_encoding=TABLES)),
    'relpos of tables, class token': (
        partial(RELPOS, rel_pos_type='bias', class_token=True, global_pool='token'),
        dict(arch='relpos-base', qkv_bias=True, final_norm=True, pool='cls', class_token=True,
             rel_pos_encoding=TABLES)),
}


def naflex(arch, theirs=(), **options):
    pools = arch.endswith('gap')
    sizes = {**SIZES, 'img_size': None, 'pos_embed_grid_size': (4, 4), 'dynamic_img_pad': True}
    return Case(partial(timm.create_model, NAMES[arch], **sizes, **dict(theirs)),
                partial(ViT, arch, **OURS, **({} if pools else dict(pool=None)), **options),
                pooled if pools else last_map, [(40, 24), NATIVE, (24, 64), (8, 40)])


QWEN3 = (partial(timm.create_model, 'qwen3_vit_88m_enc', **SIZES, pos_embed_grid_size=4),
         partial(ViT, 'qwen3-88m', **OURS))
SAPIENS2 = small('sapiens2-base', None, dict(num_kv_heads=(3, 3)))
DEEPSEEK = (partial(timm.create_model, 'deepseek_vit_412m_enc', **SIZES, global_pool=''),
            partial(ViT, 'deepseek-412m', **OURS))
SAM = partial(ViT, img_size=28, patch_size=4, embed_dims=16, num_layers=4, num_heads=2, pool=None,
              final_norm=False, window_size=3, global_blocks=(1, 3), mask_window_padding=False,
              norm_eps=1e-5, pos_encoding=TABLE,
              rel_pos_encoding=dict(type='mmposenc.DecomposedRPE'))
TIMM_SAM = partial(vision_transformer_sam.VisionTransformerSAM, img_size=28, patch_size=4,
                   embed_dim=16, depth=4, num_heads=2, num_classes=0, use_rel_pos=True,
                   window_size=3, global_attn_indexes=(1, 3))
PVTS = dict(embed_dims=(8, 16, 24, 32), num_heads=(1, 2, 3, 4), mlp_ratios=(2, 2, 2, 2))


def stages(model, x):
    return model.forward_intermediates(x, intermediates_only=True)


def pyramid(theirs, arch, features=stages, **view):
    return Case(partial(*theirs, **PVTS, num_classes=5, depths=(2, 2, 1, 2)), partial(
        PVT, arch, **PVTS, num_layers=(2, 2, 1, 2), drop_path_rate=0.0, **view), features,
        [(64, 96), (101, 77), (32, 200)], resized=1e-10)


SWIN = dict(embed_dims=12, num_layers=(2, 2), num_heads=(2, 3), mlp_ratio=2, drop_path_rate=0.)
TIMM_SWIN = dict(embed_dim=12, depths=(2, 2), num_heads=(2, 3), mlp_ratio=2, drop_path_rate=0.,
                 num_classes=5)


def swin_v2(size, window, unit, **options):
    """ours and timm's; timm has no norm behind the first stage."""
    return (partial(SwinTransformerV2, img_size=size, window_size=window,
                    pretrained_window_sizes=unit, **TIMM_SWIN, **options),
            partial(Swin, **SWIN, cosine=True, post_norm=True, qkv_bias='qv',
                    rel_pos_encoding=dict(type='mmposenc.LogSpacedCPB'), window_size=window,
                    pretrained_window_size=unit,
                    pad_small_map='always_partition' in options))


NO_UNITS = ((0, 0), (0, 0))
RESIZED = [NATIVE, (48, 32), (24, 64), (40, 56)]
CASES = {
    **{name: Case(*vit(name, out_indices=(0, 1), final_norm='every'), maps,
                  [*RESIZED, (37, 51)]) for name in VIT},
    **{f'{name}, pooled': Case(*vit(name), pooled) for name in VIT},
    **{kind: Case(*eva(kind, pool=None), last_map, [*RESIZED, (72, 16)], native=1e-6)
       for kind in EVA},
    'eva02, pooled': Case(*eva('eva02-small'), pooled, native=1e-6),
    'dinov3, pooled': Case(*eva('dinov3-small'), lambda model, x: [model.forward_features(x)[:, 0]],
                           native=1e-6),
    **{name: Case(theirs, partial(ViT, **OURS, **own), pooled,
                  [NATIVE, (56, 56), (40, 24), (8, 64)])
       for name, (theirs, own) in RELATIVE.items()},
    **{f'{name}, maps': Case(RELATIVE[name][0], partial(ViT, **OURS, **RELATIVE[name][1],
                                                        out_indices=(0, 1)),
                             partial(maps, norm=name == 'beit, pretrained'), [(40, 24)])
       for name in ('beit', 'relpos')},
    **{arch: naflex(arch) for arch in (
        'naflex-base-gap', 'naflex-base-par-gap', 'naflex-base-parfac-gap', 'naflex-base-siglip',
        'radio-large-v3', 'radio-huge-v3')},
    'naflex, factorized': naflex('naflex-base-gap', dict(pos_embed='factorized'), pos_encoding=dict(
        type='FactorizedPositionEmbedding')),
    'qwen3': Case(*QWEN3, lambda model, x: [model.forward_features(x).permute(0, 3, 1, 2)],
                  [NATIVE, (48, 32), (16, 80)], native=1e-6),
    'norms of queries and keys': Case(*small('small', None, dict(qk_norm=True), attn_norm='qk',
                                             pool=None, class_token=True), last_map, RESIZED),
    'sapiens2': Case(SAPIENS2[0], partial(SAPIENS2[1], pool=None), last_map,
                     [*RESIZED, (72, 16)], native=1e-6),
    'deepseek': Case(DEEPSEEK[0], partial(DEEPSEEK[1], pool=None),
                     lambda model, x: [model.forward_features(x).permute(0, 3, 1, 2)],
                     [NATIVE, (48, 32), (16, 80)], native=1e-6),
    'sam': Case(partial(TIMM_SAM, neck_chans=6), partial(SAM, neck_channels=6),
                lambda model, x: [model.forward_features(x)],
                [(28, 28), (32, 20), (12, 40), (44, 48)], resized=1e-10),
    'sam, every block': Case(partial(TIMM_SAM, neck_chans=None), partial(
        SAM, out_indices=(0, 1, 2, 3)), lambda model, x: model.forward_intermediates(
            x, indices=4, intermediates_only=True), [(28, 28)]),
    'v2': Case(*swin_v2(32, 4, NO_UNITS, always_partition=True, dynamic_img_size=True), swin_maps,
               [(32, 32), (64, 64), (64, 96), (160, 32)], resized=1e-10),
    **{f'v2 {size} {windows} {units}': Case(*swin_v2(size, windows, units), swin_maps, [size],
                                            resized=1e-10) for size, windows, units in (
        ((64, 32), ((2, 2), (2, 2)), NO_UNITS), ((48, 48), ((3, 3), (3, 3)), ((2, 2), (2, 2))),
        ((64, 64), ((8, 4), (4, 2)), ((4, 2), (4, 2))))},
    'pvt v2': pyramid([PyramidVisionTransformerV2], 'v2-b0'),
    'pvt v2, linear, pooled': pyramid([partial(PyramidVisionTransformerV2, linear=True)],
                                      'v2-b2-linear', pooled, pool='gap'),
    'twins svt': pyramid([partial(Twins, wss=(4, 3, 2, 2))], 'svt-small', window_sizes=(4, 3, 2, 2),
                         mask_window_padding=False),
    'twins pcpvt, pooled': pyramid([Twins], 'pcpvt-small', pooled, pool='gap'),
    'swin with windows of their own in each stage': Case(  # as swin_s3 has
        partial(SwinTransformer, img_size=64, window_size=((8, 8), (4, 4)), **TIMM_SWIN),
        partial(Swin, **SWIN, window_size=((8, 8), (4, 4)), pool='gap'),
        pooled, [(64, 64)]),
    'distilled': Case(partial(VisionTransformerDistilled, **SIZES), partial(
        ViT, 'tiny', **OURS, pos_encoding=dict(TABLE, num_prefix_embeds=2), distilled=True),
        lambda model, x: model.forward_features(x)[:, :2].unbind(1)),
}


@pytest.fixture(autouse=True)
def in_float64(monkeypatch):
    """SAM's table is resized in float64 too, which timm does in float32."""
    monkeypatch.setattr(
        vision_transformer_sam, 'resample_abs_pos_embed_nhwc',
        lambda table, grid: nn.functional.interpolate(
            table.permute(0, 3, 1, 2), grid, mode='bicubic', antialias=True).permute(0, 2, 3, 1))


def exact(model):
    """Coordinates, which timm keeps in float32."""
    def logarithms(window, unit):
        axes = [torch.arange(1.0 - side, side, dtype=torch.float64) * scale
                for side, scale in zip(window, unit, strict=True)]
        return torch.stack(torch.meshgrid(
            *(axis.sign() * axis.abs().log1p() for axis in axes), indexing='ij'), -1)

    for module in model.modules():
        if isinstance(module, RelPosMlp):
            module.rel_coords_log = logarithms(module.window_size, (1.0, 1.0))
        if hasattr(module, 'relative_coords_table'):
            sides = [u or w for u, w in zip(module.pretrained_window_size, module.window_size,
                                            strict=True)]
            module.relative_coords_table = logarithms(
                module.window_size, [8 / (side - 1) for side in sides])[None] / math.log(8)
    return model


def pair(case, size):
    """timm's model for images of a size, with random weights, and ours with the same."""
    theirs = randomize(case.theirs(), 0.3).double().eval()
    hidden = theirs.state_dict().get('blocks.0.mlp.fc2.weight')
    sizes = {} if hidden is None else dict(mlp_hidden_dims=hidden.shape[1])
    ours = case.ours(**sizes).double().eval()
    load_pretrained(ours, theirs.state_dict())
    if isinstance(theirs, (Beit, VisionTransformerRelPos)):
        theirs.set_input_size(img_size=size)
    if case.features is swin_maps:
        ours.norm0 = nn.Identity()  # timm has none behind the first stage
    return exact(theirs), ours


def source_of(theirs):
    """RoPE-ViT with axial positions and a table has the names of DeiT III."""
    source = recognise(theirs.state_dict())
    assert not isinstance(theirs, Eva) or source in ('eva', 'deit')
    return 'eva' if isinstance(theirs, Eva) else source


@pytest.mark.parametrize('name, size', [
    pytest.param(name, size, marks=() if size in case.sizes[:2] else pytest.mark.slow)
    for name, case in CASES.items() for size in case.sizes], ids=str)
def test_features_and_gradients(name, size):
    """Of the image and of all weights."""
    case = CASES[name]
    theirs, ours = pair(case, size)
    native = size in (NATIVE, (28, 28))
    share = case.native if native else case.resized
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    outs, grads = results(ours, lambda image: flat(ours(image)), x)
    expected, their_grads = results(theirs, lambda image: case.features(theirs, image), x)
    for got, value in zip(outs, expected, strict=True):
        close(got, value, share)
    close(grads.pop(''), their_grads.pop(''), share)
    wanted = convert(their_grads, source_of(theirs))
    for key, grad in grads.items():
        value = wanted.pop(f'backbone.{key}')
        if 'pos_embed' in key:  # timm keeps no place of the class token beside registers
            grad = grad[:, -value.shape[1]:]
        if grad.shape == value.shape:
            close(grad, value, share, key)
        else:  # tables of another grid: functional/test_tables.py
            assert key.endswith('position_bias_table') and size != NATIVE
    assert not any(grad.any() for key, grad in wanted.items() if not key.endswith(MASK))


def test_heads_of_sapiens2_that_share_keys_get_copies():
    """As blocks 8 and 9 of these have them; what training changed has no place in timm's model."""
    heads = [1 if block in (8, 9) else 2 for block in range(18)]
    theirs, ours = (build().double().eval() for build in (
        partial(randomize, timm.create_model('vit_large_patch16_sapiens2', **SIZES | dict(
            embed_dim=16, num_heads=2, depth=18, num_kv_heads=heads))),
        partial(ViT, 'sapiens2-large', **OURS | dict(embed_dims=16, num_heads=2, num_layers=18),
                mlp_hidden_dims=64, pool=None)))
    state, x = theirs.state_dict(), torch.randn(1, 3, *NATIVE, dtype=torch.float64)
    load_pretrained(ours, state)
    close(ours(x)[0], last_map(theirs, x)[0], 1e-6)
    back = convert_back(ours.state_dict(), 'eva').state_dict
    torch.testing.assert_close(back, {key: state[key] for key in back}, rtol=0, atol=0)
    assert state.keys() - back.keys() == {'head.weight', 'head.bias'}
    with torch.no_grad():
        ours.blocks[9].attn.qkv.weight[16] += 1
    with pytest.raises(ValueError, match='blocks.9.*qkv.weight has different keys or values'):
        convert_back(ours.state_dict(), 'eva')


def test_factorized_tables_need_a_square():
    """Each spans the longer side, so one of the shorter side's length holds too little."""
    case = CASES['naflex-base-parfac-gap']
    with pytest.raises(ValueError, match='pos_embed_y has 4 cells, 5 here; a square img_size is'):
        load_pretrained(case.ours(img_size=(40, 24)), case.theirs().state_dict())


#: What an arch is told as, where the weights of both look the same.
TOLD = {'naflex-base-par-gap': 'naflex-base-gap', 'naflex-base-siglip': 'siglip-base',
        **{f'pe-core-{size}': f'clip-{size}' for size in ('base', 'large')},
        **{f'beitv2-{size}': f'beit-{size}' for size in ('base', 'large')},
        **{f'rope-vit-{size}-axial-ape': f'deit3-{size}' for size in ('small', 'base', 'large')}}
LARGE = re.compile('.*(large|huge|giga|giant|7b|so400m|medium|-small-).*')


def shapes(state):
    return {name.removeprefix('backbone.'): value.shape for name, value in state.items()}


def test_every_arch_is_compared():
    """But those that timm has not."""
    assert ARCHS.keys() - NAMES.keys() == {
        'vitdet-base', 'vitdet-large', 'vitdet-huge', 'dinov3-large-plus', 'sam3',
        'vit5-small', 'vit5-base', 'vit5-large', 'vit5-xlarge'}


@pytest.mark.parametrize('arch', [
    pytest.param(arch, marks=pytest.mark.slow if LARGE.match(arch) else ()) for arch in NAMES])
def test_an_arch_is_timms_model_and_is_told_by_its_weights(arch):
    """Shapes and names there and back, heads, epsilons."""
    sam, head = arch.startswith('sam'), dict(num_classes=0)
    if arch.startswith(('siglip', 'rope-vit', 'dinov3', 'sapiens2')):
        head['global_pool'] = '' if 'siglip' in arch else 'token'
    options = dict(neck_channels=256) if sam else {}
    if '_reg' in NAMES[arch] or arch in ('tiny', 'small', 'base', 'large'):
        prefix = int('_reg' not in NAMES[arch])  # timm keeps no place of it beside registers
        options['pos_encoding'] = dict(TABLE, num_prefix_embeds=prefix)
    if NAMES[arch].endswith('dinov3'):
        options['qkv_bias'] = False
    with unfilled():
        theirs = timm.create_model(NAMES[arch], **({} if sam else head))
        ours = ViT(arch, **options)
    state, source = theirs.state_dict(), source_of(theirs)
    report = convert_with_report(state, source)
    assert shapes(report.state_dict) == shapes(without_grids(ours.state_dict()))
    if not arch.startswith('pe-'):  # whose names are CLIP's when they go back
        family = 'deit' if source == 'qwen3' else source  # whose names a tower has by itself
        back = convert_back(report.state_dict, family).state_dict
        assert shapes(back) == shapes({key.removeprefix('encoder.'): value
                                       for key, value in state.items()
                                       if key not in report.dropped})
    told = needed_options(report.state_dict, KINDS)
    assert told[0] == f'model.backbone.arch={TOLD.get(arch, arch)}'
    assert len(told) == 1 or options or arch in TOLD, told
    block = getattr(theirs, 'encoder', theirs).blocks[0]
    assert ours.blocks[0].norm1.eps == block.norm1.eps or sam
    assert ours.blocks[0].attn.num_heads == block.attn.num_heads


@pytest.mark.parametrize('arch', [arch for arch in NAMES if ARCHS[arch].get(
    'layer_scale_init_value')])
def test_factors_of_branches_start_as_timms(arch):
    heads = dict(num_kv_heads=ARCHS[arch]['num_heads']) if 'sapiens2' in arch else {}
    theirs = timm.create_model(NAMES[arch], depth=1, num_classes=0, img_size=56, **heads,
                               embed_dim=16 * ARCHS[arch]['num_heads']).blocks[0]
    found = [theirs.ls1.gamma, theirs.ls2.gamma] if hasattr(theirs, 'ls1') else [
        theirs.gamma_1, theirs.gamma_2]
    values = [each if each is None else each.unique().item() for each in found]
    assert values == pytest.approx(list(pair_of_scales(ARCHS[arch]['layer_scale_init_value'])))


@pytest.mark.parametrize('arch', PYRAMIDS)
def test_archs_of_stages_are_timms_and_are_told(arch):
    """Shapes, heads, and windows with what their biases are counted in."""
    with unfilled():
        theirs = timm.create_model(PYRAMIDS[arch], num_classes=0)
        ours = (Swin if 'swin' in PYRAMIDS[arch] else PVT)(arch, pool='gap')
    state = convert(theirs.state_dict(), source_of(theirs))
    assert shapes(state) == shapes(ours.state_dict())
    assert needed_options(state, KINDS)[0] == f'model.backbone.arch={arch.partition("-w")[0]}'
    attentions, others = ([each for name, each in model.named_modules() if name.endswith('.attn')]
                          for model in (ours, theirs))
    for mine, other in zip(attentions, others, strict=True):
        if isinstance(ours, PVT):
            assert mine.num_heads == other.num_heads
            continue
        assert mine.w_msa.num_heads == other.num_heads
        assert mine.w_msa.window_size == other.window_size
        unit = other.pretrained_window_size if any(other.pretrained_window_size) else (
            other.window_size)
        assert mine.w_msa.rel_pos_encoding.window_size == unit
