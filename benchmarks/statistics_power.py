"""How often tests of `mmposenc compare` find a difference, and how often one that is not there.

Studies are drawn with spreads of docs/studies (and with others), and each way of testing them is
counted: the one of mmposenc/lab/compare/statistics/differences.py, and those that were tried
before it.

    python benchmarks/statistics_power.py              # the tables of docs/report.md
    python benchmarks/statistics_power.py --studies work_dirs/evidence --draws 1000

It prints how much seeds have in common in the studies; the share of studies with a false
difference, the worst of 4, 8 and 13 encodings with 3, 5 and 10 seeds, against the best and against
two bases; the same of a question by itself; and the share of differences found of 8 encodings.
"""
from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from holm import corrected
from scipy import interpolate, special, stats

from mmposenc.lab.compare.page.exports import markdown_rows
from mmposenc.lab.compare.statistics.differences import LEVEL, POOLED, critical
from mmposenc.lab.compare.statistics.summary import factors, values_at

ENCODINGS, SEEDS, APART = (4, 8, 13), (3, 5, 10), (2, 5, 10, 30)
#: How studies are drawn for the first table: name -> spread of the K encodings, share of the
#: variance that all encodings of a seed have in common, and how far the first encoding is apart.
NULLS = {'equal': ('equal', 0, 0), 'of the studies': ('real', 0, 0),
         'one 10 times': ('one wide', 0, 0), 'one a tenth': ('one narrow', 0, 0),
         'half and half': ('half', 0, 0), 'half of a seed': ('real', .5, 0),
         'all but one equal': ('real', 0, 30)}
#: Degrees of freedom between which critical values are interpolated.
GRID = np.geomspace(1, 300, 25)


class Tests(NamedTuple):
    """t and its degrees of freedom of each pair of encodings, (studies, pairs)."""

    t: np.ndarray
    freedom: np.ndarray


