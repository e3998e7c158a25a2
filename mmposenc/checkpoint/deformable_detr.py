"""Weights of the official Deformable DETR (fundamentalvision) for
:class:`mmposenc.DeformableDETR`."""
from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .irpe_detr import BODY, COCO_IDS, LINEAR, count_batches
from .rules import Converted, Rule, apply_rules

_KIND = r'(weight|bias)'
_ATTENTION = r'((?:sampling_offsets|attention_weights|value_proj|output_proj)\.(?:weight|bias))'
#: The release counts a decoder layer's norms as cross attention, self attention, MLP; mmdet as they
#: run, self attention first.
_DECODER_NORMS = {'1': 1, '2': 0, '3': 2}
_COPY = 'the same tensors as bbox_embed and class_embed, which the decoder holds once more'


def _decoder_norm(match: re.Match[str], tensor: Tensor, _: Mapping[str, Tensor]
                  ) -> dict[str, Tensor]:
    layer, number, kind = match.groups()
    return {f'decoder.layers.{layer}.norms.{_DECODER_NORMS[number]}.{kind}': tensor}


def _projection(match: re.Match[str], tensor: Tensor, source: Mapping[str, Tensor]
                ) -> dict[str, Tensor]:
    """The backbone's maps go through 1 x 1 convolutions, coarser levels through 3 x 3 ones."""
    level, part, kind = match.groups()
    maps = sum(re.fullmatch(r'input_proj\.\d+\.0\.weight', name) is not None
               and value.shape[-1] == 1 for name, value in source.items())
    place = (f'convs.{level}' if int(level) < maps else f'extra_convs.{int(level) - maps}')
    return {f'neck.{place}.{"conv" if part == "0" else "gn"}.{kind}': tensor}


def _classes(match: re.Match[str], tensor: Tensor, source: Mapping[str, Tensor]
             ) -> dict[str, Tensor]:
    """COCO's 80 classes out of the release's 91 category numbers; other class counts as they are.

    Of two stages the last branch scores proposals by its first number alone, here and there: that
    row stays first, though it is no class.
    """
    number, kind = match.groups()
    if tensor.shape[0] == 91:
        last = max(int(name.split('.')[1]) for name in source if name.startswith('class_embed.'))
        proposals = 'enc_output.weight' in source and int(number) == last
        tensor = tensor[torch.tensor([0, *COCO_IDS[1:]] if proposals else COCO_IDS)]
    return {f'bbox_head.cls_branches.{number}.{kind}': tensor}


def _boxes(match: re.Match[str], tensor: Tensor, _: Mapping[str, Tensor]) -> dict[str, Tensor]:
    branch, layer, kind = match.groups()
    return {f'bbox_head.reg_branches.{branch}.{2 * int(layer)}.{kind}': tensor}


_RULES = (
    Rule(rf'encoder\.layers\.(\d+)\.self_attn\.{_ATTENTION}', r'encoder.layers.\1.self_attn.\2'),
    Rule(rf'decoder\.layers\.(\d+)\.cross_attn\.{_ATTENTION}', r'decoder.layers.\1.cross_attn.\2'),
    Rule(r'decoder\.layers\.(\d+)\.self_attn\.((?:in_proj_|out_proj\.)(?:weight|bias))',
         r'decoder.layers.\1.self_attn.attn.\2'),
    Rule(rf'encoder\.layers\.(\d+)\.norm1\.{_KIND}', r'encoder.layers.\1.norms.0.\2'),
    Rule(rf'encoder\.layers\.(\d+)\.norm2\.{_KIND}', r'encoder.layers.\1.norms.1.\2'),
    Rule(rf'decoder\.layers\.(\d+)\.norm([123])\.{_KIND}', _decoder_norm),
    LINEAR,
    Rule(r'level_embed', 'level_embed'),
    Rule(r'query_embed\.weight', 'query_embedding.weight'),
    Rule(rf'reference_points\.{_KIND}', r'reference_points_fc.\1'),
    Rule(rf'enc_output\.{_KIND}', r'memory_trans_fc.\1'),
    Rule(rf'enc_output_norm\.{_KIND}', r'memory_trans_norm.\1'),
    Rule(rf'pos_trans\.{_KIND}', r'pos_trans_fc.\1'),
    Rule(rf'pos_trans_norm\.{_KIND}', r'pos_trans_norm.\1'),
    Rule(rf'input_proj\.(\d+)\.([01])\.{_KIND}', _projection),
    Rule(rf'class_embed\.(\d+)\.{_KIND}', _classes),
    Rule(rf'bbox_embed\.(\d+)\.layers\.([012])\.{_KIND}', _boxes),
    Rule(r'decoder\.(?:class|bbox)_embed\..*', None, _COPY),
    BODY,
)


def convert_deformable_detr(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert Deformable DETR's release (Zhu et al., ICLR 2021) to mmdet's names: on one level or
    several, with box refinement and with two stages.

    Of its 91 category numbers the 80 classes of COCO are kept.

    Raises:
        ValueError: for two stages without box refinement, where one shared branch scores both the
            proposals by number 0 and the classes, and 80 rows have no place for number 0.
    """
    plain = {name.removeprefix('module.').removeprefix('transformer.'): value
             for name, value in state_dict.items()}
    refined = any(name.startswith('decoder.bbox_embed.') for name in plain)
    classes = plain.get('class_embed.0.weight')
    if ('enc_output.weight' in plain and not refined and classes is not None
            and classes.shape[0] == 91):
        raise ValueError("source='deformable-detr': two stages without box refinement score "
                         'proposals and classes by one shared branch of 91 numbers, of which 80 '
                         'would be kept; two stages with box refinement are supported')
    return count_batches(apply_rules(plain, _RULES, 'deformable-detr'))
