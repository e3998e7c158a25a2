"""DINOv3, EVA-02 and RoPE-ViT against timm's Eva with the same weights, at any size and padding."""
from functools import partial

import pytest
import torch

from mmposenc.backbones import ViT, load_pretrained
from mmposenc.checkpoint import convert, convert_back, needed_options, recognise

timm = pytest.importorskip('timm')
from timm.layers import LayerNorm  # noqa: E402
from timm.models.eva import Eva  # noqa: E402

PATCH = 8
DINOV3 = dict(rope_type='dinov3', rope_temperature=100, rope_rotate_half=True, num_reg_tokens=4,
              use_abs_pos_emb=False, use_fc_norm=False, init_values=1.0,
              norm_layer=partial(LayerNorm, eps=1e-5))
EVA02 = dict(swiglu_mlp=True, mlp_ratio=8 / 3, ref_feat_shape=(16, 16))
ROPE_VIT = dict(attn_type='rope', init_values=1.0, use_abs_pos_emb=False, use_fc_norm=False,
                rope_grid_indexing='xy', rope_temperature=100.0)
APE = dict(ROPE_VIT, use_abs_pos_emb=True, no_embed_class=True)
MIXED = dict(rope_type='mixed', rope_temperature=10.0)
#: Our arch and what a small one of its kind needs besides, and timm's arguments.
KINDS = {
    'dinov3': ('dinov3-small', {}, DINOV3),
    'dinov3 without bias': ('dinov3-base', dict(qkv_bias=False), dict(DINOV3, qkv_bias=False)),
    'dinov3 gated': ('dinov3-huge-plus', dict(mlp_hidden_dims=128),
                     dict(DINOV3, swiglu_mlp=True, swiglu_align_to=8, mlp_ratio=8 / 3)),
    'eva02 packed': ('eva02-small', dict(mlp_hidden_dims=128), EVA02),
    'eva02 normed': ('eva02-base', dict(mlp_hidden_dims=128),
                     dict(EVA02, qkv_fused=False, scale_mlp=True)),
    'eva02 of CLIP': ('eva02-large', dict(mlp_hidden_dims=128, attn_norm=True),
                      dict(EVA02, qkv_fused=False, scale_mlp=True, scale_attn_inner=True)),
    'timm reg gap': ('tiny', dict(
        class_token=False, register_tokens=1, layer_scale_init_value=1.0, rel_pos_encoding=dict(
            type='RotaryEmbedding2D', axes='yx', theta=10000.0, reference_grid=(16, 16)),
        qkv_bias='qv', final_norm='pooled'),
        dict(class_token=False, num_reg_tokens=1, init_values=1.0, use_abs_pos_emb=False,
             ref_feat_shape=(16, 16))),
    'rope-vit axial': ('rope-vit-small-axial', {}, ROPE_VIT),
    'rope-vit mixed': ('rope-vit-base-mixed', {}, dict(ROPE_VIT, **MIXED)),
    'rope-vit axial ape': ('rope-vit-large-axial-ape', {}, APE),
    'rope-vit mixed ape': ('rope-vit-small-mixed-ape', {}, dict(APE, **MIXED)),
}
SIZES = [(32, 32), (48, 48), (40, 64), (72, 16)]


def pair(kind, **options):
    """A small model of timm's with random weights, and ours with the same."""
    arch, own, kwargs = KINDS[kind]
    torch.manual_seed(0)
    theirs = Eva(img_size=32, patch_size=PATCH, embed_dim=48, depth=2, num_heads=3, num_classes=0,
                 use_rot_pos_emb=True, dynamic_img_size=True, **kwargs).double().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    if arch.startswith('eva02') or arch.endswith('ape'):  # timm resizes with antialiasing
        own = dict(own, pos_encoding=dict(
            type='LearnedPositionEmbedding', interpolation='bicubic_antialias',
            num_prefix_embeds=int(arch.startswith('eva02'))))
    ours = ViT(arch, embed_dims=48, num_layers=2, num_heads=3, patch_size=PATCH, img_size=32,
               pool=None, **own, **options).double().eval()
    load_pretrained(ours, theirs.state_dict())
    return theirs, ours


def in_our_names(state):
    return {name.removeprefix('backbone.'): value for name, value in convert(state, 'eva').items()}


def close(got, expected):
    """To 1e-6 of the span: timm computes angles in float32."""
    got, expected = got.detach(), expected.detach()
    error = float((got - expected).abs().max() / (expected.max() - expected.min()))
    assert error <= 1e-6, error


