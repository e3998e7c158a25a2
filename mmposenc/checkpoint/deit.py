"""Weights of DeiT, of iRPE's DeiT and of timm's vision transformers, and of mmpretrain's
VisionTransformer, for :class:`mmposenc.backbones.DeiT` in an ImageClassifier."""
from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from .irpe import rename_attention_parameter
from .rules import Converted, Rule, apply_rules

_TABLE = 'backbone.pos_encodings.at.before.0.pos_embed'


def _head(match: re.Match[str], tensor: Tensor, source: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """mmpretrain's LinearClsHead, or its DeiTClsHead where there is a distillation head."""
    if any(name.endswith('head_dist.weight') for name in source):
        return {f'head.layers.{match.group(1)}.{match.group(2)}': tensor}
    return {f'head.fc.{match.group(2)}': tensor}


_DEIT = (
    Rule(r'patch_embed\.proj\.(weight|bias)', r'backbone.patch_embed.projection.\1'),
    Rule(r'(cls_token|dist_token)', r'backbone.\1'),
    Rule(r'pos_embed', _TABLE),
    Rule(r'blocks\.(\d+)\.((?:norm1|norm2|attn\.(?:qkv|proj)|mlp\.(?:fc1|fc2))\.(?:weight|bias))',
         r'backbone.blocks.\1.\2'),
    # timm's and DeiT III's names of the layer scale.
    Rule(r'blocks\.(\d+)\.ls([12])\.gamma', r'backbone.blocks.\1.ls\2.gamma'),
    Rule(r'blocks\.(\d+)\.gamma_([12])', r'backbone.blocks.\1.ls\2.gamma'),
    Rule(r'norm\.(weight|bias)', r'backbone.norm.\1'),
    Rule(r'(head|head_dist)\.(weight|bias)', _head),
)

_IRPE = Rule(
    r'blocks\.(\d+)\.attn\.(rpe_[qkv]\.(?:rp_(?:rows|cols)\.)?lookup_table_(?:weight|bias))',
    lambda match, tensor, _: {
        f'backbone.blocks.{match.group(1)}.attn.{rename_attention_parameter(match.group(2))}':
            tensor})

_MMPRETRAIN = (
    Rule(r'patch_embed\.projection\.(weight|bias)', r'backbone.patch_embed.projection.\1'),
    Rule(r'(cls_token|dist_token)', r'backbone.\1'),
    Rule(r'pos_embed', _TABLE),
    Rule(r'layers\.(\d+)\.ln([12])\.(weight|bias)', r'backbone.blocks.\1.norm\2.\3'),
    Rule(r'layers\.(\d+)\.attn\.(qkv|proj)\.(weight|bias)', r'backbone.blocks.\1.attn.\2.\3'),
    Rule(r'layers\.(\d+)\.attn\.gamma1\.(?:weight|scale)', r'backbone.blocks.\1.ls1.gamma'),
    Rule(r'layers\.(\d+)\.ffn\.gamma2\.(?:weight|scale)', r'backbone.blocks.\1.ls2.gamma'),
    Rule(r'layers\.(\d+)\.ffn\.layers\.0\.0\.(weight|bias)', r'backbone.blocks.\1.mlp.fc1.\2'),
    Rule(r'layers\.(\d+)\.ffn\.layers\.1\.(weight|bias)', r'backbone.blocks.\1.mlp.fc2.\2'),
    Rule(r'ln1\.(weight|bias)', r'backbone.norm.\1'),
    Rule(r'head\.layers\.(head|head_dist)\.(weight|bias)', _head),
    Rule(r'head\.(fc)\.(weight|bias)', _head),
)


def convert_deit(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert the names of DeiT, distilled or not, DeiT III, and timm's vision transformers."""
    return apply_rules(state_dict, _DEIT, 'deit')


def convert_irpe_deit(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert the iRPE release's DeiT: DeiT's names and ``blocks.0.attn.rpe_k``."""
    return apply_rules(state_dict, (*_DEIT, _IRPE), 'irpe-deit')


def convert_mmpretrain_vit(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert mmpretrain's VisionTransformer and DistilledVisionTransformer, alone or as the
    ``backbone.`` of a classifier."""
    plain = {name.removeprefix('backbone.'): value for name, value in state_dict.items()}
    return apply_rules(plain, _MMPRETRAIN, 'mmpretrain-vit')
