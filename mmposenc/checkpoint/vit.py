"""Weights of timm's VisionTransformer, whose names DeiT's release has too, of iRPE's DeiT, and of
mmpretrain's VisionTransformer, for :class:`mmposenc.backbones.ViT` in an ImageClassifier."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

from .irpe import TABLES
from .rules import Pair, Rule, Source, same, to_ours

TABLE = 'backbone.pos_encodings.at.before.0.pos_embed'

_PAIRS = (
    Pair('patch_embed.proj.{p}', 'backbone.patch_embed.projection.{p}'),
    Pair('pos_embed', TABLE),
    Pair('reg_token', 'backbone.register_tokens'),
    *same('cls_token', 'dist_token', 'norm_pre.{p}', 'norm.{p}',
          'fc_norm.{p}',
          'blocks.{n}.norm1.{p}', 'blocks.{n}.attn.qkv.{p}', 'blocks.{n}.attn.proj.{p}',
          'blocks.{n}.ls1.gamma', 'blocks.{n}.norm2.{p}', 'blocks.{n}.mlp.fc1.{p}',
          'blocks.{n}.mlp.fc2.{p}', 'blocks.{n}.ls2.gamma'),
)
_HEAD = (Pair('head.{p}', 'head.fc.{p}'),)
#: mmpretrain's DeiTClsHead, where there is a distillation head.
_HEADS = (Pair('head.{p}', 'head.layers.head.{p}'),
          Pair('head_dist.{p}', 'head.layers.head_dist.{p}'))


def vit_pairs(names: Iterable[str]) -> tuple[Pair, ...]:
    """The names of timm's VisionTransformer, and ours.

    Args:
        names: of a state dict of either side, which show whether the model is distilled.
    """
    distilled = any(name.endswith('head_dist.weight') for name in names)
    return _PAIRS + (_HEADS if distilled else _HEAD)


# DeiT III's name of the layer scale.
_GAMMA = Rule(r'blocks\.(\d+)\.gamma_([12])', r'backbone.blocks.\1.ls\2.gamma')
_LEFT_OUT = (
    Rule(r'mask_token|decoder_.*', None, 'of pretraining with masked patches'),
    Rule(r'attn_pool\..*', None, 'a head that pools by attention, which maps do not go through'),
)

_IRPE = tuple(Pair(f'blocks.{{n}}.attn.{theirs}', f'backbone.blocks.{{n}}.attn.{ours}')
              for theirs, ours in TABLES)


def _mmpretrain_head(match: re.Match[str], tensor: Tensor, state: Mapping[str, Tensor]
                     ) -> dict[str, Tensor]:
    """Of VisionTransformerClsHead, LinearClsHead or, where there are two, DeiTClsHead."""
    if any(name.endswith('head_dist.weight') for name in state):
        return {f'head.layers.{match.group(1)}.{match.group(2)}': tensor}
    return {f'head.fc.{match.group(2)}': tensor}


_MMPRETRAIN = (
    Rule(r'patch_embed\.projection\.(weight|bias)', r'backbone.patch_embed.projection.\1'),
    Rule(r'(cls_token|dist_token)', r'backbone.\1'),
    Rule(r'pos_embed', TABLE),
    Rule(r'layers\.(\d+)\.ln([12])\.(weight|bias)', r'backbone.blocks.\1.norm\2.\3'),
    Rule(r'layers\.(\d+)\.attn\.(qkv|proj)\.(weight|bias)', r'backbone.blocks.\1.attn.\2.\3'),
    Rule(r'layers\.(\d+)\.attn\.gamma1\.(?:weight|scale)', r'backbone.blocks.\1.ls1.gamma'),
    Rule(r'layers\.(\d+)\.ffn\.gamma2\.(?:weight|scale)', r'backbone.blocks.\1.ls2.gamma'),
    Rule(r'layers\.(\d+)\.ffn\.layers\.0\.0\.(weight|bias)', r'backbone.blocks.\1.mlp.fc1.\2'),
    Rule(r'layers\.(\d+)\.ffn\.layers\.1\.(weight|bias)', r'backbone.blocks.\1.mlp.fc2.\2'),
    Rule(r'ln1\.(weight|bias)', r'backbone.norm.\1'),
    Rule(r'head\.(?:layers\.)?(head|head_dist|fc)\.(weight|bias)', _mmpretrain_head),
)


def without_row(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """In timm's names, and where there are registers: the table's row of the class token added to
    the token. In timm's models with registers no token in front of the patches has a row."""
    token, table = state.get('cls_token'), state.get('pos_embed')
    if 'reg_token' not in state or token is None or table is None:
        return dict(state)
    if round((table.shape[1] - 1) ** 0.5) ** 2 != table.shape[1] - 1:
        return dict(state)
    return {**state, 'cls_token': token + table[:, :1], 'pos_embed': table[:, 1:]}


#: DeiT, distilled or not, DeiT III, MAE and timm's VisionTransformer.
VIT = Source('deit', lambda state: (*to_ours(vit_pairs(state)), _GAMMA, *_LEFT_OUT))
SOURCES = (
    VIT,
    Source('irpe-deit', lambda state: to_ours((*vit_pairs(state), *_IRPE))),
    # VisionTransformer and DistilledVisionTransformer, alone or as the backbone of a classifier.
    Source('mmpretrain-vit', _MMPRETRAIN, [(r'^backbone\.', '')]),
)
