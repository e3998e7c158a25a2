"""Means over seeds, intervals, and paired differences between encodings; pure functions.

How the numbers are to be read is in docs/report.md. Nothing here knows how runs are made.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

LEVEL = 0.05      # of a test, and what 95% intervals leave out
LEAST_RUNS = 3    # fewer differences than this are not tested: two say nothing of their spread
SPREAD = 1e-6     # of the values: what is less is the rounding of metrics in float32
BETTER, WORSE, SAME, FEW = 'better', 'worse', 'no difference seen', 'too few runs'

#: encoding -> seed -> value
Values = dict[str, dict[int, float]]


def summarize(results: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a study with 'summary', 'differences' and 'recommendation' (docs/report.md).

    Args:
        results: as in results.json, schema 1; it is not changed.

    Returns:
        A copy with the three keys; what was there under them is replaced.

    Raises:
        ValueError: another schema, a missing key, or a run that is there twice.
    """
    from .recommendation import recommend
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
    if not n:
        return dict(n=0, mean=None, std=None, low=None, high=None)
    mean = math.fsum(values) / n
    if n == 1:
        return dict(n=1, mean=mean, std=None, low=None, high=None)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(stats.t.ppf(1 - LEVEL / 2, n - 1)) * std / math.sqrt(n)
    return dict(n=n, mean=mean, std=std, low=mean - half, high=mean + half)


def compare(values: Values, base: str, higher_is_better: bool, factor: float,
            ) -> list[dict[str, Any]]:
    """Differences of every encoding from the base, and from the best at this size.

    The base is chosen before anything is measured: its family of tests is one for each other
    encoding. The best is chosen by the values that are tested, so that its family is every pair.

    Args:
        values: at one size.
        base: an encoding.
        higher_is_better: of the metric.
        factor: the size; goes into the rows.

    Returns:
        Rows of 'differences'; none against the best where the base is the best.
    """
    best = best_of(values, higher_is_better)
    pairs = [(name, base) for name in values if name != base]
    rows = _family(values, pairs, higher_is_better)
    if best not in (None, base):
        # Of each pair one side is enough: turned round, a test has the same p.
        every = [pair[::-1] if pair[0] == best else pair for pair in combinations(values, 2)]
        rows += [row for row in _family(values, every, higher_is_better)
                 if row['against'] == best]
    return [dict(encoding=row.pop('encoding'), against=row.pop('against'),
                 role='base' if number < len(pairs) else 'best', factor=factor, **row)
            for number, row in enumerate(rows)]


def best_of(values: Values, higher_is_better: bool) -> str | None:
    """The encoding with the best mean; the first of equal ones; None where nothing is known."""
    means = {name: interval(list(seeds.values()))['mean']
             for name, seeds in values.items() if seeds}
    if not means:
        return None
    return (max if higher_is_better else min)(means, key=lambda name: means[name])


def _family(values: Values, pairs: Sequence[tuple[str, str]], higher_is_better: bool,
            ) -> list[dict[str, Any]]:
    """Differences of pairs, tested together: p is corrected by Holm over those that are tested."""
    rows = [dict(encoding=one, against=other, **difference(values[one], values[other]))
            for one, other in pairs]
    tested = [row for row in rows if row['p'] is not None]
    for row, p in zip(tested, holm([row['p'] for row in tested]), strict=True):
        row.update(p=p, test=f'{row["test"]}, Holm over {len(tested)}')
        if p < LEVEL:
            row['verdict'] = BETTER if (row['mean'] > 0) == higher_is_better else WORSE
    return rows


def difference(one: Mapping[int, float], other: Mapping[int, float]) -> dict[str, Any]:
    """One encoding's values minus another's: over the seeds that both have, else by Welch.

    Args:
        one, other: seed -> value.

    Returns:
        n (pairs; by Welch the smaller number of runs), mean, its standard error, 95% interval, p of
        this test by itself, the test's name, and a verdict that :func:`_family` sharpens.
    """
    shared = sorted(one.keys() & other.keys())
    if len(shared) < LEAST_RUNS <= min(len(one), len(other)):
        return _welch(list(one.values()), list(other.values()))
    differences = [one[seed] - other[seed] for seed in shared]
    told = interval(differences)
    error = None if told['std'] is None else told['std'] / math.sqrt(told['n'])
    row = dict(n=told['n'], mean=told['mean'], error=error, low=told['low'], high=told['high'],
               p=None, test='none: too few runs', verdict=FEW)
    if told['n'] < LEAST_RUNS:
        return row
    largest = max(abs(value) for seed in shared for value in (one[seed], other[seed]))
    if told['std'] <= SPREAD * largest:
        # Equal differences come of values in steps (one image more or less): t would be infinite,
        # and says nothing.
        return {**row, 'test': 'none: the differences have no spread', 'verdict': SAME}
    p = two_sided(told['mean'] / error, told['n'] - 1)
    return {**row, 'p': p, 'test': f'paired t test of {told["n"]} seeds', 'verdict': SAME}


def _welch(one: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    """Welch's t test, for runs whose seeds are not the same."""
    from scipy import stats
    a, b = interval(one), interval(other)
    mean = a['mean'] - b['mean']
    parts = [each['std'] ** 2 / each['n'] for each in (a, b)]
    error = math.sqrt(sum(parts))
    row = dict(n=min(a['n'], b['n']), mean=mean, error=error, low=mean, high=mean, p=None,
               test='none: the values have no spread', verdict=SAME)
    if error <= SPREAD * max(map(abs, (*one, *other))):
        return row
    freedom = error ** 4 / sum(part ** 2 / (each['n'] - 1)
                               for part, each in zip(parts, (a, b), strict=True))
    half = float(stats.t.ppf(1 - LEVEL / 2, freedom)) * error
    return {**row, 'low': mean - half, 'high': mean + half, 'p': two_sided(mean / error, freedom),
            'test': f"Welch's t test of {a['n']} and {b['n']} seeds"}


def two_sided(t: float, freedom: float) -> float:
    """The chance of a t at least as far from 0, where there is no difference."""
    from scipy import stats
    return float(2 * stats.t.sf(abs(t), freedom))


def holm(ps: Sequence[float]) -> list[float]:
    """p values corrected for being one of several (Holm 1979), in the order they came.

    The smallest is multiplied by their number, the next by one less, and so on; none falls below
    one before it, and none exceeds 1. The chance of any false 'difference' is so at most the level.
    """
    corrected = [0.0] * len(ps)
    least = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        least = max(least, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = least
    return corrected
