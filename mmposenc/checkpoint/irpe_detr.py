"""Weights of iRPE's DETR (and of the plain DETR release) for :class:`mmposenc.DETR`."""
from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .irpe import rename_attention_parameter
from .rules import Converted, Rule, apply_rules

_PARTS = r'(in_proj_weight|in_proj_bias|out_proj\.weight|out_proj\.bias)'
_TABLE = r'(rpe_[qkv]\.(?:rp_(?:rows|cols)\.)?lookup_table_(?:weight|bias))'
#: ResNet of torchvision, which the release wraps twice.
BODY = Rule(r'backbone\.0\.body\.(.*)', r'backbone.\1')


def _norm(match: re.Match[str], tensor: Tensor, _: Mapping[str, Tensor]) -> dict[str, Tensor]:
    coder, layer, number, kind = match.groups()
    return {f'{coder}.layers.{layer}.norms.{int(number) - 1}.{kind}': tensor}


def _linear(match: re.Match[str], tensor: Tensor, _: Mapping[str, Tensor]) -> dict[str, Tensor]:
    coder, layer, number, kind = match.groups()
    place = '0.0' if number == '1' else '1'
    return {f'{coder}.layers.{layer}.ffn.layers.{place}.{kind}': tensor}


def _table(match: re.Match[str], tensor: Tensor, _: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f'encoder.layers.{match.group(1)}.self_attn.'
            f'{rename_attention_parameter(match.group(2))}': tensor}


def _classes(match: re.Match[str], tensor: Tensor, _: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """COCO's 80 classes and 'no object' out of the release's 91 category numbers and 'no object';
    other class counts as they are."""
    if tensor.shape[0] == 92:
        tensor = tensor[torch.tensor([*COCO_IDS, 91])]
    return {f'bbox_head.fc_cls.{match.group(1)}': tensor}


#: COCO's category numbers in use, 80 from 1 to 90.
COCO_IDS = tuple(i for i in range(1, 91)
                 if i not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83))
#: The MLP of a layer.
LINEAR = Rule(r'(encoder|decoder)\.layers\.(\d+)\.linear([12])\.(weight|bias)', _linear)

_RULES = (
    Rule(rf'(encoder|decoder)\.layers\.(\d+)\.self_attn\.{_PARTS}',
         r'\1.layers.\2.self_attn.attn.\3'),
    Rule(rf'encoder\.layers\.(\d+)\.self_attn\.{_TABLE}', _table),
    Rule(rf'decoder\.layers\.(\d+)\.multihead_attn\.{_PARTS}',
         r'decoder.layers.\1.cross_attn.attn.\2'),
    LINEAR,
    Rule(r'(encoder|decoder)\.layers\.(\d+)\.norm([123])\.(weight|bias)', _norm),
    Rule(r'decoder\.norm\.(weight|bias)', r'decoder.post_norm.\1'),
    Rule(r'query_embed\.weight', 'query_embedding.weight'),
    Rule(r'input_proj\.(weight|bias)', r'neck.convs.0.conv.\1'),
    Rule(r'class_embed\.(weight|bias)', _classes),
    Rule(r'bbox_embed\.layers\.0\.(weight|bias)', r'bbox_head.reg_ffn.layers.0.0.\1'),
    Rule(r'bbox_embed\.layers\.1\.(weight|bias)', r'bbox_head.reg_ffn.layers.1.\1'),
    Rule(r'bbox_embed\.layers\.2\.(weight|bias)', r'bbox_head.fc_reg.\1'),
    BODY,
    Rule(r'backbone\.1\.(?:row|col)_embed\.weight', None,
         "a learned position table of rows and columns; 'learned' here is one of cells"),
)


def convert_irpe_detr(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert the iRPE release's DETR, whole or its transformer alone, to mmdet's names.

    ``transformer.encoder.*`` or ``encoder.*`` become ``encoder.*``; likewise the decoder. Of
    DETR's 91 category numbers and 'no object' the 80 classes of COCO and 'no object' are kept.
    """
    plain = {name.removeprefix('module.').removeprefix('transformer.'): value
             for name, value in state_dict.items()}
    return count_batches(apply_rules(plain, _RULES, 'irpe-detr'))


def count_batches(converted: Converted) -> Converted:
    """With the counter of each BatchNorm: the release's frozen ones have none, mmdet's do."""
    state = dict(converted.state_dict)
    for name in converted.state_dict:
        if name.endswith('.running_var'):
            state.setdefault(name.replace('running_var', 'num_batches_tracked'), torch.tensor(0))
    return Converted(state, converted.dropped)
