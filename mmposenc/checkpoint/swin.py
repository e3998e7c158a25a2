"""Weights of the official Swin Transformers and timm's, and of mmpretrain's and mmdet's
SwinTransformer, for :class:`mmposenc.backbones.Swin` in an ImageClassifier."""
from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from .rules import Converted, Rule, apply_rules

_BIAS = 'attn.w_msa.rel_pos_encoding.relative_position_bias_table'
_INDEX_REASON = 'offsets of the pairs in a window, computed from its size'
_MASK_REASON = 'mask of the shifted windows, computed from the size of the map'


def convert_swin(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert the official names, for classification and for detection, and timm's.

    timm counts the merging to the stage behind it (the release: to the stage before) and puts a
    ``fc`` into the head.
    """
    merged = [int(m.group(1)) for m in
              (re.match(r'layers\.(\d+)\.downsample\.', name) for name in state_dict) if m]
    timm = bool(merged) and 0 not in merged
    last = max((int(m.group(1)) for m in
                (re.match(r'layers\.(\d+)\.', name) for name in state_dict) if m), default=0)

    def merging(match: re.Match[str], tensor: Tensor, _: Mapping[str, Tensor]
                ) -> dict[str, Tensor]:
        stage = int(match.group(1)) - timm
        return {f'backbone.stages.{stage}.downsample.{match.group(2)}': tensor}

    block = r'layers\.(\d)\.blocks\.(\d+)\.'
    rules = (
        Rule(r'patch_embed\.proj\.(weight|bias)', r'backbone.patch_embed.projection.\1'),
        Rule(r'patch_embed\.norm\.(weight|bias)', r'backbone.patch_embed.norm.\1'),
        Rule(block + r'attn\.((?:qkv|proj)\.(?:weight|bias))',
             r'backbone.stages.\1.blocks.\2.attn.w_msa.\3'),
        Rule(block + r'attn\.relative_position_bias_table',
             r'backbone.stages.\1.blocks.\2.' + _BIAS),
        Rule(block + r'attn\.relative_position_index', None, _INDEX_REASON),
        Rule(block + r'attn_mask', None, _MASK_REASON),
        Rule(block + r'((?:norm1|norm2|mlp\.fc1|mlp\.fc2)\.(?:weight|bias))',
             r'backbone.stages.\1.blocks.\2.\3'),
        Rule(r'layers\.(\d)\.downsample\.((?:norm|reduction)\.(?:weight|bias))', merging),
        Rule(r'norm\.(weight|bias)', rf'backbone.norm{last}.\1'),
        Rule(r'(norm\d\.(?:weight|bias))', r'backbone.\1'),
        Rule(r'head\.(?:fc\.)?(weight|bias)', r'head.fc.\1'),
    )
    return apply_rules(state_dict, rules, 'swin')


def _from_unfold(match: re.Match[str], tensor: Tensor, _: Mapping[str, Tensor]
                 ) -> dict[str, Tensor]:
    """mmpretrain and mmdet join 2 x 2 cells by unfolding: channel, row, column. Here and in the
    release: column, row, channel."""
    name = f'backbone.stages.{match.group(1)}.downsample.{match.group(2)}'
    if tensor.shape[-1] % 4:
        raise ValueError(f'{match.group(0)} has shape {tuple(tensor.shape)}; a multiple of 4 '
                         f'channels, those of 2 x 2 cells, is required')
    cells = tensor.unflatten(-1, (-1, 2, 2))
    return {name: cells.transpose(-1, -3).flatten(-3)}


_MM_BLOCK = r'stages\.(\d)\.blocks\.(\d+)\.'
_MM = (
    Rule(r'patch_embed\.((?:projection|norm)\.(?:weight|bias))', r'backbone.patch_embed.\1'),
    Rule(_MM_BLOCK + r'attn\.w_msa\.((?:qkv|proj)\.(?:weight|bias))',
         r'backbone.stages.\1.blocks.\2.attn.w_msa.\3'),
    Rule(_MM_BLOCK + r'attn\.w_msa\.relative_position_bias_table',
         r'backbone.stages.\1.blocks.\2.' + _BIAS),
    Rule(_MM_BLOCK + r'attn\.w_msa\.relative_position_index', None, _INDEX_REASON),
    Rule(_MM_BLOCK + r'attn\.attn_mask', None, _MASK_REASON),
    Rule(_MM_BLOCK + r'(norm[12]\.(?:weight|bias))', r'backbone.stages.\1.blocks.\2.\3'),
    Rule(_MM_BLOCK + r'ffn\.layers\.0\.0\.(weight|bias)',
         r'backbone.stages.\1.blocks.\2.mlp.fc1.\3'),
    Rule(_MM_BLOCK + r'ffn\.layers\.1\.(weight|bias)', r'backbone.stages.\1.blocks.\2.mlp.fc2.\3'),
    Rule(r'stages\.(\d)\.downsample\.((?:norm|reduction)\.(?:weight|bias))', _from_unfold),
    Rule(r'(norm\d\.(?:weight|bias))', r'backbone.\1'),
    Rule(r'head\.fc\.(weight|bias)', r'head.fc.\1'),
)


def convert_mm_swin(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert mmpretrain's and mmdet's SwinTransformer, alone or as a ``backbone.``."""
    plain = {name.removeprefix('backbone.'): value for name, value in state_dict.items()}
    return apply_rules(plain, _MM, 'mmpretrain-swin')
