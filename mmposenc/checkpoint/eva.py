"""Weights of timm's Eva, the class of DINOv3, EVA-02 and RoPE-ViT there, for
:class:`mmposenc.backbones.ViT` in an ImageClassifier."""
from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .rules import Converted, Pair, Rule, apply_rules, joined, same, to_ours
from .vit import TABLE
from .vit_options import is_gated

_SCALE, _Q_BIAS = 'backbone.blocks.0.ls1.gamma', 'backbone.blocks.0.attn.qkv.q_bias'
#: A name that weights of these models have here: factors of branches, or no bias of the keys.
MARK = f'{re.escape(_SCALE)}|{re.escape(_Q_BIAS)}'
_FREQS = 'backbone.blocks.{}.attn.rel_pos_encoding.freqs'

_PAIRS = (
    Pair('patch_embed.proj.{p}', 'backbone.patch_embed.projection.{p}'),
    Pair('pos_embed', TABLE),
    Pair('reg_token', 'backbone.register_tokens'),
    *same('cls_token', 'norm_pre.{p}', 'norm.{p}', 'fc_norm.{p}', 'blocks.{n}.norm1.{p}',
          'blocks.{n}.norm2.{p}', 'blocks.{n}.attn.norm.{p}', 'blocks.{n}.attn.proj.{p}',
          'blocks.{n}.mlp.norm.{p}', 'blocks.{n}.mlp.fc2.{p}'),
    Pair('blocks.{n}.gamma_{m}', 'backbone.blocks.{n}.ls{m}.gamma'),
    Pair('head.{p}', 'head.fc.{p}'),
)
_ATTN, _OURS = 'blocks.{n}.attn', 'backbone.blocks.{n}.attn.qkv'
_QKV = (Pair(f'{_ATTN}.qkv.{{p}}', f'{_OURS}.{{p}}'),
        Pair(f'{_ATTN}.q_bias', f'{_OURS}.q_bias'), Pair(f'{_ATTN}.v_bias', f'{_OURS}.v_bias'))
_APART = (joined(tuple(f'{_ATTN}.{part}_proj.weight' for part in 'qkv'), f'{_OURS}.weight'),
          Pair(f'{_ATTN}.q_proj.bias', f'{_OURS}.q_bias'),
          Pair(f'{_ATTN}.v_proj.bias', f'{_OURS}.v_bias'))
_FC1 = Pair('blocks.{n}.mlp.fc1.{p}', 'backbone.blocks.{n}.mlp.fc1.{p}')
_GATES = joined(('blocks.{n}.mlp.fc1_g.{p}', 'blocks.{n}.mlp.fc1_x.{p}'),
                'backbone.blocks.{n}.mlp.fc1.{p}')


def eva_pairs(state: Mapping[str, Tensor]) -> tuple[Pair, ...]:
    """The names of timm's Eva, and ours.

    Args:
        state: weights under the names of either side, which tell which of timm's forms is meant:
            queries, keys and values apart (EVA-02 with a norm in its MLP), gates apart (the same,
            and DINOv3), one tensor for the mixed frequencies of all blocks.
    """
    has_norm = 'backbone.blocks.0.mlp.norm.weight' in state
    apart = has_norm or 'blocks.0.attn.q_proj.weight' in state
    gates = 'blocks.0.mlp.fc1_g.weight' in state or (
        is_gated(state) and (has_norm or TABLE not in state))
    depth = sum(name.endswith('.attn.rel_pos_encoding.freqs') for name in state)
    depth = state['rope.freqs'].shape[1] if 'rope.freqs' in state else depth
    freqs = (Pair('rope.freqs', tuple(_FREQS.format(block) for block in range(depth)),
                  lambda whole: whole.unbind(1), lambda *parts: torch.stack(parts, 1)),)
    return (*_PAIRS, *(_APART if apart else _QKV), _GATES if gates else _FC1,
            *(freqs if depth else ()))


_LEFT_OUT = (
    Rule(r'attn_pool\..*', None, 'a head that pools by attention, which maps do not go through'),
)


def convert_timm_eva(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert the names of timm's Eva: its DINOv3, EVA-02 and RoPE-ViT."""
    return apply_rules(state_dict, (*to_ours(eva_pairs(state_dict)), *_LEFT_OUT), 'eva')
