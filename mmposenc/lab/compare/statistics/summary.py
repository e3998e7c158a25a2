"""Means over seeds, their intervals, and which differences a study has; pure functions.

How the numbers are to be read is in docs/report.md. Nothing here knows how runs are made.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from .differences import BETTER, LEAST_RUNS, LEVEL, WORSE, Values, contrast, family
from .formats import cost, names_in_words, value_text


def summarize(results: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a study with 'summary', 'differences' and 'recommendation' (docs/report.md).

    Args:
        results: as in results.json, schema 1; it is not changed.

    Returns:
        A copy with the three keys; what was there under them is replaced.

    Raises:
        ValueError: another schema, a missing key, or a run that is there twice.
    """
    check(results)
    summary, differences = [], []
    for factor in factors(results):
        values = values_at(results, factor)
        summary += [dict(encoding=name, factor=factor, **interval(list(seeds.values())))
                    for name, seeds in values.items()]
        differences += compare(values, base_of(results), results['metric']['higher_is_better'],
                               factor)
    told = {**results, 'summary': summary, 'differences': differences}
    return {**told, 'recommendation': recommend(told)}


def check(results: Mapping[str, Any]) -> None:
    """Raises ValueError where results are not what the schema says."""
    if results.get('schema') != 1:
        raise ValueError(f"results['schema'] is {results.get('schema')!r}; this version reads 1")
    missing = [key for key in ('metric', 'sizes', 'encodings', 'runs') if key not in results]
    if missing:
        raise ValueError(f'results has no {", ".join(map(repr, missing))}')
    if not results['sizes'] or not results['encodings']:
        raise ValueError("results['sizes'] and results['encodings'] need an entry each")
    names = [each['name'] for each in results['encodings']]
    seen = set()
    for run in results['runs']:
        key = run['encoding'], run['seed']
        if run['encoding'] not in names:
            raise ValueError(f"results['runs'] names the encoding {run['encoding']!r}; "
                             f"results['encodings'] has {', '.join(map(repr, names))}")
        if key in seen:
            raise ValueError(f"results['runs'] holds encoding {key[0]!r}, seed {key[1]} twice")
        seen.add(key)


def factors(results: Mapping[str, Any]) -> list[float]:
    """The image sizes of a study, as multiples of the trained size, ascending."""
    return sorted(each['factor'] for each in results['sizes'])


def trained_factor(results: Mapping[str, Any]) -> float:
    """The size of training: what says so, else 1, else the one nearest to 1."""
    trained = [each['factor'] for each in results['sizes'] if each.get('trained')]
    return float(trained[0] if trained else min(factors(results), key=lambda f: abs(f - 1)))


def base_of(results: Mapping[str, Any]) -> str:
    """What others are compared with: 'none', or else the first encoding."""
    names = [each['name'] for each in results['encodings']]
    return 'none' if 'none' in names else str(names[0])


def labels(results: Mapping[str, Any]) -> dict[str, str]:
    """encoding -> its name for people, in the order of the study."""
    return {each['name']: each['label'] for each in results['encodings']}


def values_at(results: Mapping[str, Any], factor: float) -> Values:
    """encoding -> seed -> value at a size, of finished runs alone; every encoding has an entry.

    A run that diverged or failed has no value, and neither has one whose value is not finite.
    """
    values: Values = {each['name']: {} for each in results['encodings']}
    for run in results['runs']:
        if run['status'] != 'finished':
            continue
        for test in run['tests']:
            value = test['value']
            if test['factor'] == factor and value is not None and math.isfinite(value):
                values[run['encoding']][run['seed']] = float(value)
    return values


def interval(values: Sequence[float]) -> dict[str, Any]:
    """n, mean, sample standard deviation and 95% interval of the mean (Student); None where n is
    too small for one."""
    from scipy import stats
    n = len(values)
    told: dict[str, Any] = dict(n=n, mean=fmean(values) if n else None, std=None, low=None,
                                high=None)
    if n > 1:
        std = stdev(values)
        half = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * std / math.sqrt(n)
        told.update(std=std, low=told['mean'] - half, high=told['mean'] + half)
    return told


def compare(values: Values, base: str, higher_is_better: bool, factor: float,
            ) -> list[dict[str, Any]]:
    """Differences of every encoding from the base, and from the best at this size.

    The base is chosen before anything is measured: its family has a comparison for each other
    encoding. The best is chosen by the values that are tested, so that its family is every pair.
    An encoding with a single run is in none: it has no error.

    Args:
        values: at one size.
        base: an encoding.
        higher_is_better: of the metric.
        factor: the size; goes into the rows.

    Returns:
        Rows of 'differences'; none against the best where the base is the best.
    """
    best = best_of(values, higher_is_better)
    others = max(1, sum(len(seeds) > 1 for seeds in values.values()) - 1)
    families = [('base', base, others)]
    if best not in (None, base):
        families.append(('best', str(best), others * (others + 1) // 2))
    return [dict(encoding=row.pop('encoding'), against=row.pop('against'), role=role,
                 factor=factor, **row)
            for role, against, count in families
            for row in family(values, against, count, higher_is_better)]


def best_of(values: Values, higher_is_better: bool) -> str | None:
    """The encoding with the best mean; the first of equal ones; None where nothing is known."""
    means = {name: interval(list(seeds.values()))['mean']
             for name, seeds in values.items() if seeds}
    if not means:
        return None
    return (max if higher_is_better else min)(means, key=lambda name: means[name])


# Which encoding to take, why, and how sure that is: the rules of docs/report.md.


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
