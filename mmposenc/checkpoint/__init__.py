"""State dicts of the official releases, under this project's names."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from .irpe import convert_attention
from .pvt import convert_mmdet_pvt, convert_pvt, convert_twins
from .rules import Converted

#: Converters by the name of their source.
SOURCES: dict[str, Callable[[Mapping[str, Tensor]], Converted]] = {
    'pvt': convert_pvt,
    'twins': convert_twins,
    'mmdet-pvt': convert_mmdet_pvt,
}


def convert_with_report(state_dict: Mapping[str, Tensor], source: str) -> Converted:
    """Convert a release's state dict; with what was dropped and why.

    Raises:
        ValueError: for an unknown source, or parameters the source's rules do not know.
    """
    if source not in SOURCES:
        raise ValueError(f'source={source!r} must be one of {", ".join(map(repr, SOURCES))}')
    return SOURCES[source](state_dict)


def convert(state_dict: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Convert a release's state dict to that of an mmpretrain ImageClassifier (``backbone.*``,
    ``head.fc.*``) on this project's backbone.

    Args:
        state_dict: the release's, without a wrapper such as ``{'model': ...}``.
        source: 'pvt', 'twins' (PVT + PEG + GAP) or 'mmdet-pvt'.

    Raises:
        ValueError: as :func:`convert_with_report`.
    """
    return convert_with_report(state_dict, source).state_dict


__all__ = ['Converted', 'SOURCES', 'convert', 'convert_attention', 'convert_with_report']
