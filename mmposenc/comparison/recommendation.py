"""Which encoding to take, why, and how sure that is: the rules of docs/report.md."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .differences import BETTER, LEAST_RUNS, WORSE, Values, contrast
from .formats import names_in_words, value_text
from .statistics import best_of, factors, interval, labels, trained_factor, values_at
from .tables import cost

SHOWN, LIKELY, OPEN = 'shown', 'likely', 'open'


def recommend(results: Mapping[str, Any]) -> dict[str, Any]:
    """The encoding to take, from results with 'summary' and 'differences'.

    The best mean at the trained size leads. Encodings within one standard error of it are level
    with it (the rule of Breiman et al. 1984); of those the best over the other sizes is taken, and
    where these do not part them, the cheapest. One of which a run diverged is taken only where it
    leads and none is level with it.

    Returns:
        encoding (None where no run has finished), reason, sure, and confidence: 'shown' where
        every other encoding is worse by its test, 'likely' where it leads by more than a standard
        error of three seeds, else, and where a run of it diverged, 'open'.
    """
    trained = trained_factor(results)
    higher = results['metric']['higher_is_better']
    values = values_at(results, trained)
    leader = best_of(values, higher)
    if leader is None:
        return dict(encoding=None, reason='No run has finished with a value at the trained size.',
                    sure='Nothing is sure yet.', confidence=OPEN)
    known = [name for name in values if values[name]]
    if len(known) == 1:
        reason = f'It is the only encoding with a finished run.{_lost(results, leader)}'
        return dict(encoding=leader, reason=reason,
                    sure='Nothing is sure: there is nothing to compare it with.', confidence=OPEN)
    tied = level(values, leader, higher, [name for name in known if not diverged(results, name)])
    if len(tied) == 1:
        taken, reason = leader, _leads(results, values, leader)
    else:
        taken, reason = _part(results, values, tied, leader)
    return dict(encoding=taken, reason=reason, **certainty(results, leader, tied))


def level(values: Values, leader: str, higher_is_better: bool, candidates: Sequence[str],
          ) -> list[str]:
    """The leader and the candidates that are within one standard error of it, in their order."""
    def near(name: str) -> bool:
        told = contrast(values, {name: 1, leader: -1})
        if told.mean is None:
            return False
        behind = -told.mean if higher_is_better else told.mean
        return behind <= (told.error or 0 if told.n >= LEAST_RUNS else 0)
    return [name for name in values if name == leader or name in candidates and near(name)]


def diverged(results: Mapping[str, Any], name: str) -> int:
    """How many runs of an encoding diverged."""
    return sum(run['encoding'] == name and run['status'] == 'diverged' for run in results['runs'])


def over_other_sizes(results: Mapping[str, Any], names: Sequence[str]) -> Values:
    """encoding -> seed -> mean over the sizes that were not trained, of seeds that have them all;
    empty where there is no such size or one of the encodings has no such seed."""
    others = [values_at(results, factor) for factor in factors(results)
              if factor != trained_factor(results)]
    if not others:
        return {}
    means = {name: {seed: sum(at[name][seed] for at in others) / len(others)
                    for seed in others[0][name] if all(seed in at[name] for at in others)}
             for name in names}
    return means if all(means.values()) else {}


def _leads(results: Mapping[str, Any], values: Values, leader: str) -> str:
    metric, label = results['metric'], labels(results)
    rest = {name: seeds for name, seeds in values.items() if name != leader}
    second = best_of(rest, metric['higher_is_better'])
    assert second is not None
    one, other = (interval(list(values[name].values())) for name in (leader, second))
    seeds = f'mean of {one["n"]} seeds' if one['n'] > 1 else 'one seed'
    return (f'{label[leader]} has the {_best_word(metric)} {metric["label"]} at the trained size, '
            f'{value_text(one["mean"], metric, unit=True)} ({seeds}). Next is {label[second]} with '
            f'{value_text(other["mean"], metric, unit=True)}.{_lost(results, leader)}')


def _lost(results: Mapping[str, Any], name: str) -> str:
    """A sentence of what an encoding's mean leaves out, behind another one; '' where nothing is.
    """
    count = diverged(results, name)
    if not count:
        return ''
    own = sum(run['encoding'] == name and run['status'] in ('finished', 'diverged')
              for run in results['runs'])
    return f' Of {labels(results)[name]} {count} of {own} runs diverged; its mean is of the others.'


def _part(results: Mapping[str, Any], values: Values, tied: Sequence[str], leader: str,
          ) -> tuple[str, str]:
    """Of level encodings the one to take, and why."""
    metric, label = results['metric'], labels(results)
    who = names_in_words([label[name] for name in tied])
    error = min(len(values[leader]), max(len(values[name]) for name in tied if name != leader)
                ) >= LEAST_RUNS
    how = 'within one standard error of the best' if error else 'the same'
    reason = f'No difference seen at the trained size between {who}: their means are {how}.'
    if lost := _lost(results, leader):
        tied = [name for name in tied if name != leader]
        reason += f'{lost} It is not taken.'
        if len(tied) == 1:
            return tied[0], f'{reason} Take {label[tied[0]]}.'
    others = over_other_sizes(results, tied)
    if others:
        best = best_of(others, metric['higher_is_better'])
        assert best is not None
        left = level(others, best, metric['higher_is_better'], tied)
        if len(left) == 1:
            mean = interval(list(others[best].values()))['mean']
            return best, (f'{reason} Over the other sizes {label[best]} has the '
                          f'{_best_word(metric)} mean, {value_text(mean, metric, unit=True)}.')
        reason += (' The other sizes do not part '
                   f'{names_in_words([label[name] for name in left])} either.')
        tied = left
    cheapest = min(tied, key=lambda name: _cost(results, name))
    return cheapest, f'{reason} So take the cheapest: {label[cheapest]}.'


def _cost(results: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Multiply-accumulates at the trained size, then parameters; what is not known comes last."""
    encoding = next(each for each in results['encodings'] if each['name'] == name)
    macs, unknown = cost(encoding, trained_factor(results), 'macs'), float('inf')
    return (unknown if macs is None else macs,
            unknown if encoding.get('parameters') is None else encoding['parameters'])


