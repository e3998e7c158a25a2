"""PVT: equal to the releases and to mmdet, blind to padding, clear about bad input."""
import pytest
import torch
from golden import assert_released, load_golden
from tinybackbones import check_padding_is_not_seen

import mmposenc  # noqa: F401  (before mmdet)
from mmposenc.backbones import PVT, load_pretrained
from mmposenc.checkpoint import convert

SIZES = dict(embed_dims=(8, 16, 24, 32), num_layers=(1, 2, 1, 1), num_heads=(1, 2, 3, 4),
             sr_ratios=(8, 4, 2, 1), mlp_ratios=(2, 2, 2, 2))
LEARNED = dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear')


def randomize(module, std=0.2):
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return module


def load(source, stem, **options):
    params, arrays = load_golden(stem)
    state = convert(params, source)
    model = PVT(**SIZES, **options).eval()
    model.load_state_dict({k[9:]: v for k, v in state.items() if k.startswith('backbone.')})
    return model, state, arrays


def test_golden_pvt_peg_gap():
    model, state, arrays = load('twins', 'pvt_peg_gap_11', pool='gap',
                                pos_encoding=dict(type='mmposenc.PEG'))
    pooled, = model(arrays['x'])
    logits = pooled @ state['head.fc.weight'].T + state['head.fc.bias']
    assert_released(logits, arrays['logits'])
    dense = PVT(**SIZES, pos_encoding=dict(type='mmposenc.PEG')).eval()
    dense.load_state_dict({k: v for k, v in model.state_dict().items() if k[:5] != 'norm.'})
    for index, out in enumerate(dense(arrays['x'])):
        assert_released(out, arrays[f'stage{index}'])


def test_golden_pvt_plain():
    model, state, arrays = load('pvt', 'pvt_plain_21', pool='cls', img_size=64,
                                pos_encoding=LEARNED)
    pooled, = model(arrays['x'])
    logits = pooled @ state['head.fc.weight'].T + state['head.fc.bias']
    assert_released(logits, arrays['logits'])
    dense = PVT(**SIZES, img_size=64, pos_encoding=LEARNED).eval()
    load_pretrained(dense, load_golden('pvt_plain_21')[0], strict=True)
    for index, out in enumerate(dense(arrays['x'])[:3]):
        assert_released(out, arrays[f'stage{index}'])


@pytest.mark.parametrize('hw', [(64, 64), (64, 96), (160, 64)])
@pytest.mark.parametrize('table', [True, False])
def test_equals_mmdet_in_value_and_gradient(hw, table):
    pvt = pytest.importorskip('mmdet.models').PyramidVisionTransformer
    theirs = pvt(pretrain_img_size=64, embed_dims=8, num_layers=[1, 2, 1, 1],
                 num_heads=[1, 2, 3, 4], mlp_ratios=[2, 2, 2, 2], use_abs_pos_embed=table,
                 drop_path_rate=0.0)
    randomize(theirs)
    own = PVT(**SIZES, img_size=64, pos_encoding=LEARNED if table else None, embed_norm_eps=1e-6,
              drop_path_rate=0.0)
    load_pretrained(own, theirs.state_dict())
    x = torch.randn(2, 3, *hw)
    grads = []
    for model in (own, theirs):
        inputs = x.clone().requires_grad_()
        outs = model(inputs)
        sum((out * (index + 1)).square().mean() for index, out in enumerate(outs)).backward()
        grads.append((outs, inputs.grad, model))
    for a, b in zip(grads[0][0], grads[1][0], strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(grads[0][1], grads[1][1], atol=1e-5, rtol=1e-4)
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    expected = {k[9:]: v for k, v in convert(gradients, 'mmdet-pvt').items()}
    for name, parameter in own.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], atol=1e-5, rtol=1e-3, msg=name)


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize('arch, peg_gap, plain', [
    ('tiny', 12_849_640, 13_229_288), ('small', 24_106_216, 24_485_864),
    ('medium', 43_828_456, 44_208_104)])
def test_parameter_counts(arch, peg_gap, plain):
    head = 512 * 1000 + 1000
    with torch.device('meta'):
        assert count(PVT(arch, pos_encoding=dict(type='PEG'), pool='gap')) + head == peg_gap
        assert count(PVT(arch, pos_encoding=LEARNED, pool='cls')) + head == plain


