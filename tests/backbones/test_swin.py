"""Swin: equal to the release, mmpretrain and mmdet, blind to padding, clear about bad input."""
import pytest
import torch
from golden import assert_released, load_golden
from tinybackbones import check_padding_is_not_seen

import mmposenc  # noqa: F401  (before mmdet)
from mmposenc import backbones
from mmposenc.backbones import Swin, load_pretrained
from mmposenc.checkpoint import convert

SIZES = dict(embed_dims=12, num_layers=(2, 2), num_heads=(2, 3), mlp_ratio=2, window_size=4)
IRPE = dict(type='mmposenc.IRPE', rpe_on='qkv')


def randomize(module, std=0.2):
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return module


def test_golden():
    params, arrays = load_golden('swin_plain_41')
    state = convert(params, 'swin')
    model = Swin(**SIZES, pool='gap').eval()
    assert int(arrays['window_size']) == 4
    model.load_state_dict({k[9:]: v for k, v in state.items() if k.startswith('backbone.')})
    pooled, = model(arrays['x'])
    logits = pooled @ state['head.fc.weight'].T + state['head.fc.bias']
    assert_released(logits, arrays['logits'])


def assert_equal_to_upstream(own, theirs, source, x, target=lambda out: out):
    load_pretrained(own, theirs.state_dict())
    results = []
    for model, finish in ((own, lambda out: out), (theirs, target)):
        inputs = x.clone().requires_grad_()
        outs = [finish(out) for out in model(inputs)]
        sum((out * (index + 1)).square().mean() for index, out in enumerate(outs)).backward()
        results.append((outs, inputs.grad))
    for out, value in zip(results[0][0], results[1][0], strict=True):
        torch.testing.assert_close(out, value, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(results[0][1], results[1][1], atol=1e-5, rtol=1e-4)
    state = convert({n: p.grad for n, p in theirs.named_parameters()}, source)
    for name, parameter in own.named_parameters():
        torch.testing.assert_close(parameter.grad, state[f'backbone.{name}'], atol=1e-5, rtol=1e-3,
                                   msg=name)


def mmdet_swin(**options):
    swin = pytest.importorskip('mmdet.models').SwinTransformer
    return randomize(swin(embed_dims=12, depths=(2, 2), num_heads=(2, 3), mlp_ratio=2,
                          window_size=4, strides=(4, 2), drop_path_rate=0., out_indices=(0, 1),
                          **options))


@pytest.mark.parametrize('hw', [(32, 32), (64, 96), (160, 32)])
def test_equals_mmdet_on_whole_windows(hw):
    own = Swin(**SIZES, drop_path_rate=0.)
    assert_equal_to_upstream(own, mmdet_swin(), 'mmdet-swin', torch.randn(2, 3, *hw))


@pytest.mark.parametrize('hw', [(37, 70), (20, 64), (9, 9)])
def test_equals_mmdet_on_any_size_without_masking_windows(hw):
    own = Swin(**SIZES, drop_path_rate=0., mask_window_padding=False)
    assert_equal_to_upstream(own, mmdet_swin(), 'mmdet-swin', torch.randn(2, 3, *hw))


@pytest.mark.parametrize('hw', [(32, 32), (64, 96), (32, 64)])  # the last stage: 4x4 and 4x8
def test_equals_mmpretrain_pooled(hw):
    swin = pytest.importorskip('mmpretrain.models').SwinTransformer
    theirs = randomize(swin(arch=dict(embed_dims=12, depths=[2, 2], num_heads=[2, 3]), img_size=32,
                            window_size=4, drop_path_rate=0., out_indices=(1,)))
    own = Swin(**{**SIZES, 'mlp_ratio': 4}, drop_path_rate=0., pool='gap')
    assert_equal_to_upstream(own, theirs, 'mmpretrain-swin', torch.randn(2, 3, *hw),
                             lambda out: out.mean((2, 3)))


def test_equals_timm_with_windows_of_their_own_in_each_stage():
    """As its swin_s3 models have."""
    timm = pytest.importorskip('timm.models.swin_transformer')
    theirs = randomize(timm.SwinTransformer(
        img_size=64, embed_dim=12, depths=(2, 2), num_heads=(2, 3), window_size=((8, 8), (4, 4)),
        mlp_ratio=2, drop_path_rate=0., num_classes=0))
    own = Swin(**{**SIZES, 'window_size': ((8, 8), (4, 4))}, drop_path_rate=0., pool='gap')
    load_pretrained(own, theirs.state_dict())
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(own(x)[0], theirs(x), atol=1e-5, rtol=1e-5)


def count(model):
    return sum(p.numel() for p in model.parameters())


def test_parameter_counts():
    """The release's 28.3M, 49.6M and 87.8M; iRPE on q, k and v in place of the bias."""
    with torch.device('meta'):
        for arch, dims, total in (('tiny', 768, 28_288_354), ('small', 768, 49_606_258),
                                  ('base', 1024, 87_768_224)):
            assert count(Swin(arch, pool='gap')) + 1000 * dims + 1000 == total
        tiny = count(Swin('tiny', pool='gap'))
        bias = 13 * 13 * (2 * 3 + 2 * 6 + 6 * 12 + 2 * 24)
        unbiased = count(Swin('tiny', pool='gap', window_bias=False))
        assert unbiased == tiny - bias
        irpe = count(Swin('tiny', pool='gap', window_bias=False, rel_pos_encoding=IRPE))
        assert irpe == unbiased + 12 * 3 * 32 * 49
        both = count(Swin('tiny', pool='gap', rel_pos_encoding=IRPE))
        assert both == tiny + 12 * 3 * 32 * 49
        peg = count(Swin('tiny', pool='gap', pos_encoding=dict(type='PEG')))
        assert peg == tiny + 10 * (96 + 192 + 384 + 768)


ENCODINGS = {
    'plain': {}, 'no_bias': dict(window_bias=False), 'peg': dict(pos_encoding=dict(type='PEG')),
    'irpe': dict(window_bias=False, rel_pos_encoding=IRPE),
    'bias_irpe': dict(rel_pos_encoding=dict(IRPE, rpe_on='k')),
    'learned': dict(pos_encoding=dict(type='LearnedPositionEmbedding'), img_size=32),
    'rotary': dict(window_bias=False, rel_pos_encoding=dict(type='RotaryEmbedding2D'),
                   num_heads=(1, 3))}


@pytest.mark.parametrize('options', [dict(), dict(mask_window_padding=False),
                                     dict(pad_small_map=False)], ids=str)
@pytest.mark.parametrize('name', ENCODINGS)
@pytest.mark.parametrize('sizes', [[(64, 32), (37, 70)], [(9, 70), (90, 5)], [(77, 90)]], ids=str)
def test_maps_do_not_see_padding(name, options, sizes):
    model = randomize(Swin(**{**SIZES, **ENCODINGS[name]}, **options, mask_padding=True,
                           drop_path_rate=0.)).double().train()
    check_padding_is_not_seen(model, sizes, (96, 104))


@pytest.mark.parametrize('name', ENCODINGS)
def test_gap_pools_valid_tokens_only(name):
    model = randomize(Swin(**{**SIZES, **ENCODINGS[name]}, pool='gap', mask_padding=True))
    model = model.double().eval()
    batch = torch.randn(3, 3, 96, 96, dtype=torch.float64)
    pooled, = model(batch, [(40, 96), (96, 50), (9, 60)])
    torch.testing.assert_close(pooled[:1], model(batch[:1, :, :40])[0])
    torch.testing.assert_close(pooled[1:2], model(batch[1:2, :, :, :50])[0])
    torch.testing.assert_close(pooled[2:], model(batch[2:, :, :9, :60])[0])


def test_a_window_wider_than_the_map_is_one_of_its_size():
    """What fills up a window takes no attention."""
    small = randomize(Swin(**{**SIZES, 'num_layers': (2,), 'num_heads': (2,), 'window_size': 3},
                           window_bias=False, pool='gap')).eval()
    large = Swin(**{**SIZES, 'num_layers': (2,), 'num_heads': (2,), 'window_size': 5},
                 window_bias=False, pool='gap').eval()
    large.load_state_dict(small.state_dict())
    x = torch.randn(2, 3, 12, 12)
    torch.testing.assert_close(small(x), large(x))


def test_masking_changes_nothing_without_padding():
    plain = randomize(Swin(**SIZES, pos_encoding=dict(type='PEG'))).eval()
    masking = Swin(**SIZES, pos_encoding=dict(type='PEG'), mask_padding=True).eval()
    masking.load_state_dict(plain.state_dict())
    x = torch.randn(2, 3, 50, 70)
    for a, b in zip(plain(x), masking(x, [(50, 70)] * 2), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize('options', [dict(), dict(pool='gap'), dict(out_indices=(0,))], ids=str)
@pytest.mark.parametrize('name', ENCODINGS)
def test_every_trained_parameter_gets_a_gradient(name, options):
    model = randomize(Swin(**{**SIZES, **ENCODINGS[name]}, **options, drop_path_rate=0.))
    sum(out.square().mean() for out in model(torch.randn(2, 3, 64, 70))).backward()
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0, key
    unused = options.get('out_indices') is not None
    assert all(p.requires_grad != unused for p in model.stages[1].parameters())
    assert all(p.requires_grad != unused for p in model.stages[0].downsample.parameters())


def test_activation_checkpointing_changes_no_number():
    grads = []
    for with_cp in (False, True):
        model = randomize(Swin(**SIZES, pos_encoding=dict(type='PEG'), with_cp=with_cp,
                               drop_path_rate=0.)).train()
        sum(out.square().mean() for out in model(torch.randn(1, 3, 40, 64))).backward()
        grads.append({n: p.grad for n, p in model.named_parameters()})
    for name, grad in grads[0].items():
        torch.testing.assert_close(grad, grads[1][name])


@pytest.mark.parametrize('frozen', [0, 1, 2])
def test_frozen_stages_stay_frozen_and_in_evaluation(frozen):
    model = Swin(**SIZES, frozen_stages=frozen,
                 pos_encoding=dict(type='PEG', norm_act=True)).train()
    assert not any(p.requires_grad for p in model.patch_embed.parameters())
    for index, stage in enumerate(model.stages):
        still = index < frozen
        for module in (stage, getattr(model, f'norm{index}')):
            assert all(p.requires_grad != still for p in module.parameters())
            assert all(m.training != still for m in module.modules())


def test_out_indices_choose_the_maps():
    every = randomize(Swin(**SIZES)).eval()
    last = Swin(**SIZES, out_indices=(1,)).eval()
    load_pretrained(last, every.state_dict())
    x = torch.randn(1, 3, 40, 64)
    torch.testing.assert_close(last(x)[0], every(x)[1])


def test_drop_path_rises_over_all_blocks():
    model = Swin(**SIZES, drop_path_rate=0.3, drop_rate=0.1, attn_drop_rate=0.1)
    rates = [block.drop_path.drop_prob for stage in model.stages for block in stage.blocks]
    assert rates == pytest.approx([0, 0.1, 0.2, 0.3])
    x = torch.randn(4, 3, 32, 32)
    assert not torch.equal(model.train()(x)[0], model(x)[0])
    assert torch.equal(model.eval()(x)[0], model(x)[0])


def test_windows_need_not_be_square():
    model = randomize(Swin(**{**SIZES, 'window_size': (2, 6)}, mask_padding=True)).double().eval()
    assert model.stages[0].blocks[1].attn.shift_size == (1, 3)
    batch = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    for own, padded in zip(model(batch[..., :37, :50]), model(batch, [(37, 50)]), strict=True):
        torch.testing.assert_close(padded[..., :own.shape[2], :own.shape[3]], own)


def test_resolves_by_name_from_every_scope():
    for scope in ('mmdet', 'mmseg', 'mmpretrain'):
        registry = pytest.importorskip(f'{scope}.registry')
        for name, sizes in (('Swin', SIZES), ('DeiT', dict(embed_dims=8, num_layers=1,
                                                           num_heads=2))):
            model = registry.MODELS.build(dict(type=f'mmposenc.{name}', **sizes))
            assert type(model) is getattr(backbones, name)


@pytest.mark.parametrize('options, message', [
    (dict(arch='huge'), "arch='huge' must be one of 'tiny'"),
    (dict(), 'arch=None needs embed_dims=None, num_layers=None'),
    (dict(arch='tiny', num_heads=(1, 2)), r'num_heads=\(1, 2\) must hold one number a stage'),
    (dict(arch='tiny', num_layers=(1, 0, 1, 1)), r'num_layers=\(1, 0, 1, 1\) must be positive'),
    (dict(arch='tiny', num_heads=(5, 6, 12, 24)), 'embed_dims=96 must be a positive multiple'),
    (dict(arch='tiny', window_size=0), 'window_size'),
    (dict(arch='tiny', patch_size=0), 'patch_size=0 must be at least 1'),
    (dict(arch='tiny', pool='cls'), "pool='cls' must be None or 'gap'"),
    (dict(arch='tiny', out_indices=(4,)), r'out_indices=\(4,\) must be stages from 0 to 3'),
    (dict(arch='tiny', out_indices=()), r'out_indices=\(\)'),
    (dict(arch='tiny', frozen_stages=5), 'frozen_stages=5 must be from -1 to 4'),
    (dict(arch='tiny', pos_encoding=dict(type='PEG'), positions=(2,)), r'positions=\(2,\)'),
    (dict(arch='tiny', pos_encoding=dict(type='PEG', apply_to='qk')), "apply_to='qk'"),
    (dict(arch='tiny', pos_encoding=dict(type='LearnedPositionEmbedding', apply_to='qk')),
     "apply_to='qk'"),
    (dict(arch='tiny', rel_pos_encoding=dict(type='IRPE', rpe_on='x')), "rpe_on='x'")])
def test_bad_options_are_named(options, message):
    with torch.device('meta'), pytest.raises(ValueError, match=message):
        Swin(**options)
