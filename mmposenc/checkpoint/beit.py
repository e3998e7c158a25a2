"""Weights of BEiT and BEiT v2 under the names of their release, which are timm's, and of Hugging
Face and mmpretrain; and of timm's ViTs with relative positions (vit_relpos, vit_srelpos), for
:class:`mmposenc.backbones.ViT` in an ImageClassifier."""
from __future__ import annotations

from collections.abc import Iterable

import torch

from .rules import Pair, Rule, Source, State, joined, same, to_ours
from .vit import HEAD, MM, QV_BIASES, SCALES, TABLE, TRUNK
from .vit_names import HF, hf_layer

_BIAS = 'rel_pos_encoding.relative_position_bias_table'
_PREFIX = 'rel_pos_encoding.prefix_bias'


def _with_class_token(theirs: str, module: str) -> Pair:
    """A table there whose last three rows are those of the class token: to cells, from cells and to
    itself."""
    return Pair(theirs, (f'{module}{_BIAS}', f'{module}{_PREFIX}'),
                lambda table: (table[:-3], table[-3:].t().contiguous()),
                lambda table, prefix: torch.cat((table, prefix.t())))


_COMMON = (*TRUNK, *same('blocks.{n}.mlp.fc1.{p}'), *HEAD)
BEIT = (
    *_COMMON, Pair('pos_embed', TABLE), *same('blocks.{n}.attn.qkv.weight'), *QV_BIASES, SCALES,
    _with_class_token('blocks.{n}.attn.relative_position_bias_table', 'backbone.blocks.{n}.attn.'),
    _with_class_token('rel_pos_bias.relative_position_bias_table', 'backbone.'),
)
_DROPPED = (
    Rule(r'(?:.*\.)?relative_position_index', None,
         'offsets of the pairs on the grid, computed from its size'),
    Rule(r'(decode_head|auxiliary_head|fpn\d)\..*', None,
         'of a segmentor, whose parts after the backbone are others here'),
    Rule(r'(?:embeddings\.)?mask_token', None, 'stands for masked patches, only in pretraining'),
    Rule(r'lm_head\..*', None, 'the head of pretraining, which names visual words'),
    Rule(r'cls_pt_.*', None, 'layers of only pretraining (BEiT v2, Sec. 2.4)'),
)
_LAYER = 'encoder.layer.{n}'
_ATTENTION = f'{_LAYER}.attention.attention'
_HF = (
    *HF, *hf_layer(_LAYER),
    joined(tuple(f'{_ATTENTION}.{part}.weight' for part in ('query', 'key', 'value')),
           'blocks.{n}.attn.qkv.weight'),
    *(Pair(f'{_ATTENTION}.{theirs}', f'blocks.{{n}}.attn.{ours}') for theirs, ours in (
        ('query.bias', 'q_bias'), ('value.bias', 'v_bias'),
        ('relative_position_bias.relative_position_bias_table', 'relative_position_bias_table'))),
    Pair(f'{_LAYER}.attention.output.dense.{{p}}', 'blocks.{n}.attn.proj.{p}'),
    Pair(f'{_LAYER}.lambda_{{m}}', 'blocks.{n}.gamma_{m}'),
    Pair('encoder.relative_position_bias.relative_position_bias_table',
         'rel_pos_bias.relative_position_bias_table'),
    Pair('pooler.layernorm.{p}', 'fc_norm.{p}'),
)


def relpos_pairs(names: Iterable[str]) -> tuple[Pair, ...]:
    """The names of timm's VisionTransformerRelPos, and ours.

    Args:
        names: of a state dict of either side, which show whether a table has rows of a class token.
    """
    class_token = any(name.endswith('cls_token') for name in names)
    pairs = [*_COMMON, *same('blocks.{n}.attn.qkv.{p}', 'blocks.{n}.ls1.gamma',
                             'blocks.{n}.ls2.gamma')]
    for theirs, module in (('blocks.{n}.attn.rel_pos.', 'backbone.blocks.{n}.attn.'),
                           ('shared_rel_pos.', 'backbone.')):
        table = f'{theirs}relative_position_bias_table'
        pairs += [Pair(f'{theirs}mlp.fc1.{{p}}', f'{module}rel_pos_encoding.cpb_mlp.0.{{p}}'),
                  Pair(f'{theirs}mlp.fc2.{{p}}', f'{module}rel_pos_encoding.cpb_mlp.2.{{p}}'),
                  _with_class_token(table, module) if class_token else
                  Pair(table, f'{module}{_BIAS}')]
    return tuple(pairs)


def _relpos_rules(state: State) -> tuple[Rule, ...]:
    if not any('.ls1.' in name for name in state):
        raise ValueError("source='relpos' with no blocks.0.ls1.gamma: a vit_relpos with its norms "
                         'after attention and MLP (rpn), for which there is no model here')
    return to_ours(relpos_pairs(state))


#: The releases of BEiT and BEiT v2, and timm's. Tables keep their sizes; loading resizes them.
_TIMM = Source('beit', (*to_ours(BEIT), *_DROPPED))
SOURCES = (
    _TIMM,
    # Also Data2VecVision, with or without a head.
    Source('huggingface-beit', (*to_ours(_HF), *_DROPPED), [(r'^(beit|data2vec_vision)\.', '')],
           then=_TIMM),
    # BEiTViT, and mmseg's BEiT.
    Source('mmpretrain-beit', (*to_ours(MM), *_DROPPED), [(r'^backbone\.', '')], then=_TIMM),
    # VisionTransformerRelPos, of networks or of tables, shared by blocks or not.
    Source('relpos', _relpos_rules),
)
