"""Weights of the official DETR, iRPE's DETR and Deformable DETR (fundamentalvision), for
:class:`mmposenc.DETR` and :class:`mmposenc.DeformableDETR`, in mmdet's names."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .rules import DETECTOR, Pair, Rule, Source, State, rules_to_ours
from .vit import IRPE_TABLES

#: The category numbers of COCO that are in use: 80 of the numbers from 1 to 90.
COCO_IDS = tuple(i for i in range(1, 91)
                 if i not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83))
_LAYER, _ENCODER, _DECODER = '{c}.layers.{n}.', 'encoder.layers.{n}.', 'decoder.layers.{n}.'


def _attention_pairs(theirs: str, ours: str) -> tuple[Pair, ...]:
    """Pairs for torch's attention, which mmdet wraps in a module of its own."""
    return tuple(Pair(f'{theirs}.{part}{{p}}', f'{ours}.attn.{part}{{p}}')
                 for part in ('in_proj_', 'out_proj.'))


_COMMON = (
    *_attention_pairs(f'{_DECODER}self_attn', f'{_DECODER}self_attn'),
    Pair(f'{_LAYER}linear1.{{p}}', f'{_LAYER}ffn.layers.0.0.{{p}}'),
    Pair(f'{_LAYER}linear2.{{p}}', f'{_LAYER}ffn.layers.1.{{p}}'),
    Pair(f'{_ENCODER}norm1.{{p}}', f'{_ENCODER}norms.0.{{p}}'),
    Pair(f'{_ENCODER}norm2.{{p}}', f'{_ENCODER}norms.1.{{p}}'),
    Pair('query_embed.weight', 'query_embedding.weight'),
)


def _rename_resnet(match: re.Match[str], tensor: Tensor, state: State) -> dict[str, Tensor]:
    """Rename the weights of torchvision's ResNet, which the releases wrap twice. Each BatchNorm
    gets a counter of batches, which mmdet's have and the release's frozen ones do not."""
    name = f'backbone.{match[1]}'
    renamed = {name: tensor}
    counter = match[0].replace('running_var', 'num_batches_tracked')
    if name.endswith('.running_var') and counter not in state:
        renamed[name.replace('running_var', 'num_batches_tracked')] = torch.tensor(0)
    return renamed


_BODY = Rule(r'backbone\.0\.body\.(.*)', _rename_resnet)


def rows_of_coco_classes(tensor: Tensor, count: int = 91,
                         category_ids: Sequence[int] = COCO_IDS) -> Tensor:
    """Take the rows of COCO's classes from a tensor with a row for each category number; a tensor
    with another number of rows is returned as it is."""
    return tensor[torch.tensor(category_ids)] if tensor.shape[0] == count else tensor


def _refuse_tables(match: re.Match[str], table: Tensor, state: State) -> dict[str, Tensor]:
    raise ValueError(f'{match[0]} is a learned table of rows or columns, which no encoder of DETR '
                     'has here; files with sine positions are supported')


_DETR = (
    *rules_to_ours((
        *_COMMON, *_attention_pairs(f'{_ENCODER}self_attn', f'{_ENCODER}self_attn'),
        *_attention_pairs(f'{_DECODER}multihead_attn', f'{_DECODER}cross_attn'),
        *(Pair(f'{_ENCODER}self_attn.{theirs}', f'{_ENCODER}self_attn.{ours}')
          for theirs, ours in IRPE_TABLES),
        *(Pair(f'{_DECODER}norm{i + 1}.{{p}}', f'{_DECODER}norms.{i}.{{p}}') for i in range(3)),
        Pair('decoder.norm.{p}', 'decoder.post_norm.{p}'),
        Pair('input_proj.{p}', 'neck.convs.0.conv.{p}'),
        # Row 91 is that of 'no object'.
        Pair('class_embed.{p}', 'bbox_head.fc_cls.{p}',
             lambda tensor: rows_of_coco_classes(tensor, 92, (*COCO_IDS, 91))),
        Pair('bbox_embed.layers.0.{p}', 'bbox_head.reg_ffn.layers.0.0.{p}'),
        Pair('bbox_embed.layers.1.{p}', 'bbox_head.reg_ffn.layers.1.{p}'),
        Pair('bbox_embed.layers.2.{p}', 'bbox_head.fc_reg.{p}'))),
    _BODY,
    Rule(r'backbone\.1\.(?:row|col)_embed\.weight', None, check=_refuse_tables),
)


