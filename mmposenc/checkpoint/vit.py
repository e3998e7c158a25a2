"""Weights of timm's VisionTransformer, whose names DeiT's release has too, of timm's NaFlexViT and
of iRPE's DeiT, for :class:`mmposenc.backbones.ViT` in an ImageClassifier."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isqrt

import torch
from torch import Tensor

from .rules import (
    Family,
    Pair,
    Refusal,
    Rule,
    Source,
    names_text,
    rules_to_ours,
    same_name_pairs,
)

TABLE = 'backbone.pos_encodings.at.before.0.pos_embed'
#: The table of rows of factorized positions; TABLE is then that of columns.
ROWS = f'{TABLE}_y'

#: Pairs that all ViTs of timm share.
TRUNK = (
    Pair('patch_embed.proj.{p}', 'backbone.patch_embed.projection.{p}'),
    *same_name_pairs('cls_token', 'norm_pre.{p}', 'norm.{p}', 'fc_norm.{p}',
                     'blocks.{n}.norm1.{p}', 'blocks.{n}.norm2.{p}', 'blocks.{n}.attn.proj.{p}',
                     'blocks.{n}.mlp.fc2.{p}'),
)
TOKENS = (Pair('pos_embed', TABLE), Pair('reg_token', 'backbone.register_tokens'))
#: Factors of branches by the names that DeiT III, BEiT and EVA have for them, and biases of queries
#: and values.
SCALES = Pair('blocks.{n}.gamma_{m}', 'backbone.blocks.{n}.ls{m}.gamma')
QV_BIASES = tuple(Pair(f'blocks.{{n}}.attn.{part}_bias',
                       f'backbone.blocks.{{n}}.attn.qkv.{part}_bias') for part in 'qv')
#: Pairs of norms of queries and keys.
QK_NORMS = same_name_pairs('blocks.{n}.attn.q_norm.{p}', 'blocks.{n}.attn.k_norm.{p}')
_BLOCKS = same_name_pairs('blocks.{n}.attn.qkv.{p}', 'blocks.{n}.mlp.fc1.{p}',
                          'blocks.{n}.ls1.gamma', 'blocks.{n}.ls2.gamma')
HEAD = (Pair('head.{p}', 'head.fc.{p}'),)
#: Pairs of the heads: those of mmpretrain's DeiTClsHead, where there is a distillation head.
_HEADS = (Pair('head.{p}', 'head.layers.head.{p}'),
          Pair('head_dist.{p}', 'head.layers.head_dist.{p}'))


def vit_pairs(names: Iterable[str]) -> tuple[Pair, ...]:
    """The names of timm's VisionTransformer, and ours.

    Args:
        names: the names of a state dict of either side, which show whether the model is distilled.
    """
    distilled = any(name.endswith('head_dist.weight') for name in names)
    return (*TRUNK, *TOKENS, *same_name_pairs('dist_token'), *_BLOCKS,
            *(_HEADS if distilled else HEAD))


def as_row_of_cells(table: Tensor) -> Tensor:
    """View a table (1, H, W, C) as (1, H * W, C). ViTDet's has this form, and one more row of a
    class token that only its pretraining used."""
    if table.dim() == 4:
        return table.flatten(1, 2)
    side = round((table.shape[1] - 1) ** 0.5)
    return table[:, 1:] if side * side == table.shape[1] - 1 else table


def as_map(table: Tensor) -> Tensor:
    """View a square table (1, H * W, C) as (1, H, W, C), the reverse of :func:`as_row_of_cells`."""
    side = round(table.shape[1] ** 0.5)
    if side * side != table.shape[1]:
        raise ValueError(f'has {table.shape[1]} cells; a square number is required, as the shape '
                         'of the grid is not part of the weights')
    return table.unflatten(1, (side, side))


def as_convolution_kernel(weight: Tensor) -> Tensor:
    """View the weights of a linear layer on patches, (C, rows * columns * 3), as those of a
    convolution, which timm's other models have."""
    if weight.dim() == 4:
        return weight
    side = isqrt(weight.shape[1] // 3)
    if 3 * side * side != weight.shape[1]:
        raise ValueError(f'has shape {tuple(weight.shape)}; square patches of three channels are '
                         'required')
    return weight.unflatten(1, (side, side, 3)).permute(0, 3, 1, 2)


#: Pairs of timm's NaFlexViT.
_NAFLEX = (
    Pair('embeds.proj.weight', 'backbone.patch_embed.projection.weight', as_convolution_kernel,
         lambda weight: weight.permute(0, 2, 3, 1).flatten(1)),
    Pair('embeds.proj.bias', 'backbone.patch_embed.projection.bias'),
    Pair('embeds.pos_embed', TABLE, as_row_of_cells, as_map),
    Pair('embeds.pos_embed_y', ROWS), Pair('embeds.pos_embed_x', f'{TABLE}_x'),
    Pair('embeds.cls_token', 'backbone.cls_token'),
    Pair('embeds.reg_token', 'backbone.register_tokens'), *TRUNK, *_BLOCKS, *HEAD,
)


#: Heads that this project lacks.
POOL = Rule(r'attn_pool\..*', None, 'a head that pools by attention, which maps do not go through')
_OF_MAE = (Rule(r'mask_token|decoder_.*', None, 'of pretraining with masked patches'),)

#: Names of the tables of iRPE's ``RPEAttention``, and ours.
IRPE_TABLES = (('rpe_{s}.lookup_table_{p}', 'rel_pos_encoding.table_{s}'),
               ('rpe_{s}.rp_{a}.lookup_table_{p}', 'rel_pos_encoding.table_{s}_{a}'))
_IRPE = tuple(Pair(f'blocks.{{n}}.attn.{theirs}', f'backbone.blocks.{{n}}.attn.{ours}')
              for theirs, ours in IRPE_TABLES)


def _without_row_of_class_token(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """In models with registers, add the table's row of the class token to that token, because in
    timm's models with registers no prefix token has a row. Names are timm's."""
    token, table = state.get('cls_token'), state.get('pos_embed')
    if ('reg_token' not in state or token is None or table is None
            or round((table.shape[1] - 1) ** 0.5) ** 2 != table.shape[1] - 1):
        return dict(state)
    return {**state, 'cls_token': token + table[:, :1], 'pos_embed': table[:, 1:]}


def _frequencies_of_registers(match: re.Match[str], frequencies: Tensor,
                              state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Check that registers turn as in the published files of ViT-5."""
    expected = 100 ** -(torch.arange(len(frequencies), dtype=torch.float64) / len(frequencies))
    if not torch.allclose(frequencies.double(), expected, rtol=1e-2):
        raise ValueError(f'{match[0]} holds {names_text([f"{each:.3g}" for each in frequencies])}; '
                         'powers of 100 are required, as in the published files of ViT-5')
    return {}


_OF_VIT5 = (Rule(r'blocks\.\d+\.attn\.rope\.freqs', None, 'computed from theta',
                 lambda match, frequencies, state: {'periods': 1 / frequencies}),
            Rule(r'blocks\.\d+\.attn\.rope_reg\.freqs', None, 'computed from register_theta',
                 _frequencies_of_registers))


def _vit_rules(state: Mapping[str, Tensor]) -> tuple[Rule, ...]:
    """Rules for DeiT III, which has factors by other names, and for MAE and ViT-5 too."""
    scales = (SCALES,) if 'pos_embed' in state else ()
    return (*rules_to_ours((*vit_pairs(state), *scales, *QK_NORMS)), POOL,
            *(_OF_MAE if 'decoder_embed.weight' in state else ()),
            *(_OF_VIT5 if 'blocks.0.attn.rope_reg.freqs' in state else ()))


#: Rotary positions and the order of norms leave no trace in a file: its weights would fit a model
#: that computes other features.
VIT = Source(
    'deit', _vit_rules,
    timm=Family(vit_pairs, re.escape(TABLE), _without_row_of_class_token),
    files="DeiT, also distilled, DeiT III, MAE, DINO, ViT-5, and timm's VisionTransformer",
    refuses=(
        Refusal(r'blocks\.0\.norm1\.weight', r'pos_embed',
                'a ViT without a table of positions, as those with rotary positions are'),
        Refusal(r'fc_norm\.weight', r'cls_token|reg_token|blocks\.0\.(ls1\.gamma|gamma_1|'
                r'attn\.(qkv\.bias|q_bias))', 'a ViT with its norms behind attention and MLP '
                '(vit_base_patch16_rpn)')))
SOURCES = (
    VIT,
    Source('irpe-deit', lambda state: rules_to_ours((*vit_pairs(state), *_IRPE)),
           files='the release of iRPE-DeiT'),
    Source('naflex', (*rules_to_ours(_NAFLEX), POOL),
           timm=Family(_NAFLEX, f'{re.escape(TABLE)}(_y)?'),
           files="timm's NaFlexViT, of SigLIP 2 and C-RADIO too", refuses=(Refusal(
               r'embeds\.proj\.weight', r'embeds\.pos_embed.*', 'a NaFlexViT without a table of '
               'positions, as those with rotary positions are'),)),
)
