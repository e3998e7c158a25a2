"""DeiT: equal to the releases and to mmpretrain, blind to padding, clear about bad input."""
import pytest
import torch
from golden import assert_released, load_golden

import mmposenc  # noqa: F401  (before mmpretrain)
from mmposenc.backbones import DeiT, load_pretrained
from mmposenc.checkpoint import convert

SIZES = dict(embed_dims=24, num_layers=3, num_heads=3, mlp_ratio=2, patch_size=8, img_size=32)
GOLDEN = dict(embed_dims=24, num_layers=2, num_heads=3, mlp_ratio=2, img_size=64)
LEARNED = dict(type='mmposenc.LearnedPositionEmbedding')
IRPE = dict(type='mmposenc.IRPE', rpe_on='qkv')


def randomize(module, std=0.2):
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return module


@pytest.mark.parametrize('stem, source, rel_pos_encoding', [
    ('deit_plain', 'deit', None), ('deit_irpe_product_ctx_qkv', 'irpe-deit', IRPE)])
def test_golden(stem, source, rel_pos_encoding):
    params, arrays = load_golden(stem)
    state = convert(params, source)
    model = DeiT(**GOLDEN, pos_encoding=LEARNED, rel_pos_encoding=rel_pos_encoding).eval()
    model.load_state_dict({k[9:]: v for k, v in state.items() if k.startswith('backbone.')})
    pooled, = model(arrays['x'])
    logits = pooled @ state['head.fc.weight'].T + state['head.fc.bias']
    assert_released(logits, arrays['logits'])


def upstream(name='VisionTransformer', arch=None, **options):
    models = pytest.importorskip('mmpretrain.models')
    arch = arch or dict(embed_dims=24, num_layers=3, num_heads=3, feedforward_channels=48)
    return randomize(getattr(models, name)(arch=arch, img_size=32, patch_size=8, **options))


def run(model, x, target=None):
    """Outputs, flat; gradient of the input."""
    x = x.clone().requires_grad_()
    outs = model(x)
    outs = list(outs[0]) if isinstance(outs[0], tuple) else list(outs)
    outs = outs if target is None else [target(out) for out in outs]
    sum((out * (index + 1)).square().sum() for index, out in enumerate(outs)).backward()
    return outs, x.grad


