"""Rename the parameters of a release by rules that account for every one of them."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from .recognition import SUPPORTED

#: What a matched name becomes: names and tensors made from (match, tensor, whole state dict).
Rename = Callable[['re.Match[str]', Tensor, Mapping[str, Tensor]], Mapping[str, Tensor]]


class Rule(NamedTuple):
    """Parameters whose name matches ``pattern`` as a whole.

    ``target`` is a template for ``re.Match.expand``, a function for what no template can say, or
    None to drop the parameter for ``reason``.
    """

    pattern: str
    target: str | Rename | None
    reason: str = ''


class Converted(NamedTuple):
    """A converted state dict, and the source's names that were dropped, each with its reason."""

    state_dict: dict[str, Tensor]
    dropped: dict[str, str]


def apply_rules(state_dict: Mapping[str, Tensor], rules: Sequence[Rule], source: str) -> Converted:
    """Convert by the first rule that matches each name.

    Raises:
        ValueError: naming every parameter that no rule matches, or names that collide.
    """
    converted: dict[str, Tensor] = {}
    dropped: dict[str, str] = {}
    unknown = []
    for name, tensor in state_dict.items():
        for rule in rules:
            match = re.fullmatch(rule.pattern, name)
            if match is None:
                continue
            if rule.target is None:
                dropped[name] = rule.reason
                break
            made = ({match.expand(rule.target): tensor} if isinstance(rule.target, str)
                    else rule.target(match, tensor, state_dict))
            clash = sorted(set(made) & set(converted))
            if clash:
                raise ValueError(f'source={source!r}: {name} becomes {clash[0]}, which another '
                                 f'parameter became before')
            converted.update(made)
            break
        else:
            unknown.append(name)
    if unknown:
        raise ValueError(f'source={source!r} has no rule for {len(unknown)} of '
                         f'{len(state_dict)} parameters: {shown(sorted(unknown))}; '
                         f'{SUPPORTED}')
    return Converted(converted, dropped)


def shown(names: Sequence[str], most: int = 8) -> str:
    """The first of many names, and how many more there are."""
    rest = [f'and {len(names) - most} more'] * (len(names) > most)
    return ', '.join([*names[:most], *rest])


def template(text: str, *shifted: int, by: int = -1) -> Rename:
    """A target whose groups ``shifted`` are numbers to shift: ``template('a.{1}.{2}', 1)``."""
    def rename(match: re.Match[str], tensor: Tensor, _: Mapping[str, Tensor]
               ) -> Mapping[str, Tensor]:
        groups = [match.group(0)] + [
            str(int(group) + by) if number in shifted else group
            for number, group in enumerate(match.groups(), start=1)]
        return {text.format(*groups): tensor}
    return rename