def pairs_of(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the second encoding of every pair."""
    first, second = np.array(list(combinations(range(count), 2))).T
    return first, second


def paired(values: np.ndarray) -> Tests:
    """Student's test of the differences of each pair."""
    one, other = pairs_of(values.shape[1])
    gaps = values[:, one] - values[:, other]
    t = gaps.mean(2) / np.sqrt(gaps.var(2, ddof=1) / gaps.shape[2])
    return Tests(t, np.full_like(t, gaps.shape[2] - 1))


def two_way(values: np.ndarray) -> Tests:
    """One variance for all, of what is left of analysis of variance by encoding and seed."""
    _, count, seeds = values.shape
    one, other = pairs_of(count)
    means = values.mean(2)
    left = values - means[:, :, None] - values.mean(1, keepdims=True) + values.mean(
        (1, 2), keepdims=True)
    freedom = (count - 1) * (seeds - 1)
    error = np.sqrt(2 * (left ** 2).sum((1, 2)) / freedom / seeds)
    t = (means[:, one] - means[:, other]) / error[:, None]
    return Tests(t, np.full_like(t, freedom))


def logit(values: np.ndarray) -> Tests:
    """The same of the logarithm of the odds."""
    return two_way(special.logit(np.clip(values, .1, 99.9) / 100))


def moderated(values: np.ndarray) -> Tests:
    """Smyth's (2004): the variance of each pair's differences, moved to a prior of all pairs'."""
    _, count, seeds = values.shape
    one, other = pairs_of(count)
    gaps, own = values[:, one] - values[:, other], seeds - 1
    squares = gaps.var(2, ddof=1)
    logs = np.log(squares)
    # His section 6.2: log s^2 has a mean and variance that give the prior's s0^2 and freedom d0.
    more = logs.var(1, ddof=1) - special.polygamma(1, own / 2)
    half = np.geomspace(1e-3, 1e4, 4000)
    prior = 2 * np.interp(-more, -special.polygamma(1, half), half)[:, None]
    scale = np.exp(logs.mean(1, keepdims=True) - special.digamma(own / 2) + np.log(own / 2)
                   + special.digamma(prior / 2) - np.log(prior / 2))
    t = gaps.mean(2) / np.sqrt((prior * scale + own * squares) / (prior + own) / seeds)
    return Tests(t, np.minimum(prior + own, (count - 1) * own) + np.zeros_like(t))


def shared(values: np.ndarray, pooled: float = POOLED) -> Tests:
    """As contrast of mmposenc.lab.compare.statistics.differences, of many studies; nothing
    pooled: Welch's."""
    _, count, seeds = values.shape
    one, other = pairs_of(count)
    means, squares, own = values.mean(2), values.var(2, ddof=1), seeds - 1
    all_of, fourth = squares.sum(1, keepdims=True), (squares ** 2).sum(1, keepdims=True)
    alone, common = 1 - pooled, 2 * pooled / count
    square = alone * (squares[:, one] + squares[:, other]) + common * all_of
    # Of the sum of (a_j s_j^2)^2: all have `common`, and the two of the pair `alone` besides.
    below = common ** 2 * fourth + (alone ** 2 + 2 * alone * common) * (
        squares[:, one] ** 2 + squares[:, other] ** 2)
    return Tests((means[:, one] - means[:, other]) / np.sqrt(square / seeds),
                 own * square ** 2 / below)


@cache
def _criticals(count: int) -> np.ndarray:
    return np.array([critical(freedom, count) for freedom in GRID])


@cache
def _ranges(count: int) -> np.ndarray:
    return np.array([stats.studentized_range.ppf(1 - LEVEL, count, each) for each in GRID])


def _between(table: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    spline = interpolate.CubicSpline(np.log(GRID), np.log(table))
    return np.asarray(np.exp(spline(np.log(freedom))))


def t3(tests: Tests, encodings: int) -> np.ndarray:
    """Which pairs are told apart, all together; of a part of them the correction is for so many."""
    return np.abs(tests.t) > _between(_criticals(tests.t.shape[1]), tests.freedom)


def tukey(tests: Tests, encodings: int) -> np.ndarray:
    """The same by the studentized range (Games and Howell's where freedoms differ); by Holm, of
    comparisons with one encoding."""
    if tests.t.shape[1] < encodings * (encodings - 1) // 2:
        return holm(tests, encodings)
    return np.abs(tests.t) > _between(_ranges(encodings), tests.freedom) / np.sqrt(2)


def holm(tests: Tests, encodings: int) -> np.ndarray:
    """The same by Holm."""
    return corrected(2 * stats.t.sf(np.abs(tests.t), tests.freedom)) < LEVEL


Way = tuple[Callable[[np.ndarray], Tests], Callable[[Tests, int], np.ndarray]]
WAYS: dict[str, Way] = {
    'paired t, Holm': (paired, holm),
    'one variance (two-way), Tukey': (two_way, tukey),
    'the same of logits': (logit, tukey),
    'moderated paired t (Smyth), Holm': (moderated, holm),
    'own variances (Welch), Games-Howell': (lambda values: shared(values, 0), tukey),
    'half pooled, Games-Howell': (shared, tukey),
    'half pooled, Holm': (shared, holm),
    '**half pooled, T3**': (shared, t3)}


def draw(noise: np.random.Generator, spreads: Sequence[np.ndarray], kind: str, common: float,
         apart: float, shape: tuple[int, int, int]) -> np.ndarray:
    """Values of (studies, encodings, seeds) around 60, of which the first encoding is apart."""
    studies, count, seeds = shape
    spread = np.full((studies, count), 5.0 if kind == 'one narrow' else 0.5)
    if kind == 'real':
        for row in spread:
            row[:] = noise.choice(spreads[noise.integers(len(spreads))], count)
    elif kind != 'equal':
        spread[:, count // 2 if kind == 'half' else -1:] = 0.5 if kind == 'one narrow' else 5.0
    own = noise.standard_normal(shape)
    seed = noise.standard_normal((studies, 1, seeds))
    values = 60 + spread[:, :, None] * (np.sqrt(1 - common) * own + np.sqrt(common) * seed)
    values[:, 0] += apart
    return values


def shares(values: np.ndarray, way: Way, apart: bool) -> dict[str, tuple[float, float]]:
    """family -> share of studies with a false difference, and in which the first encoding is told
    from the second, which is the base; or else the last is, whose spread may be another."""
    test, correct = way
    tests, count = test(values), values.shape[1]
    one, other = pairs_of(count)
    found = {}
    for family, of in (('best', one >= 0), ('base', (one == 1) | (other == 1)),
                       ('last', other == count - 1)):
        told = correct(Tests(tests.t[:, of], tests.freedom[:, of]), count)
        same = one[of] > 0 if apart else one[of] >= 0
        found[family] = (float(told[:, same].any(1).mean()),
                         float(told[:, (one[of] == 0) & (other[of] == 1)].any(1).mean()))
    return found


def alone(values: np.ndarray) -> tuple[float, float]:
    """Of a question by itself, the share of false differences: of all pairs, and of those with the
    last encoding, whose spread may be another."""
    tests = shared(values)
    told = 2 * stats.t.sf(np.abs(tests.t), tests.freedom) < LEVEL
    last = pairs_of(values.shape[1])[1] == values.shape[1] - 1
    return float(told.mean()), float(told[:, last].mean())


def read(folder: Path) -> list[np.ndarray]:
    """(encodings, seeds) of every study and size, of encodings that have all seeds."""
    found = []
    for path in sorted({*folder.glob('*.json'), *folder.glob('*/results.json')}):
        results = json.loads(path.read_text())
        for factor in factors(results):
            rows = [list(seeds.values()) for seeds in values_at(results, factor).values()]
            found.append(np.array([row for row in rows if len(row) == max(map(len, rows))]))
    return found


def seeds_in_common(values: np.ndarray) -> float:
    """The share of the variance within encodings that is the seed's (two-way, may be negative)."""
    count, seeds = values.shape
    means = values.mean(0)
    left = values - values.mean(1, keepdims=True) - means + means.mean()
    within = (left ** 2).sum() / ((count - 1) * (seeds - 1))
    between = count * means.var(ddof=1)
    return float((between - within) / (between + (count - 1) * within))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--studies', type=Path,
                        default=Path(__file__).resolve().parents[1] / 'docs' / 'studies')
    parser.add_argument('--draws', type=int, default=4000, help='studies a number')
    args = parser.parse_args()
    studies = read(args.studies)
    spreads = [values.std(1, ddof=1) for values in studies]
    common = [seeds_in_common(values) for values in studies]
    print(f'of a seed, share of the variance: median {np.median(common):.2f} '
          f'({min(common):.2f} to {max(common):.2f}) of {len(common)} tables\n')
    noise = np.random.default_rng(0)
    worst = {way: dict.fromkeys(NULLS, 0.0) for way in WAYS}
    power: dict[str, list[str]] = {way: [] for way in WAYS}
    one: dict[str, list[tuple[float, float]]] = {null: [] for null, given in NULLS.items()
                                             if not given[2]}
    for seeds in SEEDS:
        for count in ENCODINGS:
            for null, given in NULLS.items():
                values = draw(noise, spreads, *given, (args.draws, count, seeds))
                if null in one:
                    one[null].append(alone(values))
                for name, way in WAYS.items():
                    false = (each[0] for each in shares(values, way, given[2] > 0).values())
                    worst[name][null] = max(worst[name][null], *false)
        for apart in APART:
            values = draw(noise, spreads, 'real', 0, apart, (args.draws, 8, seeds))
            for name, way in WAYS.items():
                told = shares(values, way, True)
                power[name].append(' / '.join(f'{100 * told[each][1]:.0f}'
                                              for each in ('best', 'base')))
    print(markdown_rows([['false, %', *NULLS], *(
        [name, *(f'{100 * each:.1f}' for each in found.values())]
        for name, found in worst.items())]))
    print(markdown_rows([['false of a question alone, %', *one], *(
        [what, *(f'{100 * max(each[n] for each in found):.1f}' for found in one.values())]
        for n, what in enumerate(('all pairs', 'pairs with the last')))]))
    heads = [f'{seeds} seeds, {apart}' for seeds in SEEDS for apart in APART]
    print(markdown_rows([['found, % (of the best / of the base)', *heads], *(
        [name, *found] for name, found in power.items())]))


if __name__ == '__main__':
    main()
