"""What every backbone must do, whatever it is: one table of models, each test for all of them."""
from dataclasses import fields
from functools import partial

import pytest
import torch
from helpers.tiny_backbones import BUILD, check_padding_is_not_seen, flat, randomize, total
from torch import nn

from mmposenc.backbones import PVT, EoMT, Swin, ViT
from mmposenc.backbones.base import Backbone
from mmposenc.backbones.shared_arguments import SharedArguments
from mmposenc.class_index import CLASSES, load_own_class
from mmposenc.functional import extents
from mmposenc.signatures import accepted_arguments, parameters_of

PEG = dict(type='PEG')
LEARNED = dict(type='LearnedPositionEmbedding')
IRPE = dict(type='IRPE', rpe_on='qkv')
PAPE = dict(type='PaPE', num_parabolas=3)
_PVT = partial(PVT, embed_dims=(8, 16, 24, 32), num_layers=(1, 2, 1, 1), num_heads=(1, 2, 3, 4),
               sr_ratios=(8, 4, 2, 1), mlp_ratios=(2, 2, 2, 2), drop_path_rate=0.0)
_SWIN = partial(Swin, embed_dims=12, num_layers=(2, 2), num_heads=(2, 3), mlp_ratio=2,
                window_size=4, drop_path_rate=0.0)
BIAS, CPB = dict(type='RelativePositionBias'), dict(type='LogSpacedCPB')
_V2 = partial(_SWIN, cosine=True, post_norm=True, qkv_bias='qv', rel_pos_encoding=CPB)
_VIT = partial(ViT, embed_dims=24, num_layers=3, num_heads=3, mlp_ratio=2, patch_size=8,
               img_size=32, out_indices=(0, 2))
VIT5 = dict(norm='rms', attn_norm='qk', mlp_norm=True, mlp_bias=False, qkv_bias=False, mlp='swiglu',
            layer_scale_init_value=(0.5, None), register_tokens=4,
            pos_encoding=dict(LEARNED, interpolation='tile', grid_shape=(2, 3)),
            rel_pos_encoding=dict(type='RotaryEmbedding', register_grid=(2, 2)))
_ARCH = partial(_VIT, mlp_ratio=4.0, mlp_hidden_dims=20, final_norm='every')
_SAM = partial(ViT, img_size=28, patch_size=4, embed_dims=16, num_layers=4, num_heads=2,
               pool=None, window_size=3, global_blocks=(1, 3), final_norm=False,
               pos_encoding=LEARNED, rel_pos_encoding=dict(type='DecomposedRPE'))
#: Encodings of tokens, for all families.
TOKEN = {
    'peg': dict(pos_encoding=PEG, positions=(-1, 0)), 'learned': dict(pos_encoding=LEARNED),
    'sincos': dict(pos_encoding=dict(type='SinCosPositionEncoding')),
    'peg and pool': dict(pos_encoding=[PEG, dict(type='ContextPool', ratio=0.3)],
                         rel_pos_encoding=IRPE)}
#: And where queries and keys may be of other tokens than values.
QUERY_KEY = {
    'qk peg': dict(pos_encoding=dict(type='PEG', apply_to='qk'), positions=(-1,)),
    'qk learned': dict(pos_encoding=dict(LEARNED, apply_to='qk')),
    'several': dict(pos_encoding=[dict(type='PEG', num_layers=2, conv='separable'),
                                  dict(type='SinCosPositionEncoding', normalize=True)])}
