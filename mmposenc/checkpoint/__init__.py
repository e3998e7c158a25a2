"""State dicts of the official releases, under this project's names."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from . import beit, detr, eomt, eva, mm_vit, pvt, rtdetr, sam, swin, vit, vit_names
from .back import back_to_timm
from .files import read_checkpoint, write_checkpoint
from .key_biases import join_biases
from .loading import load_checkpoint
from .recognition import recognise
from .rules import Converted, Family, Source

#: All sources by their names. Each is declared beside its tables of names.
SOURCES: dict[str, Source] = {source.name: source for each in (
    pvt, vit, eomt, eva, vit_names, detr, rtdetr, beit, swin, sam, mm_vit)
    for source in each.SOURCES}

#: For each source whose weights can go back to timm: the class of timm's models that they go back
#: to.
TIMM: dict[str, Family] = {name: source.timm for name, source in SOURCES.items() if source.timm}


def check_source(source: str | None, *, back: bool = False) -> None:
    """Check that there is a source of this name.

    Args:
        source: the name; None passes, as a source is then recognised.
        back: whether it must be one that goes back to timm's names.

    Raises:
        ValueError: there is none; says which there are.
    """
    names = TIMM if back else SOURCES
    if source is not None and source not in names:
        goes = ", to go back to timm's names" if back else ''
        raise ValueError(f'source={source!r} must be one of {", ".join(map(repr, names))}{goes}')


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
    check_source(source, back=True)
    return back_to_timm(state_dict, TIMM if source is None else {source: TIMM[source]})


def convert_with_report(state_dict: Mapping[str, Tensor], source: str | None = None) -> Converted:
    """Convert a release's state dict to that of an mmpretrain ImageClassifier (``backbone.*``,
    ``head.fc.*``) on this project's backbone; of DETR's releases to that of a detector
    (``encoder.*``, ``decoder.*`` and what else the file has).

    Args:
        state_dict: the release's, without a wrapper such as ``{'model': ...}``.
        source: a key of ``SOURCES``, which docs/weights.md explains; None: recognised by the names
            of the weights. Those of this project stay as they are.

    Returns:
        The weights, what was dropped and why, and the source.

    Raises:
        ValueError: for an unknown source, weights of another network than those supported, or
            parameters the source's rules do not know.
    """
    check_source(source)
    recognised = recognise(state_dict)
    source = source or recognised
    if source is None:
        return Converted(join_biases(state_dict))
    try:
        converted = SOURCES[source](state_dict)
        return replace(converted, state_dict=join_biases(converted.state_dict))
    except ValueError as error:
        if recognised is None or SOURCES[recognised].rules is SOURCES[source].rules:
            raise
        raise ValueError(f'{error}. The names are those of source {recognised!r}') from error


def convert(state_dict: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """The weights of :func:`convert_with_report`, without the report.

    Args:
        state_dict, source: as there.

    Raises:
        ValueError: as there.
    """
    return convert_with_report(state_dict, source).state_dict


__all__ = ['Converted', 'SOURCES', 'TIMM', 'convert', 'convert_back', 'convert_with_report',
           'load_checkpoint', 'read_checkpoint', 'recognise', 'write_checkpoint']
