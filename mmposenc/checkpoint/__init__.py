"""State dicts of the official releases, under this project's names.

A new kind of file has its own module with ``SOURCES``, is listed in :data:`SOURCES` here and in
docs/weights.md, and has its names in tests/golden/published_names.yaml. Its models are archs beside
the others.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product

from torch import Tensor

from . import (
    beit,
    convnext,
    deepseek,
    detr,
    dfine,
    eomt,
    eva,
    mm_vit,
    pvt,
    rfdetr,
    rtdetr,
    sam,
    swin,
    vit,
    vit_names,
)
from .file_weights import read_checkpoint, write_checkpoint
from .key_biases import join_biases
from .loading import load_checkpoint
from .rules import Converted, Family, Source, State, UnknownNames
from .to_timm import back_to_timm

#: All sources by their names. Each is declared beside its tables of names. A file is of the first
#: whose rules know all of its names, else of the first that leaves out what lies around a tower.
SOURCES: dict[str, Source] = {source.name: source for each in (
    pvt, deepseek, vit, eva, vit_names, detr, rtdetr, dfine, rfdetr, convnext, beit, swin, sam,
    mm_vit, eomt) for source in each.SOURCES}

#: Patterns that only names of this project's backbones match together.
_OURS = (r'(.*\.)?patch_embed\.projection\.weight', r'(.*\.)?blocks\.\d+\.mlp\..*')
_OTHER_PARTS = 'no part of the backbone, whose weights alone have names of a source'
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
        state_dict: that of a backbone, or of a model with one (``backbone.*``). Of a detector or
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
    converted = _recognised(state_dict) if source is None else _converted(state_dict, source)
    return replace(converted, state_dict=join_biases(converted.state_dict))


def _converted(state_dict: Mapping[str, Tensor], source: str) -> Converted:
    """Convert by a source that a user names; the error says whether the names are of another."""
    try:
        return SOURCES[source](state_dict)
    except ValueError as error:
        with suppress(UnknownNames):
            other = recognise(state_dict)
            if other is not None and SOURCES[other].rules is not SOURCES[source].rules:
                raise ValueError(f'{error}. The names are those of source {other!r}') from error
        raise


def recognise(state_dict: Mapping[str, Tensor]) -> str | None:
    """The source of weights, a key of ``SOURCES``; None for those of this project and any others.

    Args:
        state_dict: with or without 'backbone.' or 'module.' before all or some names.

    Raises:
        ValueError: the weights are of a network that is close to a supported one and is not it, or
            have values that their source cannot have; the message says what is supported.
    """
    return _recognised(state_dict).source


def _recognised(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert by the first source whose rules know all names of the file; else by the first that
    knows those of a part, such as an image tower or a backbone.

    Raises:
        ValueError: as :func:`recognise`. It names the weights that the rules of the nearest source
            do not know, if they know more than half or the names are those of a transformer.
    """
    state = {name.removeprefix('module.'): value for name, value in state_dict.items()}
    if not state or all(any(re.fullmatch(pattern, name) for name in state) for pattern in _OURS):
        return Converted(dict(state_dict))
    errors: list[UnknownNames] = []
    of_part = []
    for source, prefix in product(SOURCES.values(), ('', 'backbone.')):
        weights = _part(state, prefix)
        with _collecting(errors):
            if weights and len(source.match(weights)[0]) == len(state):
                return _converted_part(state, prefix, source)
            if weights:
                of_part.append((prefix, source))
    for prefix, source in of_part:
        with _collecting(errors):
            return _converted_part(state, prefix, source)
    nearest = min(errors, key=lambda error: len(error.unknown) / error.count)
    for source in SOURCES.values():
        for refusal in source.refuses:
            refusal.check(nearest.unknown, state)
    if 2 * len(nearest.unknown) < nearest.count or any(
            re.fullmatch(r'(.*\.)?patch_embed\.proj\.weight', name) for name in state):
        raise nearest
    return Converted(dict(state_dict))


@contextmanager
def _collecting(errors: list[UnknownNames]) -> Iterator[None]:
    try:
        yield
    except UnknownNames as error:
        errors.append(error)


def _part(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items()
            if name.startswith(prefix)}


def _converted_part(state: State, prefix: str, source: Source) -> Converted:
    """Convert the weights whose names begin so, and leave out the others."""
    converted = source(_part(state, prefix))
    others = dict.fromkeys((name for name in state if not name.startswith(prefix)), _OTHER_PARTS)
    return replace(converted, dropped=others | {
        f'{prefix}{name}': reason for name, reason in converted.dropped.items()})


def under_names_of_network(state_dict: State, names: Set[str], prefix: str | None = None
                           ) -> tuple[State, str | None]:
    """Weights for a network of another library, of its releases or of a model that contains it.

    Args:
        state_dict: weights under any names.
        names: of the network's weights.
        prefix: what stands before them; by default '' or 'backbone.'.

    Returns:
        Those weights under names of which the network has most, and the source if they were
        converted.
    """
    prefixes = ['', 'backbone.'] if prefix is None else [f'{prefix.removesuffix(".")}.']
    choices: list[tuple[State, str | None]] = [
        (_part(state_dict, each) if each else state_dict, None) for each in prefixes]
    has_all = any(names <= each.keys() for each, _ in choices)
    # What does not fit, or has not the dimensions that its names require, stays as it is.
    with suppress(ValueError, ArithmeticError, LookupError, RuntimeError, TypeError):
        source = None if has_all else recognise(state_dict)
        if source is not None and SOURCES[source].network:
            converted = convert_with_report(state_dict, source).state_dict
            choices += [(_part(converted, each), source) for each in prefixes]
    return max(choices, key=lambda each: len(names & each[0].keys()))


def convert(state_dict: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """The weights of :func:`convert_with_report`, without the report.

    Args:
        state_dict, source: as there.

    Raises:
        ValueError: as there.
    """
    return convert_with_report(state_dict, source).state_dict


__all__ = ['Converted', 'SOURCES', 'TIMM', 'convert', 'convert_back', 'convert_with_report',
           'load_checkpoint', 'read_checkpoint', 'recognise', 'under_names_of_network',
           'write_checkpoint']
