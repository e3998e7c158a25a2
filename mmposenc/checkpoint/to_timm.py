"""Converts this project's weights to the names of timm's models, by the same tables that convert
them from there."""
from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from .encoding_names import GRIDS
from .key_biases import split_biases
from .rules import Converted, Family, apply_rules, match_rules, names_text, rules_to_theirs

_REASON = "no weight of the backbone or of a linear head: timm's models have no place for it"
_GRID = "timm's files say no grid: its model is built with the same img_size"


def back_to_timm(state_dict: Mapping[str, Tensor], families: Mapping[str, Family]) -> Converted:
    """Convert by the first family that has a place for every weight of the backbone.

    Raises:
        ValueError: if none has, with the weights that the best of them has no place for.
    """
    if not any(name.startswith('backbone.') for name in state_dict):
        state_dict = {f'backbone.{name}': value for name, value in state_dict.items()}
    state_dict = split_biases(state_dict)
    grids = {name: _GRID for name in state_dict if name.endswith(GRIDS)}
    state_dict = {name: value for name, value in state_dict.items() if name not in grids}
    best: list[str] | None = None
    for source, family in families.items():
        if family.mark and not any(re.fullmatch(family.mark, name) for name in state_dict):
            continue
        pairs = family.pairs(state_dict) if callable(family.pairs) else family.pairs
        matches, others = match_rules(state_dict, rules_to_theirs(pairs))
        homeless = sorted(name for name in others if name.startswith('backbone.'))
        if not homeless:  # Shapes are compared only if every weight has a place.
            converted = apply_rules(state_dict, matches, source)
            return Converted(dict(family.finish(converted.state_dict)),
                             dict.fromkeys(sorted(others), _REASON) | grids)
        best = homeless if best is None or len(homeless) < len(best) else best
    what = ('these are weights of none' if best is None
            else f'{names_text(best)} have no place in any')
    raise ValueError(f'{what} of the models of timm that are supported: '
                     f'{", ".join(map(repr, families))}')
