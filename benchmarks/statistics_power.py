"""How often the statistics of `mmposenc compare` are wrong, and how often they find what is there.

Studies are drawn with the spreads of docs/studies (and with others), and judged by the package's
own functions.

    python benchmarks/statistics_power.py         # writes the tables of docs/report.md; 10 minutes
    python benchmarks/statistics_power.py --draws 200 --out FOLDER
"""
from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import stdev
from unittest import mock

import numpy as np
from scipy import stats

from mmposenc.lab.compare.page.exports import csv_text
from mmposenc.lab.compare.statistics import differences
from mmposenc.lab.compare.statistics.differences import (
    ERROR,
    Values,
    standings,
    verdict_row,
    weighted_contrast,
)
from mmposenc.lab.compare.statistics.summary import size_factors, values_at

DOCS = Path(__file__).resolve().parents[1] / 'docs'
COUNTS, SEEDS = (2, 4, 8, 27), (3, 5, 10)
#: Standard deviations of k encodings, of which the first is the true best.
SPREADS = {'equal': lambda k: np.ones(k), '0.4 to 7': lambda k: np.geomspace(.4, 7, k),
           'best 7, others 0.4': lambda k: np.r_[7, np.full(k - 1, .4)],
           'best 0.4, others 7': lambda k: np.r_[.4, np.full(k - 1, 7.)],
           'every second 7, others 0.4': lambda k: np.where(np.arange(k) % 2, 7, .4)}
REAL = 'those of the studies'


def read(folder: Path) -> list[list[list[float]]]:
    """The values of every study and size: a list an encoding, of those with three runs or more."""
    found = []
    for path in sorted(folder.glob('*.json')):
        results = json.loads(path.read_text())
        found += [[list(seeds.values()) for seeds in values_at(results, factor).values()
                   if len(seeds) >= 3] for factor in size_factors(results)]
    return found


def seed_share(values: Sequence[Sequence[float]]) -> float:
    """The share of the variance of runs that all encodings of a seed have in common."""
    table = np.array([each[:3] for each in values])
    left = table - table.mean(1, keepdims=True)
    _, seeds = left.shape
    within = (left ** 2).sum() / (len(table) * (seeds - 1))
    return float((left.mean(0).var(ddof=1) - within / len(table)) / within)


def drawn(noise: np.random.Generator, spreads: np.ndarray, seeds: int, gaps: Sequence[float] = (0,),
          ) -> Values:
    """A study of encodings e0, e1, ...; the first ones are so much better."""
    means = np.r_[gaps, np.zeros(len(spreads) - len(gaps))]
    table = noise.standard_normal((len(spreads), seeds)) * spreads[:, None] + means[:, None]
    return {f'e{n}': dict(enumerate(map(float, row))) for n, row in enumerate(table)}


class Spreads:
    """Draws spreads of one kind."""

    def __init__(self, kind: str, seed: int = 0) -> None:
        self.noise, self.kind = np.random.default_rng(seed), kind
        self.known = np.array([stdev(each) for study in read(DOCS / 'studies') for each in study])

    def __call__(self, count: int) -> np.ndarray:
        if self.kind == REAL:
            return self.noise.choice(self.known, count)
        return np.asarray(SPREADS[self.kind](count), float)


def studies(kind: str, count: int, seeds: int, gaps: Sequence[float], draws: int,
            ) -> Iterator[Values]:
    """So many studies."""
    spreads, noise = Spreads(kind), np.random.default_rng(1)
    for _ in range(draws):
        yield drawn(noise, spreads(count), seeds, gaps)


def lost(values: Values) -> tuple[bool, bool]:
    """Whether the first encoding, which is the best, is ruled out: by the package, and by Welch's
    test of each pair with Šidák's correction."""
    reach = differences.reach_in_standard_errors(values, ['e0'], 1)['e0']
    pairs = [weighted_contrast(values, {other: 1, 'e0': -1}) for other in values if other != 'e0']
    t = np.array([each.mean / each.error for each in pairs])
    own = 1 - (1 - ERROR) ** (1 / len(pairs))
    return bool(t.max() > reach), bool(
        (stats.t.sf(t, [each.freedom for each in pairs]) < own).any())


def errors(draws: int) -> str:
    """How often the true best is ruled out, where all means are equal."""
    lines = [['spreads of the encodings', *(f'{k} encodings' for k in COUNTS)]]
    for kind in (*SPREADS, REAL):
        cells = []
        for count in COUNTS:
            found = [np.mean([lost(each) for each in studies(kind, count, n, (0,), draws)], 0)
                     for n in SEEDS]
            cells.append('; '.join(f'{100 * ours:.1f} ({100 * welch:.1f})'
                                   for ours, welch in found))
        lines.append([kind, *cells])
    return csv_text(lines)


def power(draws: int) -> str:
    """Of 8 encodings one is ahead: how many others are ruled out, and how often all are."""
    lines = [['ahead by', *(f'{n} seeds' for n in SEEDS)]]
    for gap in (2, 5, 10):
        cells = []
        for n in SEEDS:
            found = [[stand.by is not None for stand in list(standings(each).values())[1:]]
                     for each in studies(REAL, 8, n, (gap,), draws)]
            cells.append(f'{100 * np.mean(found):.0f}; {100 * np.mean(np.all(found, 1)):.0f}')
        lines.append([f'{gap} points', *cells])
    return csv_text(lines)


def questions(draws: int) -> str:
    """A question by itself: a false difference, a false 'level' (the truth is the margin)."""
    lines = [['spreads', *(f'{n} seeds' for n in SEEDS)]]
    for spreads in ((1., 1.), (.4, 7.), (.3, .3)):
        cells = []
        for n in SEEDS:
            noise, found = np.random.default_rng(2), []
            for _ in range(draws):
                told = [verdict_row(weighted_contrast(drawn(noise, np.array(spreads), n, (gap,)),
                                                      {'e0': 1, 'e1': -1}), 1.)['verdict']
                        for gap in (0, 1, 0)]
                found.append((told[0] in ('better', 'worse'), told[1] == 'level',
                              told[2] == 'level'))
            cells.append('; '.join(f'{100 * share:.1f}' for share in np.mean(found, 0)))
        lines.append([' and '.join(f'{each:g}' for each in spreads), *cells])
    return csv_text(lines)


#: Names of files -> what makes them.
TABLES = {'errors-best': errors, 'errors-power': power, 'errors-two': questions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--draws', type=int, default=2000, help='studies of each kind')
    parser.add_argument('--tables', nargs='+', choices=TABLES, default=list(TABLES))
    parser.add_argument('--out', type=Path, default=DOCS / 'tables', help='folder of the csv files')
    args = parser.parse_args()
    common = [seed_share(values) for values in read(DOCS / 'studies')]
    print(f'the share of the variance that is the seed\'s: median {np.median(common):.2f} '
          f'({min(common):.2f} to {max(common):.2f}) of {len(common)} tables\n')
    with mock.patch.object(differences, 'DRAWS', 1000):
        for name in args.tables:
            path = args.out / f'{name}.csv'
            path.write_text(TABLES[name](args.draws))
            print(f'wrote {path}', flush=True)


if __name__ == '__main__':
    main()
