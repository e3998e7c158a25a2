"""Means over seeds, their intervals, and which differences a study has; pure functions.

How the numbers are to be read is in docs/report.md. Nothing here knows how runs are made.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .differences import LEVEL, Values, family


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
