"""Differences between means over seeds, their errors, intervals and tests; pure functions.

Why they are made so is in docs/report.md; benchmarks/statistics_power.py counts how often they err.
"""
from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, variance
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.05      # of a family of tests, and what 95% intervals leave out
LEAST_RUNS = 3    # fewer runs of an encoding than this are not tested
SPREAD = 1e-6     # of the values: what is less is the rounding of metrics in float32
POOLED = 0.5      # of an encoding's variance: the part that is the mean of all encodings
BETTER, WORSE, SAME, FEW = 'better', 'worse', 'no difference seen', 'too few runs'

#: encoding -> seed -> value
Values = dict[str, dict[int, float]]


class Contrast(NamedTuple):
    """A weighted sum of means: of how many runs (the least of its encodings), its value, its
    standard error and the error's degrees of freedom; None where they are not known."""

    n: int
    mean: float | None
    error: float | None
    freedom: float | None


def contrast(values: Values, weights: Mapping[str, float]) -> Contrast:
    r"""A weighted sum of encodings' means, such as one minus another, with its standard error.

    The variance of encoding i is half its own and half the mean of all, :math:`\bar s^2` (by
    degrees of freedom :math:`f_j`): :math:`v_i = (s_i^2 + \bar s^2) / 2`, and the square of the
    error :math:`\sum_i w_i^2 v_i / n_i`. That is a sum :math:`\sum_j a_j s_j^2` over all encodings,
    whose degrees of freedom are Satterthwaite's (1946), :math:`(\sum_j a_j s_j^2)^2 / \sum_j (a_j
    s_j^2)^2 / f_j`. Of two encodings with as many runs each it is Welch's t test.

    Args:
        values: at one size, of all encodings; those with a single run say nothing of a variance.
        weights: encoding -> its weight; the others have 0.
    """
    runs = {name: list(seeds.values()) for name, seeds in values.items()}
    n = min(len(runs.get(name, ())) for name in weights)
    if not n:
        return Contrast(0, None, None, None)
    mean = math.fsum(weight * fmean(runs[name]) for name, weight in weights.items())
    if n == 1:
        return Contrast(1, mean, None, None)
    spare = {name: len(each) - 1 for name, each in runs.items() if len(each) > 1}
    own = {name: weight ** 2 / len(runs[name]) for name, weight in weights.items()}
    shared = POOLED * sum(own.values()) / sum(spare.values())
    parts = {name: ((1 - POOLED) * own.get(name, 0) + shared * spare[name]) * variance(runs[name])
             for name in spare}
    square = math.fsum(parts.values())
    largest = max(abs(value) for name in weights for value in runs[name])
    if square <= (SPREAD * largest) ** 2:
        # Values in steps (one image more or less) may all be the same: t would be infinite, and
        # says nothing.
        return Contrast(n, mean, 0.0, None)
    below = math.fsum(part ** 2 / spare[name] for name, part in parts.items())
    return Contrast(n, mean, math.sqrt(square), square ** 2 / below)


def row(found: Contrast, count: int = 1, correction: str = '') -> dict[str, Any]:
    """What is told of a contrast that is one of several: n, mean, error, low, high, p, test and
    verdict, of which the direction is not known here.

    Args:
        found: the contrast.
        count: how many p and the interval are corrected for; 1: it alone.
        correction: the same in words.
    """
    told = dict(n=found.n, mean=found.mean, error=found.error, low=None, high=None, p=None,
                test='none: too few runs', verdict=FEW)
    if found.mean is None or found.error is None:
        return told
    half = critical(found.freedom, count) * found.error if found.freedom else 0.0
    told.update(low=found.mean - half, high=found.mean + half)
    if found.n < LEAST_RUNS:
        return told
    if not found.freedom:
        return {**told, 'test': 'none: the values have no spread', 'verdict': SAME}
    return {**told, 'p': beyond(found.mean / found.error, found.freedom, count),
            'test': f't test, half of the variance of all encodings{correction}', 'verdict': SAME}


def family(values: Values, against: str, count: int, higher_is_better: bool,
           ) -> list[dict[str, Any]]:
    """Rows of every other encoding minus one, corrected for so many comparisons."""
    rows = [dict(encoding=name, against=against, **row(
        contrast(values, {name: 1, against: -1}), count, f', T3 over {count}'))
        for name in values if name != against]
    for each in rows:
        if each['p'] is not None and each['p'] < LEVEL:
            each['verdict'] = BETTER if (each['mean'] > 0) == higher_is_better else WORSE
    return rows


def beyond(t: float, freedom: float, count: int = 1) -> float:
    r"""The chance that the largest of several :math:`|t|` is at least so large where there is no
    difference: the studentized maximum modulus, :math:`\int 1 - (2 \Phi(t s) - 1)^m dF(s)` with
    :math:`s^2 \sim \chi^2_f / f`. Of one comparison it is Student's, two-sided.

    Dunnett (1980) corrects so for all pairs with variances that need not be equal ("T3").
    """
    from scipy import integrate, special, stats
    low, high = stats.chi2.ppf(1e-12, freedom), stats.chi2.isf(1e-14, freedom)

    def inside(log: Any) -> Any:
        square = np.exp(log)
        within = 1 - 2 * special.ndtr(-abs(t) * np.sqrt(square / freedom))
        return (1 - within ** count) * square * stats.chi2.pdf(square, freedom)

    return float(integrate.fixed_quad(inside, math.log(low), math.log(high), n=96)[0])


def critical(freedom: float, count: int = 1) -> float:
    """How many standard errors a difference must be from 0 for :func:`beyond` to be the level."""
    from scipy import optimize, stats
    return float(optimize.brentq(lambda t: beyond(t, freedom, count) - LEVEL,
                                 stats.t.isf(LEVEL / 1.9, freedom),
                                 stats.t.isf(LEVEL / 2.1 / count, freedom)))
