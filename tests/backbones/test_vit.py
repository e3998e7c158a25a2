"""ViT's archs and options: what is given wins, each option against what it says, and padding."""
import inspect

import pytest
import torch
import torch.nn.functional as F

import mmposenc  # noqa: F401  (before timm: it provides torchvision's operators)
from mmposenc.attention import MultiheadAttention
from mmposenc.attention.conv_projection import ConvProjectionAttention
from mmposenc.backbones import DeiT, ViT, vit_archs
from mmposenc.backbones.layers import MLP
from mmposenc.backbones.vit_archs import ARCHS, arch_options
from mmposenc.backbones.vit_layers import ViTBlock
from mmposenc.encodings import RotaryEmbedding2D
from mmposenc.engine.config.options import accepted_arguments

SIZES = dict(embed_dims=24, num_layers=3, num_heads=3, mlp_hidden_dims=20)
IRPE = dict(type='mmposenc.IRPE', rpe_on='k')
#: Switches that no arch above has on, all of them together.
EVA = dict(SIZES, patch_size=14, img_size=56, mlp='swiglu', qkv_bias='qv', attn_norm=True,
           mlp_norm=True, rel_pos_encoding=IRPE, register_tokens=2)


def randomize(module, std=0.2):
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return module.double()


def small(arch, **options):
    return randomize(ViT(arch, **dict(SIZES, **options)))


def test_an_arch_is_a_dict_of_arguments_which_given_ones_override():
    names = set(inspect.signature(ViT).parameters)
    assert all(set(options) <= names for options in ARCHS.values())
    assert accepted_arguments(ViT) == names | {'self'}  # what configs are checked by
    assert DeiT is ViT
    model = ViT('dinov2-small-reg', **SIZES, register_tokens=1, layer_scale_init_value=None,
                pos_encoding=None)
    assert model.register_tokens.shape == (1, 1, 24) and model.patch_size == 14
    assert not any('ls1' in name or 'pos_embed' in name for name in model.state_dict())
    options = arch_options('dinov2-giant', dict(num_heads=None, num_layers=2))
    assert (options['num_heads'], options['num_layers'], options['mlp']) == (24, 2, 'swiglu')
    options['pos_encoding']['type'] = 'PEG'  # a copy
    assert arch_options('dinov2-giant', {})['pos_encoding']['type'] != 'PEG'
    with pytest.raises(TypeError, match="unexpected keyword argument 'heads'"):
        ViT('tiny', heads=3)


def test_an_encoding_without_a_type_changes_the_archs(monkeypatch):
    said = []
    monkeypatch.setattr(vit_archs, 'print_log', lambda text, logger, level: said.append(text))
    own = ARCHS['dinov3-small']['rel_pos_encoding']
    part = arch_options('dinov3-small', dict(rel_pos_encoding=dict(rescale=None)))
    assert part['rel_pos_encoding'] == {**own, 'rescale': None} and own['rescale'] == 2.0
    table = arch_options('eva02-base', dict(pos_encoding=dict(interpolation='bilinear')))
    assert table['pos_encoding'] == dict(ARCHS['eva02-base']['pos_encoding'],
                                         interpolation='bilinear')
    assert not said
    # One with a type replaces it, which is said where it is the same with other settings.
    for kind in ('mmposenc.RotaryEmbedding2D', 'RotaryEmbedding', RotaryEmbedding2D):
        typed = dict(type=kind, round_periods=True)
        assert arch_options('dinov3-small', dict(rel_pos_encoding=typed))[
            'rel_pos_encoding'] == typed
        assert "leaves out {'axes': 'yx', 'planes': 'halves'" in said.pop()
    for other in (dict(type='mmposenc.IRPE'), None, dict(own)):
        assert arch_options('dinov3-small', dict(rel_pos_encoding=other))[
            'rel_pos_encoding'] == other
    assert not said


@pytest.mark.parametrize('hw', [(56, 56), (37, 51), (100, 30)], ids=str)
def test_maps_are_normed_every_one_or_the_last(hw):
    """'every' is as DINOv2 takes features: the last norm on whatever block's tokens."""
    maps = {norm: small('dinov2-small', out_indices=(0, 1), final_norm=norm)
            for norm in (True, 'every')}
    assert maps[True].norm is None  # nothing of block 2 is run
    plain = small('dinov2-small', out_indices=(0, 1, 2), final_norm=False)
    every = small('dinov2-small', out_indices=(0, 1, 2), final_norm='every')
    missing = every.load_state_dict(plain.state_dict(), strict=False).missing_keys
    assert missing == ['norm.weight', 'norm.bias']
    x = torch.randn(2, 3, *hw, dtype=torch.float64)
    for normed, raw in zip(every(x), plain(x), strict=True):
        torch.testing.assert_close(normed, every.norm(raw.movedim(1, -1)).movedim(-1, 1))
    maps['every'].load_state_dict(every.state_dict())
    for part, whole in zip(maps['every'](x), every(x), strict=False):
        torch.testing.assert_close(part, whole)