MLPS = dict(pos_encoding=dict(type='ConvMLP'))
V2 = dict(overlap=True, stage_norm=True, **MLPS)
LINEAR = dict(V2, key_cells=3, pos_encoding=dict(type='ConvMLP', relu=True))
SVT = dict(num_layers=(2, 3, 1, 1), window_sizes=(4, 3, 2, 2), pos_encoding=PEG)
MODELS = {
    **{f'pvt {name}': partial(_PVT, **options) for name, options in {
        'plain': {}, **TOKEN, **QUERY_KEY, 'irpe': dict(rel_pos_encoding=IRPE, pos_encoding=PEG),
        'batch norm': dict(pos_encoding=dict(type='PEG', norm_act=True, bias=False)),
        'v2': V2, 'v2 irpe': dict(V2, rel_pos_encoding=IRPE), 'v2 gap': dict(V2, pool='gap'),
        'linear': LINEAR, 'linear irpe': dict(LINEAR, rel_pos_encoding=IRPE),
        'svt': SVT, 'svt irpe': dict(SVT, rel_pos_encoding=IRPE, mask_window_padding=False,
                                     stage_norm=True),
        'svt qk': dict(SVT, **QUERY_KEY['qk peg']), 'svt cls': dict(
            SVT, pool='cls', num_layers=(2, 3, 1, 2)),
        'gap': dict(pool='gap'), 'cls': dict(pool='cls', rel_pos_encoding=dict(
            type='IRPE', mode='bias', rpe_on='k', shared_heads=False)),
        'table': dict(rel_pos_encoding=dict(type='RelativePositionBias', window_size=(3, 5),
                                            resize='geometric-cubic')),
        'swin': dict(rel_pos_encoding=dict(type='LogSpacedCPB', hidden_dims=8)),
        'pape': dict(rel_pos_encoding=PAPE), 'svt pape': dict(SVT, rel_pos_encoding=PAPE),
        'cr': dict(rel_pos_encoding=dict(type='LogSpacedCPB', hidden_dims=8, mode='cr'))}.items()},
    **{f'swin {name}': partial(_SWIN, **options) for name, options in {
        'plain': {}, **TOKEN, 'no bias': dict(rel_pos_encoding=None, mask_window_padding=False),
        'peg and pool': dict(TOKEN['peg and pool'], rel_pos_encoding=[BIAS, IRPE]),
        'irpe': dict(rel_pos_encoding=IRPE, pad_small_map=False),
        'bias and irpe': dict(rel_pos_encoding=[BIAS, dict(IRPE, rpe_on='k')],
                              mask_window_padding=False),
        'rotary': dict(num_heads=(1, 3), pad_small_map=False,
                       rel_pos_encoding=dict(type='RotaryEmbedding')),
        'conv mlp': MLPS, 'small maps': dict(pad_small_map=False), 'gap': dict(pool='gap'),
        'cope': dict(rel_pos_encoding=dict(type='CoPE')), 'pape': dict(rel_pos_encoding=PAPE),
        'gap irpe': dict(pool='gap', rel_pos_encoding=IRPE),
        'oblong': dict(window_size=(2, 6))}.items()},
    **{f'v2 {name}': partial(_V2, **options) for name, options in {
        'plain': {}, 'no bias': dict(rel_pos_encoding=None, pad_small_map=False), 'gap': dict(
            pool='gap'), 'table': dict(rel_pos_encoding=BIAS, mask_window_padding=False),
        'irpe': dict(rel_pos_encoding=[CPB, IRPE], mask_window_padding=False),
        'wider': dict(window_size=((4, 4), (2, 6)), pretrained_window_size=3,
                      pad_small_map=False)}.items()},
    **{f'vit {name}': partial(_VIT, **options) for name, options in {
        'plain': {}, **TOKEN, **QUERY_KEY, 'maps alone': dict(pool=None),
        'irpe': dict(rel_pos_encoding=IRPE, pool=None), 'learned and irpe': dict(
            pos_encoding=LEARNED, rel_pos_encoding=dict(IRPE, rpe_on='k'),
            layer_scale_init_value=0.5),
        'shrinking': dict(pos_encoding=dict(type='PEG', padding='none')),
        'cls': dict(out_indices=None, pos_encoding=LEARNED),
        'cls irpe': dict(out_indices=None, rel_pos_encoding=IRPE),
        'conv mlp': MLPS, 'gap conv mlp': dict(out_indices=None, pool='gap', **MLPS),
        'cls pape': dict(out_indices=None, rel_pos_encoding=PAPE),
        'peg in mlps': dict(pool=None, pos_encoding=[PEG, LEARNED], positions='mlp'),
        'distilled': dict(out_indices=None, distilled=True, pos_encoding=LEARNED),
        'distilled qk': dict(out_indices=None, distilled=True, **QUERY_KEY['qk learned']),
        'gap': dict(out_indices=None, pool='gap', pos_encoding=PEG),
        'gap shrinking': dict(out_indices=None, pool='gap', pos_encoding=dict(
            type='PEG', padding='none')),
        'all of EVA': dict(mlp='swiglu', qkv_bias='qv', attn_norm=True, mlp_norm=True,
                           rel_pos_encoding=dict(IRPE, rpe_on='k'), register_tokens=2),
        'all of ViT-5': VIT5, 'all of ViT-5 in windows': dict(
            VIT5, window_size=(2, 3), global_blocks=(1,), mask_window_padding=False),
        'cls irpe of normed queries': dict(out_indices=None, rel_pos_encoding=IRPE,
                                           attn_norm='qk')}.items()},
    **{arch: partial(_ARCH, arch, rel_pos_encoding=dict(rescale=None))  # random in training
       for arch in ('dinov3-small', 'dinov3-huge-plus')},
    **{arch: partial(_ARCH, arch) for arch in (
        'dinov2-small', 'dinov2-giant-reg', 'deit3-small', 'siglip-so400m', 'clip-large',
        'eva02-small', 'eva02-base', 'rope-vit-small-axial',
        'rope-vit-base-mixed', 'rope-vit-small-mixed-ape', 'beit-base', 'srelpos-small')},
    'beit pooled': partial(_ARCH, 'beit-base', out_indices=None, final_norm='pooled'),
    'relpos of tables': partial(_ARCH, 'relpos-base', rel_pos_encoding=dict(
        type='RelativePositionBias', resize='geometric')),
    'relpos as Swin V2': partial(_ARCH, 'relpos-base', rel_pos_encoding=dict(
        type='LogSpacedCPB', hidden_dims=16, prefix_bias=False)),
    'sam': partial(_SAM, out_indices=(0, 3), neck_channels=6, mask_window_padding=False),
    'sam without neck': partial(_SAM, out_indices=(0, 3)),
}
#: One of each kind; the others are slow, all of them together.
QUICK = ('pvt v2', 'pvt linear irpe', 'pvt svt irpe', 'pvt svt cls', 'swin conv mlp',
         'vit conv mlp', 'pvt several', 'pvt qk learned', 'pvt irpe', 'pvt cls',
         'pvt table', 'swin peg', 'vit peg and pool', 'swin peg and pool', 'swin cope',
         'swin irpe', 'swin bias and irpe', 'swin gap', 'swin oblong', 'v2 plain', 'v2 wider',
         'vit learned and irpe', 'vit qk peg', 'vit shrinking', 'vit distilled', 'vit gap',
         'vit all of EVA', 'vit all of ViT-5 in windows', 'dinov2-giant-reg', 'dinov3-small',
         'eva02-base', 'rope-vit-base-mixed', 'beit pooled', 'relpos of tables', 'sam')
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS]
#: Odd and landscape sizes, maps of one window, one row and one column.
SIZES = [(101, 77), (37, 51), (9, 70), (90, 5)]