def certainty(results: Mapping[str, Any], leader: str, tied: Sequence[str]) -> dict[str, str]:
    """'confidence' and 'sure': what the tests show, and what they do not."""
    label = labels(results)
    trained = trained_factor(results)
    rows = [row for row in results['differences']
            if row['factor'] == trained and row['against'] == leader]
    worse, unsure = beside(results, trained, leader)
    untested = rows and all(row['n'] < LEAST_RUNS for row in rows)
    if untested:
        sure = (f'Nothing is sure: no two encodings, of which one is {label[leader]}, have '
                f'{LEAST_RUNS} finished runs each, so that no difference was tested.')
    else:
        sure = ''
        if worse:
            verb = 'are' if len(worse) > 1 else 'is'
            sure += (f'Shown: {names_in_words([label[name] for name in worse])} {verb} worse than '
                     f'{label[leader]} at the trained size (t tests, corrected for each other, '
                     'p < 0.05). ')
        if unsure:
            sure += (f'Not shown: any difference between {label[leader]} and '
                     f'{names_in_words([label[name] for name in unsure], "or")}; '
                     'more seeds may tell.')
    alone = len(tied) == 1 and not untested and not diverged(results, leader)
    return dict(sure=sure.strip(),
                confidence=SHOWN if alone and not unsure else LIKELY if alone else OPEN)


def beside(results: Mapping[str, Any], factor: float, best: str) -> tuple[list[str], list[str]]:
    """At a size, the encodings that are shown to be worse than the best, and those that are not."""
    at = [row for row in results['differences'] if row['factor'] == factor]
    # The base has a test of its own, of a smaller family than that of the best.
    beaten = {row['against'] for row in at if row['role'] == 'base' and row['encoding'] == best
              and row['verdict'] == BETTER}
    rows = [row for row in at if row['against'] == best and row['n']]
    worse = [row['encoding'] for row in rows
             if row['verdict'] == WORSE or row['encoding'] in beaten]
    return worse, [row['encoding'] for row in rows if row['encoding'] not in worse]


def _best_word(metric: Mapping[str, Any]) -> str:
    return 'highest' if metric['higher_is_better'] else 'lowest'
