"""Rename the parameters of a release by rules that account for every one of them.

Where weights go back too, names are a table of :class:`Pair`, from which the rules of both
directions come: :func:`rules_to_ours`, :func:`rules_to_theirs`.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

SUPPORTED = ('supported are files of DeiT, DeiT III, ViT-5, MAE, DINO, DINOv2, DINOv3, Sapiens2, '
             'CLIP, SigLIP, SAM, SAM 3, DeepSeek-V4, ViTDet, iRPE-DeiT, PVT, PVT v2, SegFormer, '
             'Twins, Swin, ConvNeXt, DETR, iRPE-DETR, Deformable DETR, RT-DETR, D-FINE, RF-DETR, '
             "and timm's of the models that docs/weights.md lists")

#: What to do with the weights of a whole detector.
DETECTOR = ('a whole detector: convert them with `mmposenc convert {source}`, and give the result '
            'to load_from')
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


class UnknownNames(ValueError):
    """The rules of a source do not know all names of a file.

    Args:
        source: its name.
        unknown: the names.
        count: how many names the file has.
    """

    def __init__(self, source: str, unknown: Sequence[str], count: int) -> None:
        super().__init__(f'source={source!r} has no rule for {len(unknown)} of {count} parameters: '
                         f'{names_text(sorted(unknown))}; {SUPPORTED}')
        self.unknown, self.count = unknown, count


def match_rules(names: Iterable[str], rules: Sequence[Rule]
                ) -> tuple[dict[str, tuple[re.Match[str], Rule]], list[str]]:
    """The first rule that matches each name, with its match, and the names that none matches."""
    patterns = [(re.compile(rule.pattern), rule) for rule in rules]
    matches, unknown = {}, []
    for name in names:
        known = next(((match, rule) for pattern, rule in patterns
                      if (match := pattern.fullmatch(name))), None)
        if known is None:
            unknown.append(name)
        else:
            matches[name] = known
    return matches, unknown


def apply_rules(state_dict: Mapping[str, Tensor],
                matches: Mapping[str, tuple[re.Match[str], Rule]], source: str) -> Converted:
    """Convert the weights whose names have rules, as :func:`match_rules` returns them.

    Raises:
        ValueError: names that collide, or what a rule says about values.
    """
    converted: dict[str, Tensor] = {}
    dropped: dict[str, str] = {}
    computed: dict[str, Tensor] = {}
    for name, (match, rule) in matches.items():
        tensor = state_dict[name]
        if rule.target is None:
            dropped[name] = rule.reason
            if rule.check is not None:
                computed.update(rule.check(match, tensor, state_dict))
            continue
        renamed = ({match.expand(rule.target): tensor} if isinstance(rule.target, str)
                   else rule.target(match, tensor, state_dict))
        clash = sorted(set(renamed) & set(converted))
        if clash:
            raise ValueError(f'source={source!r}: {name} becomes {clash[0]}, which another '
                             f'parameter became before')
        converted.update(renamed)
    return Converted(converted, dropped, computed, source)


State = Mapping[str, Tensor]
#: The first rule for each name, with its match.
Matches = dict[str, tuple['re.Match[str]', Rule]]


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


class Refusal(NamedTuple):
    """A network that a source's rules do not know, or whose names they know although the model here
    would compute other features.

    Args:
        has, lacks: patterns. A file is of the network if a name matches the first, and none the
            second.
        text: what the file is, for the message, and what to take instead.
    """

    has: str
    lacks: str
    text: str

    def check(self, names: Iterable[str], all_names: Iterable[str]) -> None:
        """Refuse a file of the network.

        Args:
            names: those among which :attr:`has` is sought.
            all_names: all names of the file.

        Raises:
            ValueError: it is one.
        """
        if any(re.fullmatch(self.has, name) for name in names) and not any(
                re.fullmatch(self.lacks, name) for name in all_names):
            raise ValueError(f'these are weights of {self.text}; {SUPPORTED}')


def only_of_timm(has: str, who: str, model: str) -> Refusal:
    """Refuse models of which only timm's files load.

    Args:
        has: a pattern that names of other files match.
        who: what such files are.
        model: one of timm's models.
    """
    return Refusal(has, '', f"{who}, which load in timm's names alone: give "
                            f"checkpoint='timm://{model}', or another of timm's models of them")


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
        network: for weights that get the names of another library's network: which it is, and what
            to do with them if a backbone of this project gets them; '' for all others.
        files: whose files have these names, as docs/weights.md lists them.
        refuses: other networks with names like these.
    """

    name: str
    rules: Sequence[Rule] | Callable[[State], Sequence[Rule]]
    parts: Sequence[tuple[str, str]] = ()
    names: Callable[[State], Mapping[str, str]] | None = None
    outside: str = ''
    then: Source | None = None
    timm: Family | None = None
    network: str = ''
    files: str = ''
    refuses: Sequence[Refusal] = ()

    def match(self, state_dict: State) -> tuple[dict[str, str], Matches]:
        """The names that the rules read by those of the file, without those left out, and the
        matches of the former (:func:`match_rules`).

        Raises:
            UnknownNames: there are names without a rule.
        """
        new = {name: name for name in state_dict}
        for pattern, text in self.parts:
            new = {old: re.sub(pattern, text, name) for old, name in new.items()}
        if self.names is not None:
            named = self.names({name: state_dict[old] for old, name in new.items()})
            new = {old: named[name] for old, name in new.items() if name in named}
        in_file = {name: old for old, name in new.items()}
        state = {name: state_dict[old] for name, old in in_file.items()}
        matches, unknown = match_rules(state, self.rules(state) if callable(self.rules)
                                       else self.rules)
        if unknown:
            raise UnknownNames(self.name, [in_file[name] for name in unknown], len(state))
        return new, matches

    def __call__(self, state_dict: State) -> Converted:
        """Convert a state dict by the rules of this source.

        Raises:
            UnknownNames: as :meth:`match`, before values are read.
            ValueError: the weights are of a network that this source refuses, or of the same names,
                or as :func:`apply_rules` says.
        """
        new, matches = self.match(state_dict)
        in_file = {name: old for old, name in new.items()}
        state: State = {name: state_dict[old] for name, old in in_file.items()}
        if len(in_file) < len(new):
            counts = Counter(new.values())
            same = names_text([old for old, name in new.items() if counts[name] > 1])
            raise ValueError(f'{same} are names of the same weights')
        converted = apply_rules(state, matches, self.name)
        last = converted if self.then is None else self.then(converted.state_dict)
        for refusal in self.refuses:  # All names are known now.
            refusal.check(state, state)
        dropped = {in_file.get(name, name): reason
                   for name, reason in (converted.dropped | last.dropped).items()}
        outside = dict.fromkeys((name for name in state_dict if name not in new), self.outside)
        return Converted(last.state_dict, outside | dropped,
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
        try:
            tensors = change(*(state[name] for name in names)) if change else tensor
        except ValueError as error:
            raise ValueError(f'{match[0]} {error}') from error
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
