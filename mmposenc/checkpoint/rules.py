"""Rename the parameters of a release by rules that account for every one of them.

Where weights go back too, names are a table of :class:`Pair`, from which the rules of both
directions come: :func:`rules_to_ours`, :func:`rules_to_theirs`.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from .recognition import SUPPORTED

#: What a matched name becomes: names and tensors made from (match, tensor, whole state dict).
Rename = Callable[['re.Match[str]', Tensor, Mapping[str, Tensor]], Mapping[str, Tensor]]


class Rule(NamedTuple):
    """Parameters whose name matches ``pattern`` as a whole.

    ``target`` is a template for ``re.Match.expand``, a function for what no template can say, or
    None to drop the parameter for ``reason``. A dropped parameter may have a ``check``: it raises a
    ValueError where the model here cannot be the file's, or returns, by names of its own, values
    that only the model can be compared with (:attr:`Converted.computed`).
    """

    pattern: str
    target: str | Rename | None
    reason: str = ''
    check: Rename | None = None


#: Keeps every name that no rule before it matches.
AS_IS = Rule(r'.*', r'\g<0>')


@dataclass(frozen=True)
class Converted:
    """Weights under other names than their file has them.

    Args:
        state_dict: the weights.
        dropped: names of the file that were left out, each with the reason.
        computed: what the model must compute by itself: 'periods' of rotary positions, and names
            of modules with the (H, W) of the window that their offsets are counted in.
        source: whose names the file has; None: those of this project, which stay.
    """

    state_dict: dict[str, Tensor]
    dropped: dict[str, str] = field(default_factory=dict)
    computed: dict[str, Tensor] = field(default_factory=dict)
    source: str | None = None


def apply_rules(state_dict: Mapping[str, Tensor], rules: Sequence[Rule], source: str,
                in_file: Mapping[str, str]) -> Converted:
    """Convert weights by the first rule that matches each name. ``in_file`` maps the names in
    ``state_dict``, which may have been changed before, to those in the file, which messages use.

    Raises:
        ValueError: naming every parameter that no rule matches, or names that collide.
    """
    converted, unknown = match_rules(state_dict, rules, source)
    if unknown:
        raise ValueError(f'source={source!r} has no rule for {len(unknown)} of '
                         f'{len(state_dict)} parameters: '
                         f'{names_text(sorted(in_file[name] for name in unknown))}; '
                         f'{SUPPORTED}')
    return replace(converted, dropped={in_file[name]: reason
                                       for name, reason in converted.dropped.items()})


def match_rules(state_dict: Mapping[str, Tensor], rules: Sequence[Rule], source: str
                ) -> tuple[Converted, list[str]]:
    """As :func:`apply_rules`, and also returns the names that no rule matches."""
    converted: dict[str, Tensor] = {}
    dropped: dict[str, str] = {}
    computed: dict[str, Tensor] = {}
    unknown = []
    patterns = [(re.compile(rule.pattern), rule) for rule in rules]
    for name, tensor in state_dict.items():
        match, rule = next(((match, rule) for pattern, rule in patterns
                            if (match := pattern.fullmatch(name))), (None, None))
        if match is None or rule is None:
            unknown.append(name)
        elif rule.target is None:
            dropped[name] = rule.reason
            if rule.check is not None:
                computed.update(rule.check(match, tensor, state_dict))
        else:
            renamed = ({match.expand(rule.target): tensor} if isinstance(rule.target, str)
                       else rule.target(match, tensor, state_dict))
            clash = sorted(set(renamed) & set(converted))
            if clash:
                raise ValueError(f'source={source!r}: {name} becomes {clash[0]}, which another '
                                 f'parameter became before')
            converted.update(renamed)
    return Converted(converted, dropped, computed, source), sorted(unknown)


State = Mapping[str, Tensor]


class Family(NamedTuple):
    """A class of timm's models to whose names this project's weights can go back.

    Args:
        pairs: its names and ours, whatever the state dict, or given one of either side.
        mark: what a name of ours must match for this class to be meant; '' for any.
        finish: what is left to do to the converted weights.
    """

    pairs: Sequence[Pair] | Callable[[State], Sequence[Pair]]
    mark: str = ''
    finish: Callable[[State], State] = dict


class Source(NamedTuple):
    """How the weights of a source become this project's.

    Args:
        name: a key of ``SOURCES``.
        rules: for its names, or made from a state dict.
        parts: pairs of a pattern and its replacement, applied to names one after the other before
            the rules: for the names of a wrapper, or of another library.
        names: a function from the state dict to new names, applied after that; names that it leaves
            out are dropped for the reason ``outside``.
        outside: why names that ``names`` leaves out are dropped.
        then: the source to whose names the rules convert; None: to this project's names.
        timm: the class of timm's models that weights go back to.
        of_detector: whether the names are those of a whole detector.
        files: whose files have these names, as docs/weights.md lists them.
    """

    name: str
    rules: Sequence[Rule] | Callable[[State], Sequence[Rule]]
    parts: Sequence[tuple[str, str]] = ()
    names: Callable[[State], Mapping[str, str]] | None = None
    outside: str = ''
    then: Source | None = None
    timm: Family | None = None
    of_detector: bool = False
    files: str = ''

    def __call__(self, state_dict: State) -> Converted:
        """Convert a state dict by the rules of this source.

        Raises:
            ValueError: as :func:`apply_rules`.
        """
        new = {name: name for name in state_dict}
        for pattern, text in self.parts:
            new = {old: re.sub(pattern, text, name) for old, name in new.items()}
        if self.names is not None:
            named = self.names({name: state_dict[old] for old, name in new.items()})
            new = {old: named[name] for old, name in new.items() if name in named}
        in_file = {name: old for old, name in new.items()}
        if len(in_file) < len(new):
            counts = Counter(new.values())
            same = names_text([old for old, name in new.items() if counts[name] > 1])
            raise ValueError(f'{same} are names of the same weights')
        state: State = {name: state_dict[old] for name, old in in_file.items()}
        rules = self.rules(state) if callable(self.rules) else self.rules
        converted = apply_rules(state, rules, self.name, in_file)
        outside = dict.fromkeys((name for name in state_dict if name not in new), self.outside)
        if self.then is None:
            return replace(converted, dropped=outside | converted.dropped)
        last = self.then(converted.state_dict)
        others = {in_file.get(name, name): reason for name, reason in last.dropped.items()}
        return Converted(last.state_dict, outside | converted.dropped | others,
                         {**converted.computed, **last.computed}, self.name)


#: What a placeholder in a template stands for: the numbers n and m, a kind of parameter p, encoder
#: or decoder c, iRPE's sides s and axes a.
PLACES = {'n': r'\d+', 'm': r'\d+', 'p': 'weight|bias', 'c': 'encoder|decoder', 's': '[qkv]',
          'a': 'rows|cols'}
Names = str | tuple[str, ...]
#: A function that makes the tensors of one side's names from those of the other side.
Change = Callable[..., Tensor | Sequence[Tensor]]


class Pair(NamedTuple):
    """The names of the same weights in a source and here, ``('blocks.{n}.ls1.gamma',
    'backbone.blocks.{n}.ls1.gamma')``; see :data:`PLACES` for what braces stand for.

    Args:
        theirs, ours: a template, or several where one tensor there is several here or the reverse.
            All of a side hold the same places, and are all there or none.
        there, back: what becomes of the tensors of ``theirs``, one argument each, and of ``ours``:
            a tensor, or one for each name of the other side. None: only the name changes.
    """

    theirs: Names
    ours: Names
    there: Change | None = None
    back: Change | None = None


def same_name_pairs(*templates: str) -> tuple[Pair, ...]:
    """Pairs of weights that have the same name in a source and, behind 'backbone.', in this
    project."""
    return tuple(Pair(text, f'backbone.{text}') for text in templates)


def joined_pair(theirs: tuple[str, ...], ours: str) -> Pair:
    """Pair several tensors of one shape in a source with one tensor here that holds them one after
    the other."""
    return Pair(theirs, ours, lambda *parts: torch.cat(parts),
                lambda whole: whole.chunk(len(theirs)))


def rules_to_ours(pairs: Iterable[Pair]) -> tuple[Rule, ...]:
    """Rules from a source's names to this project's."""
    return tuple(rule for pair in pairs
                 for rule in _renaming_rules(pair.theirs, pair.ours, pair.there))


def rules_to_theirs(pairs: Iterable[Pair]) -> tuple[Rule, ...]:
    """Rules from this project's names to a source's."""
    return tuple(rule for pair in pairs
                 for rule in _renaming_rules(pair.ours, pair.theirs, pair.back))


def _renaming_rules(source: Names, target: Names, change: Change | None) -> list[Rule]:
    """Make a rule for each source name. The rule of the first name makes all target tensors, and
    those of the others make nothing."""
    sources = (source,) if isinstance(source, str) else source
    targets = (target,) if isinstance(target, str) else target

    def renamed_tensors(match: re.Match[str], tensor: Tensor, state: Mapping[str, Tensor]
                        ) -> Mapping[str, Tensor]:
        names = [text.format(**match.groupdict()) for text in sources]
        missing = [name for name in names if name not in state]
        if missing:
            raise ValueError(f'{match.group(0)} is there without {names_text(missing)}')
        if match.group(0) != names[0]:
            return {}
        tensors = change(*(state[name] for name in names)) if change else tensor
        tensors = (tensors,) if isinstance(tensors, Tensor) else tensors
        return {text.format(**match.groupdict()): part
                for text, part in zip(targets, tensors, strict=True)}
    return [Rule(_pattern_of_template(text), renamed_tensors) for text in sources]


def _pattern_of_template(text: str) -> str:
    return re.sub(r'\\{(\w)\\}', lambda match: f'(?P<{match[1]}>{PLACES[match[1]]})',
                  re.escape(text))


def names_text(names: Sequence[object], most: int = 8) -> str:
    """The first of many names for a message, and how many more there are."""
    words = [str(name) for name in names[:most]]
    if len(names) > most:
        words.append(f'and {len(names) - most} more')
    return ', '.join(words)