ENCODINGS = {
    'none': None, 'peg': dict(type='PEG'), 'learned': dict(type='LearnedPositionEmbedding'),
    'detection_peg': dict(type='PEG', norm_act=True, bias=False),
    'qk_peg': dict(type='PEG', apply_to='qk'),
    'qk_learned': dict(type='LearnedPositionEmbedding', apply_to='qk'),
    'sincos': dict(type='SinCosPositionEncoding'),
    'several': [dict(type='PEG', num_layers=2, conv='separable'),
                dict(type='SinCosPositionEncoding', normalize=True)]}


@pytest.mark.parametrize('training', [False, True])
@pytest.mark.parametrize('name', ENCODINGS)
@pytest.mark.parametrize('sizes', [[(128, 64), (64, 96)], [(101, 77), (50, 90), (37, 51)],
                                   [(9, 70), (90, 5)], [(77, 90)], [(50, 61), (50, 61)]], ids=str)
def test_maps_do_not_see_padding(name, training, sizes):
    if training and name == 'detection_peg':
        pytest.skip('BatchNorm takes its statistics from the whole batch; see the next test')
    positions = (-1,) if name == 'qk_peg' else (-1, 0) if name == 'peg' else None
    model = randomize(PVT(**SIZES, pos_encoding=ENCODINGS[name], positions=positions,
                          mask_padding=True, drop_path_rate=0.0)).double().train(training)
    height = -(-max(s[0] for s in sizes) // 32) * 32
    width = -(-max(s[1] for s in sizes) // 32) * 32
    check_padding_is_not_seen(model, sizes, (height, width))


def test_batch_norm_does_not_see_how_much_padding_there_is():
    sizes, outs, stats = [(64, 40), (32, 70)], [], []
    images = [torch.randn(3, h, w, dtype=torch.float64) for h, w in sizes]
    for padded in ((64, 96), (128, 128)):
        model = randomize(PVT(**SIZES, pos_encoding=ENCODINGS['detection_peg'],
                              mask_padding=True, drop_path_rate=0.0)).double().train()
        batch = torch.randn(2, 3, *padded, dtype=torch.float64)
        for image, (h, w) in enumerate(sizes):
            batch[image, :, :h, :w] = images[image]
        outs.append(model(batch, sizes))
        stats.append({k: v for k, v in model.state_dict().items() if 'running' in k})
    for a, b in zip(*outs, strict=True):
        torch.testing.assert_close(a, b[..., :a.shape[2], :a.shape[3]])
    for key, value in stats[0].items():
        torch.testing.assert_close(value, stats[1][key])


def test_gap_pools_valid_tokens_only():
    model = randomize(PVT(**SIZES, pool='gap', mask_padding=True)).double().eval()
    batch = torch.randn(2, 3, 96, 96, dtype=torch.float64)
    pooled, = model(batch, [(40, 96), (96, 50)])
    torch.testing.assert_close(pooled[:1], model(batch[:1, :, :40])[0])
    torch.testing.assert_close(pooled[1:], model(batch[1:, :, :, :50])[0])


def test_without_padding_masking_changes_nothing():
    """On whole images of a multiple of 32 the option equals upstream's arithmetic."""
    plain = randomize(PVT(**SIZES, pos_encoding=dict(type='PEG'))).eval()
    masking = PVT(**SIZES, pos_encoding=dict(type='PEG'), mask_padding=True).eval()
    masking.load_state_dict(plain.state_dict())
    x = torch.randn(2, 3, 64, 96)
    for a, b, c in zip(plain(x), masking(x), masking(x, [(64, 96)] * 2), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        torch.testing.assert_close(a, c, rtol=0, atol=0)


@pytest.mark.parametrize('name', [n for n in ENCODINGS if n != 'detection_peg'])
def test_every_parameter_gets_a_gradient(name):
    positions = (-1,) if name == 'qk_peg' else None
    model = randomize(PVT(**SIZES, pos_encoding=ENCODINGS[name], positions=positions))
    sum(out.square().mean() for out in model(torch.randn(2, 3, 64, 96))).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, key


def test_activation_checkpointing_changes_no_number():
    grads = []
    for with_cp in (False, True):
        model = randomize(PVT(**SIZES, pos_encoding=dict(type='PEG'), with_cp=with_cp,
                              drop_path_rate=0.0)).train()
        torch.manual_seed(3)
        sum(out.square().mean() for out in model(torch.randn(1, 3, 64, 64))).backward()
        grads.append({n: p.grad for n, p in model.named_parameters()})
    for name, grad in grads[0].items():
        torch.testing.assert_close(grad, grads[1][name])


def test_frozen_stages_stay_frozen_and_in_evaluation():
    model = PVT(**SIZES, frozen_stages=2, pos_encoding=dict(type='PEG', norm_act=True)).train()
    for index, stage in enumerate(model.stages):
        frozen = index < 2
        assert all(p.requires_grad != frozen for p in stage.parameters())
        assert all(m.training != frozen for m in stage.modules())
    before = {k: v.clone() for k, v in model.stages[0].state_dict().items()}
    sum(out.sum() for out in model(torch.randn(2, 3, 64, 64))).backward()
    for key, value in model.stages[0].state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_out_indices_choose_the_maps():
    model = PVT(**SIZES, out_indices=(1, 3)).eval()
    x = torch.randn(1, 3, 64, 64)
    every = PVT(**SIZES).eval()
    every.load_state_dict(model.state_dict())
    for a, b in zip(model(x), every(x)[1::2], strict=True):
        torch.testing.assert_close(a, b)


def test_drop_path_drops_images_and_keeps_the_mean():
    from mmposenc.backbones.layers import DropPath
    torch.manual_seed(0)
    out = DropPath(0.25)(torch.ones(4000, 2, 3))
    assert set(out.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert out.mean().item() == pytest.approx(1, abs=0.03)
    assert (out == out[:, :1, :1]).all()
    x = torch.ones(3, 2)
    assert DropPath(0.25).eval()(x) is x
    with pytest.raises(ValueError, match=r'drop_prob=1.0 must be in \[0, 1\)'):
        DropPath(1.0)


def test_resolves_by_name_from_every_scope():
    for scope in ('mmdet', 'mmseg', 'mmpretrain'):
        registry = pytest.importorskip(f'{scope}.registry')
        model = registry.MODELS.build(dict(type='mmposenc.PVT', **SIZES,
                                           pos_encoding=dict(type='mmposenc.PEG')))
        assert type(model) is PVT


@pytest.mark.parametrize('options, message', [
    (dict(arch='huge'), "arch='huge' must be one of 'tiny'"),
    (dict(), 'arch=None must be one of'),
    (dict(arch='tiny', num_heads=(1, 2)), 'num_heads: 2'),
    (dict(arch='tiny', sr_ratios=(8, 4, 0, 1)), r'sr_ratios=\(8, 4, 0, 1\) must be positive'),
    (dict(arch='tiny', out_indices=(4,)), r'out_indices=\(4,\) must be stages from 0 to 3'),
    (dict(arch='tiny', out_indices=()), r'out_indices=\(\)'),
    (dict(arch='tiny', frozen_stages=5), 'frozen_stages=5'),
    (dict(arch='tiny', pool='max'), "pool='max' must be None"),
    (dict(arch='tiny', pos_encoding=dict(type='PEG'), positions=(2,)),
     r'positions=\(2,\) must be different numbers from -1 .* to 1'),
    (dict(arch='tiny', pos_encoding=dict(type='NoPE')), "unknown encoding type='NoPE'"),
    (dict(arch='tiny', num_heads=(3, 2, 5, 8)), 'embed_dims=64 must be a positive multiple')])
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        PVT(**options)


def test_bad_images_are_named():
    model = PVT(**SIZES)
    with pytest.raises(ValueError, match='an image of 3x64 is smaller than the patch of 4x4'):
        model(torch.zeros(1, 3, 3, 64))
    with pytest.raises(ValueError, match='smaller than one'):
        model(torch.zeros(1, 3, 8, 64))  # reaches a reduction that its grid cannot fill
    with pytest.raises(ValueError, match='img_shapes is given, but .*mask_padding=False'):
        model(torch.zeros(1, 3, 64, 64), [(64, 64)])
    masking = PVT(**SIZES, mask_padding=True)
    with pytest.raises(ValueError, match=r'img_shapes=\[\(65, 64\)\] must hold one'):
        masking(torch.zeros(1, 3, 64, 64), [(65, 64)])
    with pytest.raises(ValueError, match='for each of 2 images'):
        masking(torch.zeros(2, 3, 64, 64), [(64, 64)])


def test_padding_without_sizes_is_warned_about():
    batch = torch.randn(1, 3, 64, 64)
    batch[..., 40:] = 0
    with pytest.warns(UserWarning, match='nothing says how far the images reach'):
        PVT(**SIZES, mask_padding=True).eval()(batch)


def test_autocast_stays_close():
    model = randomize(PVT(**SIZES, pos_encoding=dict(type='PEG')), 0.1).eval()
    x = torch.randn(2, 3, 64, 96)
    expected = model(x)
    with torch.autocast('cpu', torch.bfloat16):
        outs = model(x)
    for out, value in zip(outs, expected, strict=True):
        assert out.isfinite().all()
        torch.testing.assert_close(out.float(), value, atol=0.05 * value.abs().max().item(), rtol=0)
