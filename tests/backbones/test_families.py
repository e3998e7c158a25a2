"""What is one family's own: ViT's archs and options, PVT's small images, Swin's windows; and
multiply-accumulates against sums written out. (Those of papers: tests/configs/test_papers.py.)"""
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from helpers.golden_backbones import PVTS
from helpers.tiny_backbones import BUILD, randomize

from mmposenc.backbones import PVT, DeiT, Swin, ViT, count_macs, load_pretrained
from mmposenc.backbones.archs import arguments
from mmposenc.backbones.archs import vit as vit_archs
from mmposenc.backbones.archs.vit import ARCHS
from mmposenc.backbones.layers import MLP, DropPath, init_transformer_weights
from mmposenc.encodings import RotaryEmbedding

SIZES = dict(embed_dims=24, num_layers=3, num_heads=3, mlp_hidden_dims=20)
DEIT = dict(embed_dims=24, num_layers=3, num_heads=3, mlp_ratio=2, patch_size=8, img_size=32)
arch_options = partial(arguments.arch_options, ARCHS, vit_archs.SIZES)


def test_an_arch_is_a_dict_of_arguments_which_given_ones_override():
    assert DeiT is ViT
    model = ViT('dinov2-small-reg', **SIZES, register_tokens=1, layer_scale_init_value=None,
                pos_encoding=None)
    assert model.register_tokens.shape == (1, 1, 24) and model.patch_size == 14
    assert not any('ls1' in name or 'pos_embed' in name for name in model.state_dict())
    options = arch_options('dinov2-giant', dict(num_heads=None, num_layers=2))
    assert (options['num_heads'], options['num_layers'], options['mlp']) == (24, 2, 'swiglu')
    options['pos_encoding']['type'] = 'PEG'  # a copy
    assert arch_options('dinov2-giant', {})['pos_encoding']['type'] != 'PEG'


def test_an_encoding_without_a_type_changes_the_archs(said):
    own = ARCHS['dinov3-small']['rel_pos_encoding']
    part = arch_options('dinov3-small', dict(rel_pos_encoding=dict(rescale=None)))
    assert part['rel_pos_encoding'] == {**own, 'rescale': None} and own['rescale'] == 2.0
    table = arch_options('eva02-base', dict(pos_encoding=dict(interpolation='bilinear')))
    assert table['pos_encoding'] == dict(ARCHS['eva02-base']['pos_encoding'],
                                         interpolation='bilinear')
    assert not said
    # One with a type replaces it, which is said where it is the same with other settings.
    for kind in ('mmposenc.RotaryEmbedding', 'RotaryEmbedding', RotaryEmbedding):
        typed = dict(type=kind, round_periods=True)
        assert arch_options('dinov3-small', dict(rel_pos_encoding=typed))[
            'rel_pos_encoding'] == typed
        assert "leaves out {'axes': 'yx', 'planes': 'halves'" in said.pop()[1]
    for other in (dict(type='mmposenc.IRPE'), None, dict(own)):
        assert arch_options('dinov3-small', dict(rel_pos_encoding=other))[
            'rel_pos_encoding'] == other
    assert not said


@pytest.mark.parametrize('act, norm_eps', [('gelu_tanh', None), ('swiglu', 1e-6)])
def test_dropout_of_an_mlp_is_behind_its_activation_and_its_end(act, norm_eps):
    part = randomize(MLP(6, 8, drop=0.5, act=act, norm_eps=norm_eps)).double().train()
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


