"""EoMT: equal to both releases, masks that cover images of any size, and refusals."""
import pytest
import torch
from helpers.golden_files import assert_released, load_golden
from helpers.tiny_backbones import EOMT as SIZES

from mmposenc.backbones import EoMT, ViT, load_pretrained

TABLE = dict(type='mmposenc.LearnedPositionEmbedding', num_prefix_embeds=0)
ROTARY = dict(qkv_bias='qv', rel_pos_encoding=dict(
    type='mmposenc.RotaryEmbedding', axes='yx', planes='halves', normalize='separate'))
#: By the golden: options, and what stands before the results of each release.
RELEASES = {'eomt_dinov2': (dict(pos_encoding=TABLE), ''), 'eomt_dinov3': (ROTARY, ''),
            'eomt_dinov3/tue': (ROTARY, 'tue.'), 'eomt_timm': (dict(pos_encoding=TABLE), '')}
PROBS = dict(masked=[1.0, 1.0], mixed=[0.25, 0.75], plain=[0.0, 0.0])


@pytest.mark.parametrize('case', PROBS)
@pytest.mark.parametrize('stem', RELEASES)
def test_equal_to_the_releases(stem, case):
    options, release = RELEASES[stem]
    params, arrays = load_golden(stem.partition('/')[0])
    # Evaluation draws no random numbers here.
    model = EoMT(**SIZES, **options).train(case == 'mixed')
    load_pretrained(model, params)
    model.predictor.mask_probs.copy_(torch.tensor(PROBS[case]))
    torch.manual_seed(3)  # which queries attend to all patches
    classes, masks = model(arrays['x'])
    assert len(classes) == len(masks) == (1 if case == 'plain' else 3)
    for level in range(len(masks)):
        key = 2 if case == 'plain' else level
        assert_released(masks[level], arrays[f'{release}{case}.mask.{key}'])
        assert_released(classes[level], arrays[f'{release}{case}.class.{key}'])


def tiny(**options):
    torch.manual_seed(0)
    return EoMT(**{**SIZES, **options}).double()


def images(*shape):
    torch.manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64)


def test_evaluation_draws_no_random_numbers():
    """In the course of a training, and of averages of buffers after it."""
    model, x = tiny().eval(), images(1, 3, 32, 32)
    found = []
    for probs in ((0.6, 1e-4), (1.0, 0.0)):
        model.predictor.mask_probs.copy_(torch.tensor(probs))
        found += [model(x), model(x)]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=0)


@pytest.mark.parametrize('apply_to, positions', [('qkv', 'every'), ('qkv', (-1, 1)), ('qk', (0,))])
def test_rows_of_class_tokens_are_not_those_of_queries(apply_to, positions):
    model, seen = tiny(pos_encoding=dict(
        TABLE, apply_to=apply_to, num_prefix_embeds=1), positions=positions), []
    for position in range(-1, 3):
        for encoding in model.pos_encodings.encodings(position):
            torch.nn.init.zeros_(encoding.pos_embed)
            encoding.pos_embed.data[:, 0] = 1
            encoding.register_forward_hook(lambda _, args, out: seen.append(
                (out - args[0]).abs().amax((0, 2)).nonzero().flatten().tolist()))
    model(images(1, 3, 32, 32))
    assert seen and all(tokens == [0] for tokens in seen)  # of the class token and registers


def test_a_file_of_another_patch_size_names_the_upscaling():
    with pytest.raises(ValueError, match=r'The file needs .*model\.backbone\.num_upscales=2'):
        load_pretrained(tiny(), tiny(patch_size=16).state_dict())
    load_pretrained(tiny(num_upscales=2), tiny(patch_size=16).state_dict())


def test_an_ensemble_and_images_by_vmap():
    models, x = [tiny().eval(), tiny().eval()], images(2, 3, 32, 32)
    torch.nn.init.normal_(models[1].query.weight)
    state = torch.func.stack_module_state(models)
    out = torch.func.vmap(lambda *each: torch.func.functional_call(models[0], each, (x,)))(*state)
    for index, model in enumerate(models):
        torch.testing.assert_close(out[1][-1][index], model(x)[1][-1])
    out = torch.func.vmap(lambda image: models[0](image[None]))(x)
    torch.testing.assert_close(out[0][-1][:, 0], models[0](x)[0][-1])


ENCODINGS = {
    'table': dict(pos_encoding=TABLE), 'peg': dict(pos_encoding=dict(type='mmposenc.PEG'),
                                                   positions='every'),
    'mlp': dict(pos_encoding=dict(type='mmposenc.ConvMLP')), 'rotary': ROTARY,
    'irpe': dict(rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='qkv')),
    'bias': dict(rel_pos_encoding=dict(type='mmposenc.RelativePositionBias'), img_size=64),
    'alibi': dict(rel_pos_encoding=dict(type='mmposenc.ALiBi2D')),
    'cvt': dict(conv_projection=(0, 2)),
    'windows': dict(window_count=(2, 2), global_blocks=(1, 2))}


@pytest.mark.parametrize('batch_hw', [(48, 40), (46, 36)])
@pytest.mark.parametrize('name', ENCODINGS)
def test_padding_is_not_seen(name, batch_hw):
    """Of any encoding, with masked attention, what an image of a batch gets is that of the image
    alone: its classes, and its masks enlarged to its pixels; nothing is inside beyond it. And every
    parameter has a gradient."""
    model = tiny(**ENCODINGS[name], mask_padding=True).eval()
    sizes, batch = [(40, 28), (17, 36)], torch.full((2, 3, *batch_hw), 3.0, dtype=torch.float64)
    for image, (height, width) in zip(batch, sizes, strict=True):
        image[:, :height, :width] = images(3, height, width)
    classes, masks = model(batch, sizes)
    whole = batch_hw == (48, 40)
    assert masks[-1].shape == (2, 5, *((12, 10) if whole else batch_hw))
    large = enlarged(masks[-1], batch_hw)
    for index, (height, width) in enumerate(sizes):
        alone = model(batch[index:index + 1, :, :height, :width])
        torch.testing.assert_close([each[index] for each in classes],
                                   [each[0] for each in alone[0]])
        own = enlarged(alone[1][-1], (height, width))[0]
        torch.testing.assert_close(large[index, :, :height, :width], own)
        assert (large[index, :, height + 12:] < -50).all()
    classes, masks = model.train()(batch, sizes)
    sum(each.sin().sum() for each in (*classes, *masks)).backward()
    assert not [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]


def enlarged(masks, size):
    return torch.nn.functional.interpolate(masks, size, mode='bilinear')


def test_a_file_of_the_transformer_alone_leaves_queries_new(caplog):
    """Frozen blocks, layer depths and a file of ViT: queries and predictor are the head."""
    whole = tiny(frozen_stages=1)
    vit = ViT(**{name: value for name, value in SIZES.items()
                 if name not in ('num_classes', 'num_queries', 'query_blocks')}).double()
    before = whole.query.weight.clone()
    load_pretrained(whole, vit.state_dict())
    assert torch.equal(whole.query.weight, before)
    assert torch.equal(whole.blocks[2].attn.qkv.weight, vit.blocks[2].attn.qkv.weight)
    assert whole.get_layer_depth('backbone.query.weight') == (4, 5)
    assert whole.get_layer_depth('backbone.predictor.mask_head.0.weight') == (4, 5)
    frozen = {name.split('.')[0] for name, p in whole.named_parameters() if not p.requires_grad}
    assert frozen == {'cls_token', 'register_tokens', 'patch_embed', 'blocks'}