def _rename_projection(match: re.Match[str], tensor: Tensor, source: Mapping[str, Tensor]
                       ) -> dict[str, Tensor]:
    """Pairs of the convolutions of the backbone's maps: 1 x 1 for these maps, 3 x 3 for coarser
    levels."""
    level, part, kind = match.groups()
    maps = sum(re.fullmatch(r'input_proj\.\d+\.0\.weight', name) is not None
               and value.shape[-1] == 1 for name, value in source.items())
    module = (f'convs.{level}' if int(level) < maps else f'extra_convs.{int(level) - maps}')
    return {f'neck.{module}.{"conv" if part == "0" else "gn"}.{kind}': tensor}


def _convert_class_branch(match: re.Match[str], tensor: Tensor, source: Mapping[str, Tensor]
                          ) -> dict[str, Tensor]:
    """Convert a branch that predicts classes. With two stages, the last branch scores proposals by
    its first number only, so its first row must stay, although it is no class."""
    number, kind = match.groups()
    last = max(int(name.split('.')[1]) for name in source if name.startswith('class_embed.'))
    proposals = 'enc_output.weight' in source and int(number) == last
    category_ids = (0, *COCO_IDS[1:]) if proposals else COCO_IDS
    rows = rows_of_coco_classes(tensor, category_ids=category_ids)
    return {f'bbox_head.cls_branches.{number}.{kind}': rows}


_ATTENTION = ('sampling_offsets', 'attention_weights', 'value_proj', 'output_proj')
_DEFORMABLE = (
    *rules_to_ours((
        *_COMMON,
        *(Pair(f'{name}.{part}.{{p}}', f'{name}.{part}.{{p}}') for part in _ATTENTION
          for name in (f'{_ENCODER}self_attn', f'{_DECODER}cross_attn')),
        # The release numbers the norms of a decoder's layer in the order cross attention, self
        # attention, MLP; mmdet numbers them in the order in which they run, with self attention
        # first.
        *(Pair(f'{_DECODER}norm{theirs}.{{p}}', f'{_DECODER}norms.{ours}.{{p}}')
          for theirs, ours in ((1, 1), (2, 0), (3, 2))),
        Pair('level_embed', 'level_embed'),
        *(Pair(f'{theirs}.{{p}}', f'{ours}.{{p}}') for theirs, ours in (
            ('reference_points', 'reference_points_fc'), ('enc_output', 'memory_trans_fc'),
            ('enc_output_norm', 'memory_trans_norm'), ('pos_trans', 'pos_trans_fc'),
            ('pos_trans_norm', 'pos_trans_norm'))),
        *(Pair(f'bbox_embed.{{n}}.layers.{layer}.{{p}}',
               f'bbox_head.reg_branches.{{n}}.{2 * layer}.{{p}}') for layer in range(3)))),
    Rule(r'input_proj\.(\d+)\.([01])\.(weight|bias)', _rename_projection),
    Rule(r'class_embed\.(\d+)\.(weight|bias)', _convert_class_branch),
    Rule(r'decoder\.((?:class|bbox)_embed\..*)', None,
         'the same tensors as bbox_embed and class_embed, which the decoder holds once more'),
    _BODY,
)


def _deformable_rules(state: State) -> Sequence[Rule]:
    refined = any(name.startswith('decoder.bbox_embed.') for name in state)
    classes = state.get('class_embed.0.weight')
    if ('enc_output.weight' in state and not refined and classes is not None
            and classes.shape[0] == 91):
        raise ValueError("source='deformable-detr': two stages without box refinement score "
                         'proposals and classes by one shared branch of 91 numbers, of which 80 '
                         'would be kept; two stages with box refinement are supported')
    return _DEFORMABLE


_WRAPPERS = ((r'^module\.', ''), (r'^transformer\.', ''))
SOURCES = (
    # The source of a DETR, or of its transformer alone. Of 91 category numbers and 'no object', the
    # 80 classes of COCO and 'no object' are kept.
    Source('irpe-detr', _DETR, _WRAPPERS, network=DETECTOR,
           files='the releases of DETR and iRPE-DETR'),
    # Deformable DETR on one level or several, with box refinement and with two stages; only the 80
    # classes of COCO are kept.
    Source('deformable-detr', _deformable_rules, _WRAPPERS, network=DETECTOR,
           files='the release of Deformable DETR'),
)
