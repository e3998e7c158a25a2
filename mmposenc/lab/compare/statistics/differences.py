"""Differences between means over seeds: their errors, what they show, and what can still be best.

Pure functions. Why they are made so is in docs/report.md; benchmarks/statistics_power.py counts how
often they err.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, variance
from typing import NamedTuple

import numpy as np

from .results import Row, Values

ERROR = 0.05  # the chance of a false statement in a family of comparisons
LEAST_RUNS = 3  # encodings with fewer runs than this are not tested
SPREAD = 1e-6  # relative to the values: less is only the rounding of metrics in float32
DRAWS = 10_000  # draws of a parametric bootstrap
TRAINED = 1.0  # the size of training, as a factor of itself
BETTER, WORSE, SAME, OPEN = 'better', 'worse', 'level', 'no measurable difference'


class Contrast(NamedTuple):
    """A weighted sum of means: the smallest number of runs of its encodings, its value, its
    standard error, and the error's degrees of freedom. The last two are None if they are not known.
    """

    n: int
    mean: float | None
    error: float | None
    freedom: float | None


def weighted_contrast(values: Values, weights: Mapping[str, float]) -> Contrast:
    r"""A weighted sum of encodings' means, such as one minus another, with Welch's standard error.

    The square of the error is :math:`\sum_i w_i^2 s_i^2 / n_i`; its degrees of freedom are
    Satterthwaite's (1946). Seeds are not paired: in docs/studies they have nothing in common.

    Args:
        values: at one size.
        weights: encoding -> its weight.
    """
    runs = [(weight, list(values.get(name, {}).values())) for name, weight in weights.items()]
    n = min(len(each) for _, each in runs)
    if not n:
        return Contrast(0, None, None, None)
    mean = math.fsum(weight * fmean(each) for weight, each in runs)
    if n == 1:
        return Contrast(1, mean, None, None)
    parts = [(weight ** 2 * variance(each) / len(each), len(each) - 1) for weight, each in runs]
    square = math.fsum(part for part, _ in parts)
    largest = max(abs(value) for _, each in runs for value in each)
    if square <= (SPREAD * largest) ** 2:
        # Values come in steps (one image more or less) and may all be equal: t would then be
        # infinite, which says nothing.
        return Contrast(n, mean, 0.0, None)
    return Contrast(n, mean, math.sqrt(square),
                    square ** 2 / math.fsum(part ** 2 / free for part, free in parts))


def reach_over_images(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]
                      ) -> float | None:
    """How far the 95% interval reaches in which the difference of the same models lies on other
    images: the jackknife of groups of images (Tukey 1958), which both encodings saw.

    Args:
        one, other: for each run of an encoding, its value without each group.
    """
    from scipy import stats
    if not (one and other):
        return None
    gaps = np.mean(one, 0) - np.mean(other, 0)
    spread = math.sqrt((len(gaps) - 1) / len(gaps) * float(((gaps - gaps.mean()) ** 2).sum()))
    return float(stats.t.isf(ERROR / 2, len(gaps) - 1)) * spread


class Standing(NamedTuple):
    """How an encoding stands among others: ``by`` is the encoding that rules it out, or None;
    ``reach`` is how many standard errors its bounds against the others are wide, None if it was not
    tested."""

    by: str | None
    reach: float | None


def verdict_row(difference: Contrast, margin: float, reach: float | None = None) -> Row:
    """A row of what a contrast says: n, mean, error, low, high, margin and verdict.

    'better' and 'worse' where the interval leaves out 0; else 'level' where it lies within the
    margin (two one-sided tests, TOST); else 'no measurable difference'.

    Args:
        difference: a contrast, of a metric of which more is better.
        margin: what is closer is level.
        reach: the width of the interval in standard errors, if the contrast is one of several.
            None: it stands alone, with a 95% interval by Student's t, and a 90% interval for the
            margin, so that either errs in 5% of all cases.
    """
    from scipy import stats
    row: dict[str, object] = dict(n=difference.n, mean=difference.mean, error=difference.error,
                               low=None, high=None, margin=margin, verdict=OPEN)
    if difference.mean is None or not difference.error:
        return row
    wide, inner = (reach, reach) if reach is not None else (
        float(stats.t.isf(tail, difference.freedom)) for tail in (ERROR / 2, ERROR))
    row.update(low=difference.mean - wide * difference.error,
               high=difference.mean + wide * difference.error)
    if difference.n >= LEAST_RUNS:
        if abs(difference.mean) > wide * difference.error:
            row['verdict'] = BETTER if difference.mean > 0 else WORSE
        elif abs(difference.mean) + inner * difference.error < margin:
            row['verdict'] = SAME
    return row


def standings(values: Values) -> dict[str, Standing]:
    """How each encoding stands, by multiple comparisons with the best (Hsu 1981).

    One is ruled out where the upper bound of its mean minus another's is below 0. The chance that
    the true best is ruled out is at most 5%. What has fewer than three runs never is.

    Args:
        values: at one size; more is better.
    """
    by_encoding = {}
    reach = reach_in_standard_errors(values, values, 1)
    for name in values:
        bounds = {}
        for other in reach if name in reach else ():
            gap = weighted_contrast(values, {name: 1, other: -1})
            if other != name and gap.error and gap.mean is not None:
                bounds[other] = gap.mean + reach[name] * gap.error
        by = min(bounds, key=lambda other: bounds[other], default=None)
        by_encoding[name] = Standing(by if by is not None and bounds[by] < 0 else None,
                                     reach.get(name))
    return by_encoding


def reach_in_standard_errors(values: Values, names: Iterable[str], tails: int) -> dict[str, float]:
    r"""For each encoding, how many standard errors wide the bounds of its differences from all
    others are.

    They are as wide that, if all means were equal, the largest :math:`(\bar x_j - \bar x_i) /
    \sqrt{s_i^2 / n_i + s_j^2 / n_j}` over all j would exceed this width with a chance of 5%. The
    width is found by random draws with the observed spreads (parametric bootstrap: Krishnamoorthy,
    Lu and Mathew 2007), always with the same random numbers.

    Args:
        values: at one size; encodings with fewer than three runs are left out.
        names: for which of them.
        tails: 1, or 2 for the largest :math:`|t|`.
    """
    runs = {name: list(seeds.values()) for name, seeds in values.items()
            if len(seeds) >= LEAST_RUNS}
    if len(runs) < 2:
        return {}
    draws, free = np.random.default_rng(0), [len(each) - 1 for each in runs.values()]
    squares = np.array([variance(each) / len(each) for each in runs.values()])
    means = draws.standard_normal((DRAWS, len(runs))) * np.sqrt(squares)
    drawn = draws.chisquare(free, means.shape) / free * squares
    reach_of = {}
    for index, name in enumerate(runs):
        if name in names:
            with np.errstate(invalid='ignore'):  # Two encodings may both have no spread at all.
                t = (means - means[:, [index]]) / np.sqrt(drawn + drawn[:, [index]])
            t = np.nan_to_num(np.abs(t) if tails == 2 else t)
            reach_of[name] = float(np.quantile(np.delete(t, index, 1).max(1), 1 - ERROR))
    return reach_of
