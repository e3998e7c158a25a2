"""Weights of timm's BEiT and BEiT v2, and of its ViTs with relative positions (vit_relpos,
vit_srelpos), for :class:`mmposenc.backbones.ViT` in an ImageClassifier."""
from __future__ import annotations

from collections.abc import Iterable

import torch

from .rules import (
    Family,
    Pair,
    Refusal,
    Source,
    only_of_timm,
    rules_to_ours,
    same_name_pairs,
)
from .vit import HEAD, QV_BIASES, SCALES, TABLE, TRUNK

_BIAS = 'rel_pos_encoding.relative_position_bias_table'
_PREFIX = 'rel_pos_encoding.prefix_bias'


def _class_token_pair(theirs: str, module: str) -> Pair:
    """Pair a table of the release, whose last three rows belong to the class token (to cells, from
    cells, to itself), with our table of the cells and our separate biases of the prefix token."""
    return Pair(theirs, (f'{module}{_BIAS}', f'{module}{_PREFIX}'),
                lambda table: (table[:-3], table[-3:].t().contiguous()),
                lambda table, prefix: torch.cat((table, prefix.t())))


#: Pairs of tables of offsets, whether each block has one or all blocks share one.
BIASES = (
    _class_token_pair('blocks.{n}.attn.relative_position_bias_table', 'backbone.blocks.{n}.attn.'),
    _class_token_pair('rel_pos_bias.relative_position_bias_table', 'backbone.'),
)
_COMMON = (*TRUNK, *same_name_pairs('blocks.{n}.mlp.fc1.{p}'), *HEAD)
_BEIT = (
    *_COMMON, Pair('pos_embed', TABLE), *same_name_pairs('blocks.{n}.attn.qkv.weight'),
    *QV_BIASES, SCALES, *BIASES,
)


def relpos_vit_pairs(names: Iterable[str]) -> tuple[Pair, ...]:
    """The names of timm's VisionTransformerRelPos, and ours.

    Args:
        names: those of a state dict of either side, which show whether a table has rows of a class
            token.
    """
    class_token = any(name.endswith('cls_token') for name in names)
    pairs = [*_COMMON, *same_name_pairs('blocks.{n}.attn.qkv.{p}', 'blocks.{n}.ls1.gamma',
                                        'blocks.{n}.ls2.gamma')]
    for theirs, module in (('blocks.{n}.attn.rel_pos.', 'backbone.blocks.{n}.attn.'),
                           ('shared_rel_pos.', 'backbone.')):
        table = f'{theirs}relative_position_bias_table'
        pairs += [Pair(f'{theirs}mlp.fc1.{{p}}', f'{module}rel_pos_encoding.cpb_mlp.0.{{p}}'),
                  Pair(f'{theirs}mlp.fc2.{{p}}', f'{module}rel_pos_encoding.cpb_mlp.2.{{p}}'),
                  _class_token_pair(table, module) if class_token else
                  Pair(table, f'{module}{_BIAS}')]
    return tuple(pairs)


SOURCES = (
    Source('beit', rules_to_ours(_BEIT), timm=Family(
        _BEIT, r'backbone\..*rel_pos_encoding\.prefix_bias'),
        files="timm's BEiT and BEiT v2", refuses=(only_of_timm(
            r'(blocks\.\d+\.attn|rel_pos_bias)\.relative_position_index|'
            r'(.*\.)?relative_position_bias\.relative_position_bias_table|'
            r'(.*\.)?encoder\.layer\.\d+\.lambda_1', 'BEiT or Data2Vec from elsewhere than timm',
            'beit_base_patch16_224.in22k_ft_in22k_in1k'),)),
    # Relative positions computed by networks or read from tables, shared by the blocks or not.
    Source('relpos', lambda state: rules_to_ours(relpos_vit_pairs(state)), timm=Family(
        relpos_vit_pairs, r'backbone\..*rel_pos_encoding\..*'),
        files="timm's VisionTransformerRelPos", refuses=(Refusal(
            r'blocks\.0\.norm1\.weight', r'.*\.ls1\..*', 'a vit_relpos with its norms after '
            'attention and MLP (rpn), for which there is no model here'),)),
)