@pytest.mark.parametrize('kind', KINDS)
def test_features_and_gradients_equal_timm(kind):
    theirs, ours = pair(kind)
    for size in SIZES:
        x = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
        tokens = theirs.forward_features(x)[:, theirs.num_prefix_tokens:]
        expected = tokens.transpose(1, 2).unflatten(2, [side // PATCH for side in size])
        got, = ours(x)
        close(got, expected)
        weight = torch.randn_like(got)
        grads = []
        for model, out in ((theirs, expected), (ours, got)):
            names, parameters = zip(*model.named_parameters(), strict=True)
            found = torch.autograd.grad((out * weight).sum(), [x, *parameters], allow_unused=True)
            grads.append((found[0], {name: torch.zeros_like(parameter) if grad is None else grad
                                     for name, grad, parameter in
                                     zip(names, found[1:], parameters, strict=True)}))
        close(grads[1][0], grads[0][0])
        in_ours = in_our_names(grads[0][1])
        assert in_ours.keys() - {'fc_norm.weight', 'fc_norm.bias'} == grads[1][1].keys()
        for name, grad in grads[1][1].items():
            close(grad, in_ours[name])


@pytest.mark.parametrize('kind', KINDS)
def test_an_image_of_a_padded_batch_gives_what_it_gives_alone(kind):
    _, ours = pair(kind, mask_padding=True)
    sizes = [(48, 40), (21, 64), (30, 30)]
    x = torch.full((3, 3, 56, 72), 1e3, dtype=torch.float64)
    for image, (height, width) in enumerate(sizes):
        x[image, :, :height, :width] = torch.randn(3, height, width)
    outs, = ours(x, sizes)
    for image, (height, width) in enumerate(sizes):
        alone, = ours(x[image:image + 1, :, :height, :width])
        rows, cols = alone.shape[-2:]
        torch.testing.assert_close(outs[image:image + 1, :, :rows, :cols], alone)


@pytest.mark.parametrize('kind', ['dinov3', 'eva02 packed', 'rope-vit mixed'])
def test_pooled(kind):
    """As a classifier takes them: the class token, or the mean and a norm."""
    theirs, _ = pair(kind)
    arch, own, _ = KINDS[kind]
    gap = arch.startswith('eva02')
    ours = ViT(arch, embed_dims=48, num_layers=2, num_heads=3, patch_size=PATCH, img_size=32,
               pool='gap' if gap else 'cls', **own).double().eval()
    load_pretrained(ours, theirs.state_dict())
    x = torch.randn(1, 3, 32, 32, dtype=torch.float64)
    close(ours(x)[0], theirs(x) if gap else theirs.forward_features(x)[:, 0])


#: Every arch, and timm's name of it.
MODELS = {
    **{f'dinov3-{ours}': f'vit_{theirs}_patch16_dinov3{end}'
       for ours, theirs, end in (
           ('small', 'small', '_qkvb'), ('small-plus', 'small_plus', '_qkvb'),
           ('base', 'base', '_qkvb'), ('large', 'large', '_qkvb'),
           ('huge-plus', 'huge_plus', '_qkvb'), ('7b', '7b', ''))},
    **{f'eva02-{size}': f'eva02_{size}_patch14_224'
       for size in ('tiny', 'small', 'base', 'large')},
    **{f'rope-vit-{size}-{mode}{ape}': (
        f'vit_{size}_patch16_rope_{mode}{ape}_224'.replace('-', '_').replace('_axial', ''))
       for size in ('small', 'base', 'large') for mode in ('axial', 'mixed')
       for ape in ('', '-ape')},
}


@pytest.mark.parametrize('arch', MODELS)
def test_archs_have_the_shapes_of_timm(arch):
    """Names and shapes of all weights, and the options that a file is told to need."""
    name = MODELS[arch]
    with torch.device('meta'):
        theirs = timm.create_model(name, num_classes=0, global_pool=(
            'token' if 'dinov3' in name else 'avg' if 'eva02' in name else 'token'))
        ours = ViT(arch)
    state = theirs.state_dict()
    converted = convert(state, 'eva')
    assert {name.removeprefix('backbone.'): value.shape for name, value in converted.items()} == {
        name: value.shape for name, value in ours.state_dict().items()}
    needs = needed_options(converted)
    assert needs[0] == f'model.backbone.arch={arch}' or arch.endswith('axial-ape')
    back = convert_back(converted, 'eva').state_dict
    assert {name: value.shape for name, value in back.items()} == {
        name: value.shape for name, value in state.items()}


def test_sizes_of_releases():
    """Parameters in millions, as DINOv3's model card (rounded) and timm's table give them."""
    for arch, count in {'dinov3-small': 21.6, 'dinov3-small-plus': 28.7, 'dinov3-base': 85.7,
                        'dinov3-large': 303.1, 'dinov3-huge-plus': 840.6}.items():
        with torch.device('meta'):
            model = ViT(arch)
        assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == count


@pytest.mark.parametrize('kind', KINDS)
def test_names_go_there_and_back(kind):
    theirs, _ = pair(kind)
    state = theirs.state_dict()
    if not kind.endswith('axial ape'):  # the names of DeiT III
        assert recognise(state) == 'eva'
    back = convert_back(convert(state, 'eva'), 'eva').state_dict
    assert back.keys() == state.keys()
    for name, value in back.items():
        assert torch.equal(value, state[name])
