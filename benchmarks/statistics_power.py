"""How often the statistics of `mmposenc compare` are wrong.

Studies are drawn with the spreads of docs/studies (and with others), and judged by the package's
own functions.

    python benchmarks/statistics_power.py         # writes the table of docs/report.md; 10 minutes
    python benchmarks/statistics_power.py --draws 200 --out FOLDER
"""
from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import stdev
from unittest import mock

import numpy as np
from scipy import stats

from mmposenc.lab.compare.page.report import csv_text
from mmposenc.lab.compare.statistics import differences
from mmposenc.lab.compare.statistics.differences import ERROR, weighted_contrast
from mmposenc.lab.compare.statistics.results import Results, Values

DOCS = Path(__file__).resolve().parents[1] / 'docs'
COUNTS, SEEDS = (2, 4, 8, 27), (3, 5, 10)
#: Standard deviations of k encodings, of which the first is the true best.
SPREADS = {'equal': lambda k: np.ones(k), '0.4 to 7': lambda k: np.geomspace(.4, 7, k),
           'best 7, others 0.4': lambda k: np.r_[7, np.full(k - 1, .4)],
           'best 0.4, others 7': lambda k: np.r_[.4, np.full(k - 1, 7.)],
           'every second 7, others 0.4': lambda k: np.where(np.arange(k) % 2, 7, .4)}
REAL = 'those of the studies'


def known_spreads(folder: Path) -> np.ndarray:
    """The standard deviations of all encodings of studies that have three runs or more."""
    found = []
    for path in sorted(folder.glob('*.json')):
        results = Results.read(json.loads(path.read_text()))
        found += [stdev(seeds.values()) for factor in results.tested_sizes
                  for seeds in results.values_at(factor).values() if len(seeds) >= 3]
    return np.array(found)


def studies(kind: str, count: int, seeds: int, draws: int) -> Iterator[Values]:
    """So many studies of encodings e0, e1, ... whose means are equal."""
    known, choice = known_spreads(DOCS / 'studies'), np.random.default_rng(0)
    noise = np.random.default_rng(1)
    for _ in range(draws):
        spreads = choice.choice(known, count) if kind == REAL else np.asarray(SPREADS[kind](count))
        table = noise.standard_normal((count, seeds)) * spreads[:, None]
        yield {f'e{n}': dict(enumerate(map(float, row))) for n, row in enumerate(table)}


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
            found = [np.mean([lost(each) for each in studies(kind, count, n, draws)], 0)
                     for n in SEEDS]
            cells.append('; '.join(f'{100 * ours:.1f} ({100 * welch:.1f})'
                                   for ours, welch in found))
        lines.append([kind, *cells])
    return csv_text(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--draws', type=int, default=2000, help='studies of each kind')
    parser.add_argument('--out', type=Path, default=DOCS / 'tables', help='folder of the csv file')
    args = parser.parse_args()
    path = args.out / 'errors-best.csv'
    with mock.patch.object(differences, 'DRAWS', 1000):
        path.write_text(errors(args.draws))
    print(f'wrote {path}')


if __name__ == '__main__':
    main()
