"""How far differences would be from what they are with other test images; pure functions.

Images are resampled (a bootstrap, the same images for all runs), seeds are not: with three of them
a bootstrap of seeds is far too narrow. Their part is Welch's error, as in differences.py.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .differences import Contrast

DRAWS, _AT_ONCE = 1000, 50

#: Of a run: numerators and denominators of each image (images, columns), see study/images.py.
Images = tuple[np.ndarray, np.ndarray]


def value_of(both: np.ndarray, either: np.ndarray) -> np.ndarray:
    """The metric in percent of sums (..., columns): the mean over columns that occur."""
    with np.errstate(invalid='ignore', divide='ignore'):
        shares: np.ndarray = 100 * np.nanmean(both / either, -1)
    return shares


def image_spread(runs: Mapping[str, Sequence[Images]], draws: int = DRAWS) -> dict[str, Any]:
    """What resampling the test images does to encodings' means over seeds.

    Args:
        runs: encoding -> its runs at one size, all of the same images.
        draws: of images, with replacement.

    Returns:
        ``count`` of images; ``encodings``; ``covariance`` of their means; ``own``: the part of each
        variance that is neither all runs' nor the seed's, and so is in the spread of seeds as well
        (an image that one run gets right by chance).
    """
    count = len(next(iter(runs.values()))[0][0])
    noise, drawn = np.random.default_rng(0), []
    for start in range(0, draws, _AT_ONCE):
        times = noise.multinomial(count, np.full(count, 1 / count), min(_AT_ONCE, draws - start))
        drawn.append([[value_of(times @ both, times @ either) for both, either in each]
                      for each in runs.values()])
    values = [np.concatenate([part[n] for part in drawn], 1) for n in range(len(runs))]
    scale = count / max(1, count - 1)
    means = np.stack([each.mean(0) for each in values])
    own = [scale * float((each - each.mean(0)).var(1, ddof=1).sum()) / len(each) / (len(each) - 1)
           if len(each) > 1 else 0. for each in values]
    return dict(count=count, encodings=list(runs), own=own,
                covariance=(scale * np.atleast_2d(np.cov(means))).tolist())


def by_images(row: Mapping[str, Any], found: Contrast, one: str, other: str,
              spread: Mapping[str, Any]) -> dict[str, Any] | None:
    """The interval of a difference by seeds and images; None where either is not known.

    The variance is that of seeds, and that of images but for what is in both; the chance of error
    is that of the interval by seeds, with Satterthwaite's degrees of freedom.

    Args:
        row: of :func:`.differences.judged`.
        found: the contrast that it is of.
        one, other: the encodings.
        spread: of :func:`image_spread`.

    Returns:
        ``count`` of images, ``error``, ``low``, ``high``, and ``share``: the part of the variance
        that images add.
    """
    from scipy import stats
    if not found.error or found.freedom is None or not {one, other} <= {*spread['encodings']}:
        return None
    i, j = (spread['encodings'].index(name) for name in (one, other))
    held = spread['covariance']
    seeds, images = found.error ** 2, held[i][i] + held[j][j] - 2 * held[i][j]
    whole = max(seeds, images, seeds + images - spread['own'][i] - spread['own'][j])
    freedom = whole ** 2 / (seeds ** 2 / found.freedom + images ** 2 / (spread['count'] - 1))
    reach = (row['high'] - row['low']) / 2 / found.error
    half = math.sqrt(whole) * float(stats.t.isf(stats.t.sf(reach, found.freedom), freedom))
    return dict(count=spread['count'], error=math.sqrt(whole), low=row['mean'] - half,
                high=row['mean'] + half, share=1 - seeds / whole)
