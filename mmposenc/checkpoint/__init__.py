"""State dicts of the official releases, under this project's names."""
from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from . import beit, detr, eomt, eva, mm_vit, pvt, sam, swin, vit, vit_names
from .back import Family, back_to_timm
from .files import read_checkpoint, write_checkpoint
from .irpe import convert_attention
from .loading import load_checkpoint
from .recognition import recognise
from .rules import Converted, Source
from .shapes import check_shapes

#: By their names.
SOURCES: dict[str, Source] = {source.name: source for each in (
    pvt, vit, eomt, eva, vit_names, detr, beit, swin, sam, mm_vit) for source in each.SOURCES}

#: Classes of timm's models that this project's weights go back to, by the source that they come
#: from; what has a mark of its own comes first.
TIMM: dict[str, Family] = {
    'swin': Family(swin.swin_pairs, mark=r'backbone\.stages\.\d+\.blocks\.\d+\.attn\.w_msa\..*'),
    'sam': Family(sam.PAIRS, r'backbone\.blocks\.\d+\.attn\.rel_pos_encoding\.row_table'),
    'timm-pvt-v2': Family(pvt.TIMM_V2, r'backbone\.stages\.\d\.norm\..*'),
    'twins': Family(pvt.TWINS, r'backbone\.stages\.\d\.pos_encodings\.at\.after0\..*'),
    'beit': Family(beit.BEIT, mark=r'backbone\..*rel_pos_encoding\.prefix_bias'),
    'relpos': Family(beit.relpos_pairs, mark=r'backbone\..*rel_pos_encoding\..*'),
    'deit': Family(vit.vit_pairs, re.escape(vit.TABLE), vit.without_row),
    'eva': Family(eva.eva_pairs, eva.MARK),
    'naflex': Family(vit.NAFLEX, f'{re.escape(vit.TABLE)}(_y)?'),
}


def convert_back(state_dict: Mapping[str, Tensor], source: str | None = None) -> Converted:
    """Convert this project's state dict to the names of timm's model, the reverse of
    :func:`convert`.

    Args:
        state_dict: of a backbone, or of a model with one (``backbone.*``). Of a detector or
            segmentor only the backbone's weights are converted, of a classifier its linear head
            too.
        source: a key of ``TIMM``; None: the first that has a place for every weight.

    Returns:
        The state dict in timm's names, and what was left out with its reason.

    Raises:
        ValueError: for an unknown source, or weights that timm's model has no place for.
    """
    if source is not None and source not in TIMM:
        raise ValueError(f"source={source!r} does not go back to timm's names; "
                         f'{", ".join(map(repr, TIMM))} do')
    return back_to_timm(state_dict, TIMM if source is None else {source: TIMM[source]})


def convert_with_report(state_dict: Mapping[str, Tensor], source: str) -> Converted:
    """Convert a release's state dict; with what was dropped and why.

    Raises:
        ValueError: for an unknown source, weights of another network than those supported,
            parameters the source's rules do not know, or weights that do not fit each other.
    """
    if source not in SOURCES:
        raise ValueError(f'source={source!r} must be one of {", ".join(map(repr, SOURCES))}')
    looks_like = recognise(state_dict)
    try:
        converted = SOURCES[source](state_dict)
    except ValueError as error:
        if looks_like is None or SOURCES[looks_like].rules is SOURCES[source].rules:
            raise
        raise ValueError(f'{error}. The names are those of source {looks_like!r}') from error
    check_shapes(converted.state_dict, source)
    return converted


def convert(state_dict: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Convert a release's state dict to that of an mmpretrain ImageClassifier (``backbone.*``,
    ``head.fc.*``) on this project's backbone.

    Args:
        state_dict: the release's, without a wrapper such as ``{'model': ...}``.
        source: 'deit' (also DeiT III, MAE and timm's; a distilled model becomes that of a
            DeiTClsHead, ``head.layers.*``), 'dinov2', 'huggingface-vit' (also DeiT and Dinov2),
            'huggingface-clip' (also SigLIP), 'clip' (OpenAI's and open_clip's), 'eva' (DINOv3's
            release, Hugging Face's DINOv3, and timm's DINOv3, EVA-02, RoPE-ViT and Perception
            Encoder), 'eomt' (Hugging Face's, and
            the release's of DINOv2), 'beit' and 'relpos' (timm's), 'naflex' (timm's
            NaFlexViT, of SigLIP 2 and C-RADIO too), 'sam' (also timm's,
            Hugging Face's, and ViTDet's), 'irpe-deit', 'pvt' (also PVT v2 and SegFormer), 'twins'
            (also timm's), 'timm-pvt-v2', 'huggingface-segformer', 'swin' (V1 and V2, also timm's
            and Hugging Face's), or OpenMMLab's own 'mm-vit' (mmseg's and mmpretrain's ViT, BEiT,
            MAE and EVA-02), 'mmpretrain-swin',
            'mmdet-swin', 'mmdet-pvt' (also PVT v2, and mmseg's MixVisionTransformer) and
            'mm-twins' (mmseg's and mmpretrain's). 'irpe-detr' (also
            plain DETR's release) and 'deformable-detr' give a detector's state dict:
            ``encoder.*``, ``decoder.*`` and what else the file has.

    Raises:
        ValueError: as :func:`convert_with_report`.
    """
    return convert_with_report(state_dict, source).state_dict


__all__ = ['Converted', 'SOURCES', 'TIMM', 'check_shapes', 'convert', 'convert_attention',
           'convert_back', 'convert_with_report', 'load_checkpoint', 'read_checkpoint', 'recognise',
           'write_checkpoint']