@pytest.mark.parametrize('encoding', ['PEG', 'LearnedPositionEmbedding', 'SinCosPositionEncoding'])
@pytest.mark.parametrize('pool', ['cls', None])
def test_query_key_encoding_reaches_queries_and_keys_only(encoding, pool):
    """Against the steps of the block. (Attention to other tokens: attention/test_modules.py.)"""
    prefix = int(pool == 'cls')
    model = randomize(DeiT(**{**DEIT, 'num_layers': 1}, pool=pool, final_norm=False,
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
    out = tokens + block.attn(block.norm1(tokens), hw, x_qk=block.norm1(encoded))
    out = (out + block.mlp(block.norm2(out)))[:, prefix:]
    torch.testing.assert_close(model(x)[0], out.view(1, 3, 2, 24).permute(0, 3, 1, 2))


def test_drop_path_drops_images_and_keeps_the_mean():
    out = DropPath(0.25)(torch.ones(4000, 2, 3))
    assert set(out.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert out.mean().item() == pytest.approx(1, abs=0.03)
    assert (out == out[:, :1, :1]).all()
    x = torch.ones(3, 2)
    assert DropPath(0.25).eval()(x) is x
    with pytest.raises(ValueError, match=r'drop_prob=1.0 must be in \[0, 1\)'):
        DropPath(1.0)


def test_epsilons_of_norms_after_reductions_are_those_of_patch_embeddings():
    for options, eps in ((dict(), 0.2), (dict(sr_norm_eps=0.3), 0.3)):
        model = BUILD['pvt'](norm_eps=0.1, embed_norm_eps=0.2, **options)
        assert {stage.blocks[0].attn.norm.eps for stage in model.stages} == {eps}


def test_small_images_are_named():
    model = PVT(**PVTS)
    with pytest.raises(ValueError, match='an image of 3x64 is smaller than the patch of 4x4'):
        model(torch.zeros(1, 3, 3, 64))
    with pytest.raises(ValueError, match='smaller than one'):
        model(torch.zeros(1, 3, 8, 64))  # reaches a reduction that its grid cannot fill


def test_a_class_token_with_one_window_sees_what_it_sees_on_the_whole_map():
    """In Twins-SVT too, where blocks of the last stage attend in windows in turn."""
    sizes = dict(embed_dims=(8, 12), num_layers=(1, 2), num_heads=(1, 3), mlp_ratios=(2, 2),
                 patch_sizes=(4, 2), sr_ratios=(1, 1), out_indices=(1,), pool='cls')
    windows = randomize(PVT(**sizes, window_sizes=(12, 6))).double().eval()
    whole = PVT(**sizes).double().eval()
    state = windows.state_dict()
    for name in [name for name in state if '.attn.qkv.' in name]:
        q, k, v = state.pop(name).chunk(3)
        state |= {name.replace('qkv', 'q'): q, name.replace('qkv', 'kv'): torch.cat((k, v))}
    whole.load_state_dict(state)
    images = torch.randn(2, 3, 48, 40, dtype=torch.float64)
    torch.testing.assert_close(windows(images), whole(images))


V1 = dict(embed_dims=12, num_layers=(2, 2), num_heads=(2, 3), mlp_ratio=2, window_size=4,
          drop_path_rate=0.)
V2 = dict(V1, cosine=True, post_norm=True, qkv_bias='qv',
          rel_pos_encoding=dict(type='mmposenc.LogSpacedCPB'))
TABLE = dict(type='mmposenc.RelativePositionBias')
IRPE = dict(type='mmposenc.IRPE', rpe_on='qkv')


@pytest.mark.parametrize('options', [
    dict(V1, rel_pos_encoding=None), dict(V2, pretrained_window_size=3)],
    ids=['no bias', 'log_cpb'])
def test_a_window_wider_than_the_map_is_one_of_its_size(options):
    """What fills up a window takes no attention; the unit of V2's biases is the smaller window, as
    its last stages are trained."""
    one = dict(options, num_layers=(2,), num_heads=(2,), pool='gap')
    small = randomize(Swin(**dict(one, window_size=3)), 0.3).eval()
    large = Swin(**dict(one, window_size=5)).eval()
    large.load_state_dict(small.state_dict())
    x = torch.randn(2, 3, 12, 12)
    torch.testing.assert_close(small(x), large(x))


def test_branches_of_v2_start_as_nothing():
    """Norms behind branches start at zero, as in the release."""
    block = Swin(**V2).stages[0].blocks[1].eval()
    x = torch.randn(1, 64, 12)
    assert torch.equal(block(x, (8, 8)), x)
    assert block.attn.w_msa.cosine.logit_scale[0].exp().item() == pytest.approx(10)


@pytest.mark.parametrize('options', [V1, V2, dict(V2, rel_pos_sharing='stage')],
                         ids=['v1', 'v2', 'v2 shared'])
def test_plain_weights_fit_where_an_encoding_is_added_to_the_bias(options):
    plain = randomize(Swin(**options), 0.3).eval()
    own = options.get('rel_pos_encoding', TABLE)
    both = Swin(**{**options, 'rel_pos_encoding': [own, IRPE]}).eval()  # whose tables start at 0
    load_pretrained(both, plain.state_dict())
    x = torch.randn(1, 3, 64, 50)
    torch.testing.assert_close(both(x), plain(x))


def test_weights_of_v2_go_to_any_window():
    state = Swin(**V2).state_dict()
    load_pretrained(Swin(**dict(V2, window_size=((6, 3), (2, 5)), pretrained_window_size=4)), state)


@pytest.mark.parametrize('method', ['product', 'cross'])
def test_every_product_is_counted(method):
    """A DeiT of one block, written out; non-square image, whole patches."""
    dims, hidden, hw = 24, 48, (32, 48)
    cells = 2 * 3
    length = cells + 1
    model = DeiT(embed_dims=dims, num_layers=1, num_heads=3, mlp_ratio=2,
                 pos_encoding=dict(type='LearnedPositionEmbedding'),
                 rel_pos_encoding=dict(type='IRPE', rpe_on='qkv', method=method)).train()
    expected = cells * 3 * 16 * 16 * dims + length * dims * 4 * dims + length * 2 * dims * hidden
    expected += 2 * length * length * dims  # q k^T, and weights v
    expected += 3 * length * dims * 50  # buckets
    assert count_macs(model, hw) == expected
    assert model.training and not any(p.is_meta for p in model.parameters())


def test_layers_begin_as_those_of_deit_and_pvt() -> None:
    torch.manual_seed(0)
    linear, conv = torch.nn.Linear(256, 256), torch.nn.Conv2d(64, 64, 3, groups=2)
    init_transformer_weights(torch.nn.Sequential(linear, conv))
    for layer, std in ((linear, 0.02), (conv, math.sqrt(2 / (9 * 64 / 2)))):
        assert abs(layer.weight.mean()) < 0.05 * std
        assert abs(layer.weight.std() / std - 1) < 0.05
        assert not layer.bias.any()
