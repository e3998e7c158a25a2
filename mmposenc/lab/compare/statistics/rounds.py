"""A study that adds seeds until it is decided: what each look at the values says. Pure functions.

The looks share the 5% of error by the seeds that are new in them, so that looking often makes no
error likelier. All is computed from the runs each time, so that a kill does not change a decision.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from .differences import ERROR, SAME, Place, Values, best_of, contrast, judged, places


class Decision(NamedTuple):
    """What is known by the last look whose runs are over.

    Attributes:
        places: how each encoding stands; what was ruled out once stays so.
        error: of the last look.
        seeds: of each of those that are left; 0 before the first look.
        reason: why no more seeds are needed; empty where they are.
    """

    places: dict[str, Place]
    error: float
    seeds: int = 0
    reason: str = ''


def rounds_of(first: int, most: int) -> tuple[int, ...]:
    """How many seeds there are at each look: half as many more each time.

    Raises:
        ValueError: the first look has fewer than 3 seeds, or more than the last.
    """
    if not 3 <= first <= most:
        raise ValueError(f'--until-decided looks first at --seeds {first} and last at --most-seeds '
                         f'{most}: these must be at least 3, and the first not above the last')
    found = [first]
    while found[-1] < most:
        found.append(min(most, found[-1] + max(1, found[-1] // 2)))
    return tuple(found)


def shares(rounds: Sequence[int]) -> list[float]:
    """The error of each look."""
    return [ERROR * (n - before) / rounds[-1] for before, n in pairwise((0, *rounds))]


def replay(results: Mapping[str, Any], values: Values, margin: float) -> Decision:
    """All looks of a study, one after the other; what is out stays out.

    Args:
        results: with 'rounds', the numbers of seeds at the looks.
        values: at the trained size.
        margin: what is closer is level.
    """
    rounds, higher = results['rounds'], results['metric']['higher_is_better']
    seeds = list(dict.fromkeys(run['seed'] for run in results['runs']))
    pending = {(run['encoding'], run['seed']) for run in results['runs']
               if run['status'] in ('waiting', 'running')}
    now = Decision(dict.fromkeys(values, Place(None, None)), shares(rounds)[0])
    for n, share in zip(rounds, shares(rounds), strict=True):
        left = [name for name, place in now.places.items() if place.by is None]
        if len(seeds) < n or any((name, seed) in pending for name in left for seed in seeds[:n]):
            break
        at = {name: {seed: own[seed] for seed in seeds[:n] if seed in own}
              for name, own in values.items()}
        stand = {**now.places, **{name: place for name, place in places(at, higher, share).items()
                                  if name in left}}
        now = Decision(stand, share, n, _reason(at, stand, higher, margin, n == rounds[-1]))
        if now.reason:
            break
    return now


def _reason(values: Values, stand: Mapping[str, Place], higher: bool, margin: float, last: bool,
            ) -> str:
    """Why no more seeds are needed."""
    left = [name for name, place in stand.items() if place.by is None]
    if len(left) == 1:
        return 'Decided: no other can be the best.'
    best = best_of({name: values[name] for name in left}, higher) or left[0]
    if all(judged(contrast(values, {name: 1, best: -1}), higher, margin, stand[name].reach)
           ['verdict'] == SAME for name in left if name != best):
        return 'Decided: all that can be best are level.'
    return 'The largest number of seeds is reached.' if last else ''
