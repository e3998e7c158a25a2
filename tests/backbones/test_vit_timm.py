"""ViT's archs equal timm's models: features and gradients at any size, and every size of theirs."""
from functools import partial

import pytest
import torch
from torch import nn

import mmposenc  # noqa: F401  (before timm: it provides torchvision's operators)
from mmposenc.backbones import ViT, load_pretrained
from mmposenc.checkpoint import convert

timm = pytest.importorskip('timm')
VisionTransformer = timm.models.vision_transformer.VisionTransformer

SIZES = dict(embed_dims=24, num_layers=3, num_heads=3, patch_size=8, img_size=32)
TIMM = dict(embed_dim=24, depth=3, num_heads=3, patch_size=8, img_size=32, num_classes=0,
            dynamic_img_size=True, dynamic_img_pad=True)
#: timm resizes every table so, whatever the release did.
TABLE = dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bicubic_antialias')
SWIGLU = dict(mlp_layer=timm.layers.SwiGLUPacked, act_layer=nn.SiLU, mlp_ratio=3.0)
MODELS = {
    'small': dict(), 'dinov2-small': dict(init_values=1e-5), 'dinov2-giant': dict(
        init_values=1e-5, **SWIGLU),
    'dinov2-small-reg': dict(init_values=1e-5, reg_tokens=4, no_embed_class=True),
    'dinov2-giant-reg': dict(init_values=1e-5, reg_tokens=4, no_embed_class=True, **SWIGLU),
    'deit3-small': dict(init_values=1e-6, no_embed_class=True),
    'siglip-so400m': dict(class_token=False, global_pool='', act_layer='gelu_tanh'),
    'clip-base': dict(pre_norm=True, norm_layer=partial(nn.LayerNorm, eps=1e-5),
                      act_layer='quick_gelu')}


def models(name, **options):
    """timm's with random weights (none of them zero), and ours with the same."""
    torch.manual_seed(0)
    theirs = VisionTransformer(**TIMM, **MODELS[name])
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    hidden = 36 if 'giant' in name else 96
    entries = {'num_prefix_embeds': 0} if name == 'deit3-small' else {}
    own = ViT(name, **SIZES, mlp_hidden_dims=hidden, pos_encoding=dict(TABLE, **entries), **options)
    load_pretrained(own, theirs.state_dict())
    return own.double(), theirs.double()


def assert_equal(own, theirs, tolerance):
    """To a part of the span of what is right."""
    assert own.shape == theirs.shape
    error = (own - theirs).abs().max() / (theirs.max() - theirs.min())
    assert error <= tolerance, float(error)


def run(outputs, x, parameters):
    """Outputs and gradients, by the input first, of a sum that weighs every number otherwise."""
    x = x.clone().requires_grad_()
    outs = outputs(x)
    generator = torch.Generator().manual_seed(1)
    loss = sum((out * torch.randn(out.shape, generator=generator, dtype=out.dtype)).sum()
               for out in outs)
    grads = torch.autograd.grad(loss, [x, *parameters], allow_unused=True)
    return outs, grads[0], grads[1:]


@pytest.mark.parametrize('hw', [(32, 32), (48, 32), (24, 64), (37, 51)], ids=str)
@pytest.mark.parametrize('name', MODELS)
def test_features_and_gradients(name, hw):
    own, theirs = models(name, out_indices=(0, 2), final_norm='every')
    x = torch.randn(2, 3, *hw, dtype=torch.float64)
    expected, grad_x, grads = run(
        lambda x: theirs.forward_intermediates(x, indices=[0, 2], norm=True,
                                               intermediates_only=True), x, theirs.parameters())
    outs, own_grad_x, own_grads = run(own, x, own.parameters())
    # timm resizes a table in float32.
    tolerance = 1e-10 if hw == (32, 32) else 1e-6
    for out, value in zip([*outs, own_grad_x], [*expected, grad_x], strict=True):
        assert_equal(out, value, tolerance)
    named = {key: torch.zeros_like(p) if grad is None else grad
             for (key, p), grad in zip(theirs.named_parameters(), grads, strict=True)}
    converted = convert(named, 'deit')
    for (key, _), grad in zip(own.named_parameters(), own_grads, strict=True):
        value = converted[f'backbone.{key}']
        # timm keeps no place of the class token beside registers.
        assert_equal(grad[:, -value.shape[1]:] if 'pos_embed' in key else grad, value, tolerance)


@pytest.mark.parametrize('name', MODELS)
def test_pooled(name):
    own, theirs = models(name)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    tokens = theirs.forward_features(x)
    assert_equal(own(x)[0], tokens.mean(1) if 'siglip' in name else tokens[:, 0], 1e-10)


ARCHS = {
    'tiny': 'vit_tiny_patch16_224', 'small': 'vit_small_patch16_224',
    'base': 'vit_base_patch16_224', 'large': 'vit_large_patch16_224',
    **{f'dinov2-{size}{reg and "-reg"}': f'vit_{size}_patch14_{reg}dinov2'
       for size in ('small', 'base', 'large', 'giant') for reg in ('', 'reg4_')},
    **{f'deit3-{size}': f'deit3_{size}_patch16_224'
       for size in ('small', 'medium', 'base', 'large')}, 'deit3-huge': 'deit3_huge_patch14_224',
    'siglip-base': 'vit_base_patch16_siglip_224', 'siglip-large': 'vit_large_patch16_siglip_256',
    'siglip-so400m': 'vit_so400m_patch14_siglip_224',
    'clip-base': 'vit_base_patch16_clip_quickgelu_224',
    'clip-large': 'vit_large_patch14_clip_quickgelu_224'}


@pytest.mark.parametrize('arch', ARCHS)
def test_an_arch_has_the_weights_of_timms_model(arch):
    pooling = dict(global_pool='') if 'siglip' in arch else {}
    table = dict(TABLE, num_prefix_embeds=0) if arch.endswith('-reg') else None
    with torch.device('meta'):
        theirs = timm.create_model(ARCHS[arch], num_classes=0, **pooling)
        own = ViT(arch, **({} if table is None else dict(pos_encoding=table)) if '-' in arch
                  else dict(pos_encoding=TABLE))
    expected = {key.removeprefix('backbone.'): tuple(value.shape)
                for key, value in convert(theirs.state_dict(), 'deit').items()}
    assert {key: tuple(value.shape) for key, value in own.state_dict().items()} == expected


def test_a_place_of_the_class_token_is_part_of_it():
    """DINOv2's release has such a place beside registers; timm adds it to the class token."""
    own, _ = models('dinov2-small-reg')
    x = torch.randn(1, 3, 40, 32, dtype=torch.float64)
    table = own.pos_encodings.encodings(-1)[0].pos_embed
    with torch.no_grad():
        table[:, :1] = torch.randn(24)
        expected = own(x)[0]
        own.cls_token += table[:, :1]
        table[:, :1] = 0
        assert_equal(own(x)[0], expected, 1e-10)