@pytest.mark.parametrize('pool', ['gap', None])
def test_a_class_token_stays_where_it_is_not_returned(pool):
    """DINOv2's is a part of the model whatever is returned; what is pooled are the patches."""
    whole = small('dinov2-small-reg', out_indices=(2,))
    model = small('dinov2-small-reg', pool=pool)
    assert model.num_prefix_tokens == 5 and model.load_state_dict(whole.state_dict())
    x = torch.randn(2, 3, 56, 42, dtype=torch.float64)
    expected, = whole(x)
    torch.testing.assert_close(model(x)[0], expected if pool is None else expected.mean((2, 3)))
    assert small('dinov2-small-reg', pool=pool, class_token=False).num_prefix_tokens == 4


def attention_of(kind, qkv_bias, **options):
    torch.manual_seed(0)
    return kind(24, 3, qkv_bias=qkv_bias, rel_pos_encoding=IRPE, **options).double()


@pytest.mark.parametrize('kind', [MultiheadAttention, ConvProjectionAttention])
@pytest.mark.parametrize('separate', [False, True], ids=['one input', 'x_qk'])
def test_no_bias_of_keys(kind, separate):
    """As a bias whose part for the keys is zero, gradients included."""
    qv, full = randomize(attention_of(kind, 'qv')), attention_of(kind, True)
    state = qv.state_dict()
    q_bias, v_bias = state.pop('qkv.q_bias'), state.pop('qkv.v_bias')
    full.load_state_dict({**state, 'qkv.bias': torch.cat((q_bias, 0 * q_bias, v_bias))})
    x, x_qk = torch.randn(2, 2, 12, 24, dtype=torch.float64)
    outs = [each(x, (3, 4), x_qk=x_qk if separate else None) for each in (qv, full)]
    torch.testing.assert_close(*outs)
    for out in outs:
        out.square().sum().backward()
    torch.testing.assert_close(torch.cat((qv.qkv.q_bias.grad, qv.qkv.v_bias.grad)),
                               full.qkv.bias.grad[[*range(24), *range(48, 72)]])
    torch.testing.assert_close(qv.qkv.weight.grad, full.qkv.weight.grad)


def test_norms_inside_and_gates_are_evas():
    """The block of timm's Eva with every switch on, values and gradients."""
    eva = pytest.importorskip('timm.models.eva')
    theirs = randomize(eva.EvaBlock(
        24, 3, mlp_ratio=1.5, swiglu_mlp=True, scale_mlp=True, scale_attn_inner=True,
        init_values=0.1, norm_layer=lambda dims, **_: torch.nn.LayerNorm(dims, eps=1e-6)))
    own = ViTBlock(24, 3, 36, act='swiglu', attn_norm=True, mlp_norm=True, qkv_bias='qv',
                   layer_scale_init_value=0.1).double()

    def renamed(state):
        state = {key.replace('gamma_1', 'ls1.gamma').replace('gamma_2', 'ls2.gamma')
                 .replace('q_bias', 'qkv.q_bias').replace('v_bias', 'qkv.v_bias'): value
                 for key, value in state.items()}
        for kind in ('weight', 'bias'):
            parts = [state.pop(f'mlp.fc1_{part}.{kind}') for part in 'gx']
            state[f'mlp.fc1.{kind}'] = torch.cat(parts)
        return state

    own.load_state_dict(renamed(theirs.state_dict()))
    x = torch.randn(2, 12, 24, dtype=torch.float64)
    outs = own(x, (3, 4)), theirs(x)
    torch.testing.assert_close(*outs)
    for out in outs:
        out.square().sum().backward()
    grads = renamed({name: p.grad for name, p in theirs.named_parameters()})
    for name, parameter in own.named_parameters():
        torch.testing.assert_close(parameter.grad, grads[name], msg=name)


