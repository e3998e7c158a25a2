"""Weights of RF-DETR, of its release (roboflow/rf-detr) and of Hugging Face, for
:class:`mmposenc.RFDETR` on :class:`mmposenc.ViT`, in mmdet's names."""
from __future__ import annotations

import re

from torch import Tensor

from .detr import rows_of_coco_classes
from .rtdetr import layer_pairs
from .rules import DETECTOR, Rule, Source, State, rules_to_ours
from .vit import vit_pairs
from .vit_names import HUGGINGFACE_TRUNK, MASK_TOKEN


def _rename_group(match: re.Match[str], tensor: Tensor, state: State) -> dict[str, Tensor]:
    """A layer of the tokens that a group of queries is chosen from; number 0 here is of the
    decoder."""
    what, group, layer, kind = match.groups()
    branch = f'bbox_head.{"cls" if what == "class" else "reg"}_branches.{int(group or -1) + 1}'
    if what == 'class':
        return {f'{branch}.{kind}': rows_of_coco_classes(tensor)}
    return {f'{branch}.{2 * int(layer)}.{kind}': tensor}


_DETECTOR = (
    Rule(r'backbone\.0\.projector\.(.*)\.bn\.(\w+)', r'neck.\1.norm.\2'),
    Rule(r'backbone\.0\.projector\.(.*)', r'neck.\1'),
    *rules_to_ours((*layer_pairs('transformer.decoder.layers.{n}', 'decoder.layers.{n}', (1, 2, 3)),
                    *HUGGINGFACE_TRUNK)),
    MASK_TOKEN,
    Rule(r'transformer\.(decoder\.(?:layers\.\d+\.cross_attn|ref_point_head|norm)\..*)', r'\1'),
    Rule(r'transformer\.enc_output\.(.*)', r'memory_trans_fc.\1'),
    Rule(r'transformer\.enc_output_norm\.(.*)', r'memory_trans_norm.\1'),
    Rule(r'(?:transformer\.enc_out_)?(class|bbox)_embed(?:\.(\d+)(?=\.weight|\.bias|\.layers))?'
         r'(?:\.layers\.(\d))?\.(weight|bias)', _rename_group),
    Rule(r'query_feat\.weight', 'query_embedding.weight'),
    Rule(r'refpoint_embed\.weight', 'query_moves.weight'),
    Rule(r'segmentation_head\..*', None, 'it predicts masks; boxes do not need it'),
    Rule(r'_kp_active_mask', None, 'of key points'))
#: Hugging Face's names as those of the release.
_HUGGING_FACE = (
    (r'^model\.backbone\.backbone\.', ''),
    (r'^model\.backbone\.projector\.layer_norm', 'backbone.0.projector.stages.0.1'),
    (r'^model\.backbone\.projector\.projector_layer', 'backbone.0.projector.stages.0.0'),
    (r'^(backbone.*)\.bottlenecks\.', r'\1.m.'), (r'^(backbone.*)\.conv([12])\.', r'\1.cv\2.'),
    (r'^model\.reference_point_embed', 'refpoint_embed'), (r'^model\.query_feat', 'query_feat'),
    (r'^model\.decoder\.layernorm', 'transformer.decoder.norm'),
    (r'^model\.(decoder|enc_)', r'transformer.\1'),
    (r'\.self_attn\.o_proj\.', '.self_attn.out_proj.'),
    (r'\.self_attn_layer_norm\.', '.norm1.'), (r'\.cross_attn_layer_norm\.', '.norm2.'),
    (r'^(transformer.*)\.layer_norm\.', r'\1.norm3.'),
    (r'^(transformer.*)\.mlp\.fc([12])\.', r'\1.linear\2.'))
_OURS = Rule(r'(?:neck|decoder|memory_trans_\w+|bbox_head|query_\w+)\..*', r'\g<0>')


SOURCES = tuple(
    Source(name, _DETECTOR, parts, network=DETECTOR, files=files, then=Source(
        name, lambda state: (*rules_to_ours(vit_pairs(state)), _OURS)))
    for name, parts, files in (
        ('rf-detr', ((r'^(model\.)?(backbone\.0\.encoder\.encoder\.)?', ''),),
         'the release of RF-DETR'),
        ('huggingface-rf-detr', _HUGGING_FACE, 'RF-DETR of Hugging Face')))