@pytest.mark.parametrize('train', [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize('name', NAMES)
def test_an_image_in_a_padded_batch_gives_what_it_gives_alone(name, train):
    if train and name == 'pvt batch norm':
        pytest.skip('takes its statistics from the whole batch; see test_peg.py')
    model = randomize(MODELS[name](mask_padding=True)).double().train(train)
    shrinks = 'shrinking' in name  # an image needs three cells
    check_padding_is_not_seen(model, SIZES[:2] if shrinks else SIZES, (128, 96))


@pytest.mark.parametrize('name', ['pvt swin', 'pvt linear irpe', 'swin small maps', 'dinov3-small'])
def test_blocks_are_told_the_extents_of_images(name, monkeypatch):
    """Which they would otherwise read from a mask: an accelerator would have to be waited for."""
    monkeypatch.setattr(extents, 'extents_of_several', None)
    MODELS[name](mask_padding=True)(torch.randn(4, 3, 128, 96), SIZES)


@pytest.mark.parametrize('name', NAMES)
def test_every_trained_parameter_gets_a_gradient_recomputed_or_not(name):
    """And masking changes nothing where there is no padding, to the bit."""
    x, grads = torch.randn(2, 3, 64, 96), []
    for options in ({}, dict(with_cp=True)):
        model = randomize(MODELS[name](**options)).train()
        total(model(x)).backward()
        grads.append({key: p.grad for key, p in model.named_parameters() if p.requires_grad})
    for key, grad in grads[0].items():
        assert grad is not None and grad.abs().sum() > 0, key
        torch.testing.assert_close(grads[1][key], grad)
    assert [out.shape for out in flat(model.eval()(x[:0]))] == [
        out[:0].shape for out in flat(model(x))]
    masking = MODELS[name](mask_padding=True).eval()
    masking.load_state_dict(model.state_dict())
    torch.testing.assert_close(flat(model.eval()(x)), flat(masking(x, [(64, 96)] * 2)),
                               rtol=0, atol=0)


@pytest.mark.parametrize('sharing', ['layer', 'stage', 'all'])
@pytest.mark.parametrize('name', BUILD)
def test_maps_are_chosen_and_what_is_never_run_is_not_trained(name, sharing):
    """DistributedDataParallel waits for every gradient that may come."""
    options = dict(pos_encoding=PEG, positions='every', rel_pos_encoding=dict(type='FIRE'),
                   rel_pos_sharing=sharing, num_heads=2 if name == 'vit' else (2, 2))
    plain = randomize(BUILD[name](drop_path_rate=0.0, **options)).eval()
    first = plain.out_indices[0]
    one = BUILD[name](out_indices=(first,), **options).eval()
    one.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(1, 3, 40, 64)
    out, = one(x)
    torch.testing.assert_close(out, plain(x)[0])
    out.square().sum().backward()
    last = (one.blocks if name == 'vit' else one.stages)[-1]
    own = {id(p) for key, p in last.named_parameters() if 'rel_pos' not in key}
    for key, parameter in one.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), key
        assert parameter.requires_grad <= (id(parameter) not in own), key


@pytest.mark.parametrize('name', BUILD)
def test_dropout_acts_in_training_alone_and_its_rates_rise(name):
    model = BUILD[name](drop_rate=0.3, attn_drop_rate=0.3, drop_path_rate=0.5)
    rates = [block.drop_path.drop_prob for stage in getattr(model, 'stages', [model])
             for block in stage.blocks]
    assert rates == pytest.approx([0.5 * i / (len(rates) - 1) for i in range(len(rates))])
    x = torch.randn(4, 3, 32, 32)
    assert not torch.equal(model.train()(x)[0], model(x)[0])
    assert torch.equal(model.eval()(x)[0], model(x)[0])


@pytest.mark.parametrize('name', BUILD)
def test_nothing_in_the_state_depends_on_the_last_image(name):
    """Nor on gradients being off."""
    model = randomize(BUILD[name](pos_encoding=[PEG, LEARNED], rel_pos_encoding=dict(
        type='IRPE', rpe_on='k'))).eval().double()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    first = model(x)
    model(torch.randn(2, 3, 96, 40, dtype=torch.float64))
    with torch.inference_mode():
        inferred = model(x)
    for a, b, c in zip(first, model(x), inferred, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        torch.testing.assert_close(a, c)
    assert before.keys() == model.state_dict().keys()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize('name', BUILD)
def test_implementation_reaches_every_attention(name):
    """Numbers of the implementations: tests/attention/test_engines.py; a wrong name: below."""
    model = BUILD[name](rel_pos_encoding=IRPE, implementation='chunked')
    attentions = [module for module in model.modules() if hasattr(module, 'implementation')]
    assert len(attentions) >= 3
    assert {module.implementation for module in attentions} == {'chunked'}


KINDS = {kind for kind in (load_own_class(module, name) for name, module in CLASSES['model'].items()
                           if module.startswith('backbones.')) if issubclass(kind, Backbone)}


def test_every_backbone_is_tested_here():
    # EoMT returns classes and masks: test_eomt.py.
    assert KINDS - {EoMT} == {type(build()) for build in BUILD.values()}, (
        'each needs a line in BUILD')


@pytest.mark.parametrize('kind', sorted(KINDS, key=str))
def test_arguments_of_all_backbones_are_those_of_each(kind):
    """By these names configs are checked; a wrong name is told with those like it."""
    names, classes = accepted_arguments(kind), dict(num_classes=2) if kind is EoMT else {}
    shared = {field.name for field in fields(SharedArguments)}
    assert len(shared) == 15 and shared < names == set(parameters_of(kind))

    class Mine(kind):
        def __init__(self, *, mine: int = 0, **others) -> None:
            super().__init__(**others)

    assert accepted_arguments(Mine) == names | {'mine'}
    with pytest.raises(TypeError, match=f"{kind.__name__} got an unexpected keyword argument "
                                        "'mask_paddin'; did you mean 'mask_padding'"):
        kind('tiny', mask_paddin=True, **classes)
    with pytest.raises(TypeError, match="'heads'; did you mean 'num_heads'"):
        Mine(arch='tiny', heads=3, **classes)


#: Beside the archs, wherever an argument has that name.
WRONG = dict(
    patch_size=0, mlp_ratio=0, num_layers=0, mlp_hidden_dims=0, register_tokens=-1, key_cells=0,
    neck_channels=0, window_size=(0, 0), drop_rate=1.0, attn_drop_rate=-0.1, drop_path_rate=1.0,
    out_indices=(12,), frozen_stages=13, global_blocks=(12,), num_heads=(1, 2), pool='max',
    img_size=(32,), positions=0, trainable='peg', conv_projection=1,
    mlp='glu', act='silu', norm='batch', attn_norm='q', layer_scale_init_value=(1.0,),
    qkv_bias='q', implementation='fast', rel_pos_sharing='blocks')


@pytest.mark.parametrize('kind, others', [
    (PVT, {'num_layers', 'num_heads', 'qkv_bias'}), (Swin, {'num_layers'}), (ViT, {'num_heads'})])
def test_wrong_numbers_and_names_are_told(kind, others):
    """All but others, which mean something else or are told otherwise."""
    arguments = parameters_of(kind)
    given = [(name, WRONG[name]) for name in (WRONG.keys() & arguments.keys()) - others]
    for name, value in [*given, ('out_indices', 1), ('frozen_stages', '1')]:
        more = dict(pos_encoding=PEG) if name == 'positions' else {}
        with torch.device('meta'), pytest.raises(ValueError) as error:
            kind('tiny', **{name: value}, **more)
        assert f'{name}={value!r}' in str(error.value)
    with torch.device('meta'), pytest.raises(ValueError, match=r'x has shape \(3, 32, 32\); \(B'):
        kind('tiny')(torch.zeros(3, 32, 32))


def test_a_module_in_mlps_is_refused():
    with pytest.raises(ValueError, match='pos_encoding is a modu'):
        PVT('tiny', positions='mlp', pos_encoding=nn.Identity())