@pytest.mark.parametrize('act, norm_eps', [('gelu_tanh', None), ('swiglu', 1e-6)])
def test_dropout_of_an_mlp_is_behind_its_activation_and_its_end(act, norm_eps):
    part = randomize(MLP(6, 8, drop=0.5, act=act, norm_eps=norm_eps)).train()
    x = torch.randn(3, 5, 6, dtype=torch.float64)
    torch.manual_seed(1)
    out = part(x)
    torch.manual_seed(1)
    hidden = part.fc1(x)
    hidden = (F.gelu(hidden, approximate='tanh') if act == 'gelu_tanh' else
              F.silu(hidden[..., :8]) * hidden[..., 8:])
    hidden = F.dropout(hidden, 0.5)
    hidden = hidden if norm_eps is None else F.layer_norm(hidden, (8,), part.norm.weight,
                                                          part.norm.bias, norm_eps)
    torch.testing.assert_close(out, F.dropout(part.fc2(hidden), 0.5))


PADDED = {**{arch: arch for arch in ('dinov2-small', 'dinov2-giant-reg', 'deit3-small',
                                     'siglip-so400m', 'clip-large')}, 'options': None}


@pytest.mark.parametrize('name', PADDED)
@pytest.mark.parametrize('sizes', [[(37, 51), (50, 30)], [(56, 70), (14, 1)], [(56, 56), (61, 90)]],
                         ids=str)
def test_an_odd_size_in_a_batch_is_that_image_alone(name, sizes):
    """Patches of 14 that no size is a multiple of; what is padding is junk."""
    options = EVA if name == 'options' else dict(SIZES, patch_size=14, img_size=56)
    model = randomize(ViT(PADDED[name], **options, mask_padding=True, out_indices=(0, 2),
                          final_norm='every'))
    batch = torch.full((len(sizes), 3, 63, 92), 7.0, dtype=torch.float64)
    for image, (h, w) in enumerate(sizes):
        batch[image, :, :h, :w] = torch.randn(3, h, w, dtype=torch.float64)
    outs = model(batch, sizes)
    for image, (h, w) in enumerate(sizes):
        rows, cols = -(-h // 14), -(-w // 14)
        for own, padded in zip(model(batch[image:image + 1, :, :h, :w].clone(), [(h, w)]), outs,
                               strict=True):
            assert own.shape[-2:] == (rows, cols)
            torch.testing.assert_close(padded[image, :, :rows, :cols], own[0])
            assert not padded[image, :, rows:].any() and not padded[image, :, :, cols:].any()


@pytest.mark.parametrize('sharing', ['layer', 'all'])
def test_a_full_freeze_leaves_nothing_to_train(sharing):
    options = dict(EVA, out_indices=(0, 1), final_norm='every', rel_pos_sharing=sharing,
                   pos_encoding=[dict(type='mmposenc.LearnedPositionEmbedding'),
                                 dict(type='mmposenc.PEG')])
    model = ViT(**options, frozen_stages=3).train()
    assert not any(p.requires_grad for p in model.parameters())
    assert not any(module.training for module in model.children() if module is not model.blocks
                   and module is not model.pos_encodings)
    assert not model(torch.randn(1, 3, 28, 28))[0].requires_grad
    # One block less: the last that is run, what it shares and the norm are trained.
    trained = {name.split('.')[0] for name, p in ViT(**options, frozen_stages=1).named_parameters()
               if p.requires_grad}
    assert trained == {'blocks', 'norm'} | ({'rel_pos_encoding'} if sharing == 'all' else set())


@pytest.mark.parametrize('options, message', [
    (dict(arch='dinov2'), "arch='dinov2' must be one of 'tiny', .*'dinov2-small-reg'"),
    (dict(mlp='glu'), "mlp='glu' must be one of"), (dict(act='silu'), "act='silu' must be one of"),
    (dict(act='swiglu'), "act='swiglu' must be one of"),
    (dict(act='quick_gelu', mlp='swiglu'), "act='quick_gelu' with mlp='swiglu'"),
    (dict(mlp_hidden_dims=0), 'mlp_hidden_dims=0 must be at least 1, or None'),
    (dict(class_token=False), "class_token=False with pool='cls'"),
    (dict(register_tokens=-1), 'register_tokens=-1 must be at least 0'),
    (dict(final_norm='all'), "final_norm='all' must be True, False, 'every' or 'pooled'"),
    (dict(qkv_bias='q'), "qkv_bias='q' must be True, False or 'qv'")])
def test_bad_options_are_named(options, message):
    with torch.device('meta'), pytest.raises(ValueError, match=message):
        ViT(**dict(dict(arch='tiny'), **options))