def assert_equal_to_upstream(own, theirs, x, target=None):
    load_pretrained(own, theirs.state_dict())
    outs, grad = run(own, x)
    expected, expected_grad = run(theirs, x, target)
    for out, value in zip(outs, expected, strict=True):
        torch.testing.assert_close(out, value, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(grad, expected_grad, atol=1e-5, rtol=1e-4)
    state = convert({n: torch.zeros_like(p) if p.grad is None else p.grad
                     for n, p in theirs.named_parameters()}, 'mmpretrain-vit')
    for name, parameter in own.named_parameters():
        torch.testing.assert_close(parameter.grad, state[f'backbone.{name}'], atol=2e-5, rtol=1e-3,
                                   msg=name)


@pytest.mark.parametrize('hw', [(32, 32), (32, 48), (72, 24), (37, 51)])
@pytest.mark.parametrize('scale', [None, 0.1])
def test_equals_mmpretrain_with_class_token(hw, scale):
    own = DeiT(**SIZES, pos_encoding=LEARNED, layer_scale_init_value=scale)
    assert_equal_to_upstream(own, upstream(layer_scale_init_value=scale or 0.),
                             torch.randn(2, 3, *hw))


@pytest.mark.parametrize('hw', [(32, 48), (37, 51)])
def test_equals_mmpretrain_distilled(hw):
    own = DeiT(**SIZES, pos_encoding=LEARNED, distilled=True)
    theirs = upstream('DistilledVisionTransformer')
    assert_equal_to_upstream(own, theirs, torch.randn(2, 3, *hw))
    (cls, dist), = own(torch.randn(2, 3, 32, 32))
    assert cls.shape == dist.shape == (2, 24) and not torch.allclose(cls, dist)


@pytest.mark.parametrize('hw', [(32, 48), (37, 51)])
def test_equals_mmpretrain_pooled(hw):
    theirs = upstream(with_cls_token=False, out_type='featmap')
    own = DeiT(**SIZES, pos_encoding=LEARNED, pool='gap')
    assert_equal_to_upstream(own, theirs, torch.randn(2, 3, *hw), lambda out: out.mean((2, 3)))


@pytest.mark.parametrize('hw', [(32, 48), (37, 51)])
@pytest.mark.parametrize('indices, norm', [((0, 2), True), ((0, 1, 2), False), ((1,), True)])
def test_equals_mmpretrain_as_maps(hw, indices, norm):
    theirs = upstream(out_type='featmap', out_indices=list(indices), final_norm=norm)
    own = DeiT(**SIZES, pos_encoding=LEARNED, out_indices=indices, final_norm=norm)
    load_pretrained(own, theirs.state_dict(), strict=True) if max(indices) == 2 else (
        load_pretrained(own, {k: v for k, v in theirs.state_dict().items() if k[:3] != 'ln1'}))
    x = torch.randn(2, 3, *hw)
    for out, expected in zip(own(x), theirs(x), strict=True):
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize('arch, dims, plain, cpvt, irpe', [
    ('tiny', 192, 5_717_416, 5_681_320, (5_755_816, 5_794_216, 5_832_616)),
    ('small', 384, 22_050_664, 21_978_472, (22_089_064, 22_127_464, 22_165_864)),
    ('base', 768, 86_567_656, 86_423_272, (86_606_056, 86_644_456, 86_682_856))])
def test_parameter_counts(arch, dims, plain, cpvt, irpe):
    head = 1000 * dims + 1000
    with torch.device('meta'):
        assert count(DeiT(arch, pos_encoding=LEARNED)) + head == plain
        assert count(DeiT(arch, pos_encoding=dict(type='PEG', bias=False))) + head == cpvt
        for rpe_on, total in zip(('k', 'qk', 'qkv'), irpe, strict=True):
            encoding = dict(type='mmposenc.IRPE', rpe_on=rpe_on)
            model = DeiT(arch, pos_encoding=LEARNED, rel_pos_encoding=encoding)
            assert count(model) + head == total


ENCODINGS = {
    'none': {}, 'peg': dict(pos_encoding=dict(type='PEG'), positions=(-1, 0)),
    'learned': dict(pos_encoding=LEARNED), 'sincos': dict(
        pos_encoding=dict(type='SinCosPositionEncoding')),
    'qk_peg': dict(pos_encoding=dict(type='PEG', apply_to='qk'), positions=(-1, 0)),
    'qk_learned': dict(pos_encoding=dict(LEARNED, apply_to='qk')),
    'irpe': dict(rel_pos_encoding=IRPE), 'shrinking': dict(
        pos_encoding=dict(type='PEG', padding='none')),
    'learned_irpe': dict(pos_encoding=LEARNED, rel_pos_encoding=dict(IRPE, rpe_on='k'))}


@pytest.mark.parametrize('pool, distilled', [('cls', False), ('cls', True), ('gap', False)])
@pytest.mark.parametrize('name', ENCODINGS)
@pytest.mark.parametrize('sizes', [[(32, 64), (56, 32)], [(37, 51), (50, 30)], [(40, 64)]], ids=str)
def test_pooled_output_does_not_see_padding(name, pool, distilled, sizes):
    model = randomize(DeiT(**SIZES, **ENCODINGS[name], pool=pool, distilled=distilled,
                           mask_padding=True)).double().train()
    batch = torch.full((len(sizes), 3, 64, 80), 3.0, dtype=torch.float64)
    for image, (h, w) in enumerate(sizes):
        batch[image, :, :h, :w] = torch.randn(3, h, w, dtype=torch.float64)
    outs, = model(batch, sizes)
    for image, (h, w) in enumerate(sizes):
        alone, = model(batch[image:image + 1, :, :h, :w].clone())
        for own, padded in (zip(alone, outs, strict=True) if distilled else [(alone, outs)]):
            torch.testing.assert_close(padded[image], own[0])


@pytest.mark.parametrize('name', ENCODINGS)
@pytest.mark.parametrize('pool', ['cls', None])
def test_maps_do_not_see_padding(name, pool):
    model = randomize(DeiT(**SIZES, **ENCODINGS[name], pool=pool, mask_padding=True,
                           out_indices=(0, 2))).double().eval()
    sizes = [(37, 51), (50, 30)]
    batch = torch.randn(2, 3, 64, 80, dtype=torch.float64)
    outs = model(batch, sizes)
    for image, (h, w) in enumerate(sizes):
        alone = model(batch[image:image + 1, :, :h, :w].clone())
        for own, padded in zip(alone, outs, strict=True):
            lost = 2 * (name == 'shrinking')
            assert padded.shape[-2:] == (8 - lost, 10 - lost)
            rows, cols = own.shape[-2:]
            assert (rows, cols) == (-(-h // 8) - lost, -(-w // 8) - lost)
            torch.testing.assert_close(padded[image, :, :rows, :cols], own[0])
            assert padded[image, :, rows:].abs().sum() == 0
            assert padded[image, :, :, cols:].abs().sum() == 0


def test_masking_changes_nothing_without_padding():
    plain = randomize(DeiT(**SIZES, pos_encoding=LEARNED)).eval()
    masking = DeiT(**SIZES, pos_encoding=LEARNED, mask_padding=True).eval()
    masking.load_state_dict(plain.state_dict())
    x = torch.randn(2, 3, 37, 48)
    torch.testing.assert_close(plain(x), masking(x, [(37, 48)] * 2), rtol=0, atol=0)


def test_partial_patches_are_filled_with_zeros():
    model = randomize(DeiT(**SIZES, pos_encoding=dict(type='PEG'))).eval()
    x = torch.randn(1, 3, 37, 51)
    filled = torch.nn.functional.pad(x, (0, 5, 0, 3))
    torch.testing.assert_close(model(x), model(filled))
    assert model(torch.randn(1, 3, 1, 3))[0].isfinite().all()


@pytest.mark.parametrize('name', ENCODINGS)
@pytest.mark.parametrize('options', [
    dict(), dict(distilled=True, layer_scale_init_value=0.5), dict(pool='gap'),
    dict(pool=None), dict(out_indices=(0, 1))], ids=str)
def test_every_trained_parameter_gets_a_gradient(name, options):
    model = randomize(DeiT(**SIZES, **ENCODINGS[name], **options))
    outs = model(torch.randn(2, 3, 32, 48))
    outs = outs[0] if isinstance(outs[0], tuple) else outs
    sum(out.square().mean() for out in outs).backward()
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0, key
    unused = options.get('out_indices') is not None
    assert all(p.requires_grad != unused for p in model.blocks[2].parameters())


def test_activation_checkpointing_changes_no_number():
    grads = []
    for with_cp in (False, True):
        model = randomize(DeiT(**SIZES, **ENCODINGS['qk_peg'], with_cp=with_cp)).train()
        model(torch.randn(1, 3, 32, 32))[0].square().mean().backward()
        grads.append({n: p.grad for n, p in model.named_parameters()})
    for name, grad in grads[0].items():
        torch.testing.assert_close(grad, grads[1][name])


@pytest.mark.parametrize('frozen', [0, 2])
def test_frozen_blocks_stay_frozen_and_in_evaluation(frozen):
    model = DeiT(**SIZES, pos_encoding=[LEARNED, dict(type='PEG', norm_act=True)],
                 positions=(-1, 0, 1), frozen_stages=frozen).train()
    still = [model.patch_embed, *model.blocks[:frozen], *model.pos_encodings.encodings(-1)]
    for position in range(frozen):
        still += model.pos_encodings.encodings(position)
    for module in still:
        assert not module.training and not any(p.requires_grad for p in module.parameters())
    assert not model.cls_token.requires_grad
    moving = [*model.blocks[frozen:], *model.pos_encodings.encodings(frozen)]
    for module in moving:
        assert module.training and all(p.requires_grad for p in module.parameters())


@pytest.mark.parametrize('encoding', ['PEG', 'LearnedPositionEmbedding', 'SinCosPositionEncoding'])
@pytest.mark.parametrize('pool', ['cls', None])
def test_query_key_encoding_reaches_queries_and_keys_only(encoding, pool):
    """Against the same block with its attention written out."""
    prefix = int(pool == 'cls')
    model = randomize(DeiT(**{**SIZES, 'num_layers': 1}, pool=pool, final_norm=False,
                           out_indices=(0,), pos_encoding=dict(type=encoding, apply_to='qk'),
                           positions=(-1,))).double()
    x = torch.randn(1, 3, 24, 16, dtype=torch.float64)
    tokens, hw = model.patch_embed(x)
    if prefix:
        tokens = torch.cat((model.cls_token, tokens), 1)
    encoded = model.pos_encodings.encodings(-1)[0](tokens, hw, num_prefix_tokens=prefix)
    # DeiT's table has a vector for the class token too.
    assert torch.equal(encoded[:, :prefix], tokens[:, :prefix]) == (
        not prefix or encoding != 'LearnedPositionEmbedding')
    block = model.blocks[0]
    attn = block.attn
    q, k, _ = attn.qkv(block.norm1(encoded)).view(-1, 3, 3, 8).permute(1, 2, 0, 3)
    v = attn.qkv(block.norm1(tokens)).view(-1, 3, 3, 8).permute(1, 2, 0, 3)[2]
    weights = (q @ k.transpose(-1, -2) * 8 ** -0.5).softmax(-1)
    out = tokens + attn.proj((weights @ v).transpose(0, 1).reshape(1, -1, 24))
    out = (out + block.mlp(block.norm2(out)))[:, prefix:]
    torch.testing.assert_close(model(x)[0], out.view(1, 3, 2, 24).permute(0, 3, 1, 2))


def test_drop_path_and_dropout_act_in_training_only():
    model = DeiT(**SIZES, drop_rate=0.3, attn_drop_rate=0.3, drop_path_rate=0.5,
                 pos_encoding=LEARNED)
    assert [block.drop_path.drop_prob for block in model.blocks] == [0, 0.25, 0.5]
    x = torch.randn(4, 3, 32, 32)
    assert not torch.equal(model.train()(x)[0], model(x)[0])
    assert torch.equal(model.eval()(x)[0], model(x)[0])


@pytest.mark.parametrize('distilled', [False, True])
def test_works_in_mmpretrains_classifier(distilled):
    registry = pytest.importorskip('mmpretrain.registry')
    pytest.importorskip('mmpretrain.models')
    from mmengine.registry import DefaultScope
    head = (dict(type='DeiTClsHead', num_classes=5, in_channels=24) if distilled else
            dict(type='LinearClsHead', num_classes=5, in_channels=24))
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = registry.MODELS.build(dict(
            type='ImageClassifier', head=head, backbone=dict(
                type='mmposenc.DeiT', **SIZES, pos_encoding=LEARNED, distilled=distilled))).eval()
    randomize(model)
    x = torch.randn(2, 3, 32, 32)
    assert model(x).shape == (2, 5)
    official = {'head.weight': torch.randn(5, 24), 'head.bias': torch.zeros(5)}
    if distilled:
        official |= {f'head_dist.{k[5:]}': v + 1 for k, v in official.items()}
    backbone = {f'backbone.{k}': v for k, v in model.backbone.state_dict().items()}
    model.load_state_dict(backbone | convert(official, 'deit'))


@pytest.mark.parametrize('options, message', [
    (dict(arch='huge'), "arch='huge' must be one of 'tiny'"),
    (dict(), 'arch=None needs embed_dims, num_layers, num_heads'),
    (dict(embed_dims=8), 'arch=None needs num_layers, num_heads'),
    (dict(arch='tiny', num_layers=0), 'num_layers=0 must be at least 1'),
    (dict(arch='tiny', num_heads=5), 'embed_dims=192 must be a positive multiple of num_heads=5'),
    (dict(arch='tiny', patch_size=0), 'patch_size=0 must be at least 1'),
    (dict(arch='tiny', mlp_ratio=0), 'mlp_ratio=0 positive'),
    (dict(arch='tiny', pool='max'), "pool='max' must be 'cls', 'gap' or None"),
    (dict(arch='tiny', pool='gap', distilled=True), "distilled=True with pool='gap'"),
    (dict(arch='tiny', out_indices=(12,)), r'out_indices=\(12,\) must be blocks from 0 to 11'),
    (dict(arch='tiny', out_indices=()), r'out_indices=\(\)'),
    (dict(arch='tiny', final_norm=False), "final_norm=False with pool='cls'"),
    (dict(arch='tiny', frozen_stages=13), 'frozen_stages=13 must be from -1 to 12'),
    (dict(arch='tiny', positions=(12,), pos_encoding=dict(type='PEG')), r'positions=\(12,\)'),
    (dict(arch='tiny', rel_pos_encoding=dict(type='IRPE', rpe_on='x')), "rpe_on='x'")])
def test_bad_options_are_named(options, message):
    with torch.device('meta'), pytest.raises(ValueError, match=message):
        DeiT(**options)


def test_bad_images_are_named():
    model = DeiT(**SIZES, mask_padding=True)
    with pytest.raises(ValueError, match='for each of 2 images'):
        model(torch.zeros(2, 3, 32, 32), [(32, 32)])
    with pytest.raises(ValueError, match='img_shapes is given, but .*mask_padding=False'):
        DeiT(**SIZES)(torch.zeros(1, 3, 32, 32), [(32, 32)])
