"""State dicts of the official releases, under this project's names."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from .deformable_detr import convert_deformable_detr
from .deit import convert_deit, convert_irpe_deit, convert_mmpretrain_vit
from .files import read_checkpoint, write_checkpoint
from .irpe import convert_attention
from .irpe_detr import convert_irpe_detr
from .loading import load_checkpoint
from .needs import needed_options
from .pvt import convert_mmdet_pvt, convert_pvt, convert_twins
from .recognition import recognise
from .rules import Converted
from .shapes import check_shapes
from .swin import convert_mm_swin, convert_swin

#: Converters by the name of their source.
SOURCES: dict[str, Callable[[Mapping[str, Tensor]], Converted]] = {
    'pvt': convert_pvt,
    'twins': convert_twins,
    'deit': convert_deit,
    'irpe-deit': convert_irpe_deit,
    'irpe-detr': convert_irpe_detr,
    'deformable-detr': convert_deformable_detr,
    'swin': convert_swin,
    'mmpretrain-vit': convert_mmpretrain_vit,
    'mmpretrain-swin': convert_mm_swin,
    'mmdet-swin': convert_mm_swin,
    'mmdet-pvt': convert_mmdet_pvt,
}


def convert_with_report(state_dict: Mapping[str, Tensor], source: str) -> Converted:
    """Convert a release's state dict; with what was dropped and why.

    Raises:
        ValueError: for an unknown source, weights of another network than those supported,
            parameters the source's rules do not know, or weights that do not fit each other.
    """
    if source not in SOURCES:
        raise ValueError(f'source={source!r} must be one of {", ".join(map(repr, SOURCES))}')
    found = recognise(state_dict)
    try:
        converted = SOURCES[source](state_dict)
    except ValueError as error:
        if found is None or SOURCES[found] is SOURCES[source]:
            raise
        raise ValueError(f'{error}. The names are those of source {found!r}') from error
    check_shapes(converted.state_dict, source)
    return converted


def convert(state_dict: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Convert a release's state dict to that of an mmpretrain ImageClassifier (``backbone.*``,
    ``head.fc.*``) on this project's backbone.

    Args:
        state_dict: the release's, without a wrapper such as ``{'model': ...}``.
        source: 'deit' (also DeiT III and timm's; a distilled model becomes that of a DeiTClsHead,
            ``head.layers.*``), 'irpe-deit', 'pvt', 'twins' (PVT + PEG + GAP, also timm's), 'swin'
            (also timm's), or OpenMMLab's own 'mmpretrain-vit', 'mmpretrain-swin', 'mmdet-swin' and
            'mmdet-pvt'. 'irpe-detr' (also plain DETR's release) and 'deformable-detr' give a
            detector's state dict: ``encoder.*``, ``decoder.*`` and what else the file has.

    Raises:
        ValueError: as :func:`convert_with_report`.
    """
    return convert_with_report(state_dict, source).state_dict


__all__ = ['Converted', 'SOURCES', 'check_shapes', 'convert', 'convert_attention',
           'convert_with_report', 'load_checkpoint', 'needed_options', 'read_checkpoint',
           'recognise', 'write_checkpoint']
