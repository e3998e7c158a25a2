"""How far differences would be from what they are with other test images; pure functions.

Images are resampled (a bootstrap, the same images for all runs), seeds are not: with three of them
a bootstrap of seeds is far too narrow. Their part is Welch's error, as in differences.py.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .differences import Contrast

DRAWS, _AT_ONCE = 1000, 50
#: Recalls at which COCO reads the precision.
RECALLS = np.linspace(0, 1, 101)


@dataclass(frozen=True)
class Shares:
    """A metric in percent that is a mean over columns of sums of one array over sums of another,
    (images, columns): pixels in the intersection and in the union of each class, or right answers
    and answers."""

    both: np.ndarray
    either: np.ndarray

    def __call__(self, times: np.ndarray) -> np.ndarray:
        """(draws,), where each image counts (draws, images) times; columns that do not occur have
        no part in it."""
        with np.errstate(invalid='ignore', divide='ignore'):
            value: np.ndarray = 100 * np.nanmean(times @ self.both / (times @ self.either), -1)
        return value


@dataclass(frozen=True)
class Boxes:
    """COCO's AP, of the boxes that were found.

    Attributes:
        image, label, score: of each box (boxes,).
        hit, ignored: whether it is right, or counts neither way, at each overlap (boxes, overlaps).
        truths: boxes that are there, in each image of each label (images, labels).
    """

    image: np.ndarray
    label: np.ndarray
    score: np.ndarray
    hit: np.ndarray
    ignored: np.ndarray
    truths: np.ndarray

    def __call__(self, times: np.ndarray) -> np.ndarray:
        """As :meth:`Shares.__call__`, from 0 to 1: the mean over labels that occur."""
        found = np.full((len(times), self.truths.shape[1], self.hit.shape[1]), np.nan)
        for label, truths in enumerate((times @ self.truths).T):
            own = np.flatnonzero(self.label == label)
            own = own[np.argsort(-self.score[own], kind='stable')]
            weights, there = times[:, self.image[own]], truths > 0
            for overlap in range(self.hit.shape[1]):
                hit, counts = self.hit[own, overlap], ~self.ignored[own, overlap]
                right = np.cumsum(weights * (hit & counts), 1)
                precision = right / np.maximum(np.cumsum(weights * counts, 1), 1)
                best = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
                best = np.pad(best, ((0, 0), (0, 1)))  # a recall that is not reached
                for draw in np.flatnonzero(there):
                    at = np.searchsorted(right[draw] / truths[draw], RECALLS)
                    found[draw, label, overlap] = best[draw, at].mean()
        value: np.ndarray = np.nanmean(found, (1, 2))
        return value


def resampled(value: Callable[[np.ndarray], np.ndarray], count: int, draws: int = DRAWS
              ) -> np.ndarray:
    """A metric (draws,) of ``count`` images drawn with replacement; always the same draws."""
    noise, found = np.random.default_rng(0), []
    for start in range(0, draws, _AT_ONCE):
        times = noise.multinomial(count, np.full(count, 1 / count), min(_AT_ONCE, draws - start))
        found.append(value(times.astype(float)))
    return np.concatenate(found)


def image_spread(count: int, runs: Mapping[str, Sequence[np.ndarray]]) -> dict[str, Any]:
    """What resampling the test images does to encodings' means over seeds.

    Args:
        count: of images.
        runs: encoding -> what :func:`resampled` gave for its runs at one size.

    Returns:
        ``count`` of images; ``encodings``; ``covariance`` of their means; ``own``: the part of each
        variance that is neither all runs' nor the seed's, and so is in the spread of seeds as well
        (an image that one run gets right by chance).
    """
    values = [np.stack(each) for each in runs.values()]
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
