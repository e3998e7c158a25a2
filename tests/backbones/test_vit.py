"""What is ViT's own: archs and how they are overridden, each option against what it says."""
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_backbones import randomize

import mmposenc  # noqa: F401  (before mmpretrain)
from mmposenc.backbones import DeiT, ViT
from mmposenc.backbones.archs import arguments
from mmposenc.backbones.archs import vit as vit_archs
from mmposenc.backbones.archs.vit import ARCHS
from mmposenc.backbones.layers import MLP
from mmposenc.encodings import RotaryEmbedding

SIZES = dict(embed_dims=24, num_layers=3, num_heads=3, mlp_hidden_dims=20)
DEIT = dict(embed_dims=24, num_layers=3, num_heads=3, mlp_ratio=2, patch_size=8, img_size=32)
LEARNED = dict(type='mmposenc.LearnedPositionEmbedding')
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


def test_an_encoding_without_a_type_changes_the_archs(monkeypatch):
    said = []
    monkeypatch.setattr(arguments, 'print_log', lambda text, logger, level: said.append(text))
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
        assert "leaves out {'axes': 'yx', 'planes': 'halves'" in said.pop()
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
    """Against the steps of the block. (Attention to other tokens: attention/test_multihead.py.)"""
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
