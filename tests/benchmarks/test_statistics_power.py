"""benchmarks/statistics_power.py: what it draws, and that it tests as the package does."""
from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scripts import ROOT, load_script

from mmposenc.lab.compare.statistics.differences import LEVEL, contrast
from mmposenc.lab.compare.statistics.summary import compare

STUDIES = ROOT / 'docs' / 'studies'


@pytest.fixture(scope='module')
def power():
    return load_script('benchmarks', 'statistics_power')


@pytest.fixture(scope='module')
def spreads(power):
    return [values.std(1, ddof=1) for values in power.read(STUDIES)]


def seeded(values):
    return {f'e{n}': dict(enumerate(map(float, row))) for n, row in enumerate(values)}


def test_what_is_drawn_is_tested_as_studies_are(power, spreads):
    values = power.draw(np.random.default_rng(3), spreads, 'real', 0, 9, (40, 5, 3))
    tests = power.shared(values)
    told = power.t3(tests, 5)
    pairs = list(zip(*power.pairs_of(5), strict=True))
    found = 0
    for number, each in enumerate(map(seeded, values)):
        for index, (one, other) in enumerate(pairs):
            expected = contrast(each, {f'e{one}': 1, f'e{other}': -1})
            assert tests.t[number, index] == pytest.approx(expected.mean / expected.error)
            assert tests.freedom[number, index] == pytest.approx(expected.freedom)
        best = max(range(5), key=lambda n, number=number: values[number, n].mean())
        rows = compare(each, f'e{(best + 1) % 5}', True, 1.0)
        verdicts = {row['encoding']: row['verdict'] == 'worse' for row in rows
                    if row['role'] == 'best'}
        for index, pair in enumerate(pairs):
            if best in pair:
                name = f'e{pair[0] if pair[1] == best else pair[1]}'
                assert told[number, index] == verdicts[name]
                found += verdicts[name]
    assert 10 < found < 150
    false = 2 * stats.t.sf(np.abs(tests.t), tests.freedom) < LEVEL
    last = [other == 4 for _, other in pairs]
    assert power.alone(values) == pytest.approx((false.mean(), false[:, last].mean()))


@pytest.mark.parametrize('null, shape', [
    ('equal', (2000, 7, 5)), ('of the studies', (2000, 12, 3)), ('one 10 times', (2000, 12, 3)),
    ('one a tenth', (2000, 4, 3)), ('all but one equal', (2000, 4, 3))])
def test_false_differences_are_at_most_one_study_in_twenty(power, spreads, null, shape):
    """.05 is promised; the bound is that and 3 standard deviations of so many draws."""
    kind, common, apart = power.NULLS[null]
    values = power.draw(np.random.default_rng(0), spreads, kind, common, apart, shape)
    found = power.shares(values, power.WAYS['**half pooled, T3**'], apart > 0)
    most = LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / shape[0])
    assert all(0 < false <= most for false, _ in found.values()), found


def test_ten_points_are_found_more_often_than_by_pairs(power, spreads):
    values = power.draw(np.random.default_rng(0), spreads, 'real', 0, 10, (2000, 8, 3))
    ours, before = (power.shares(values, power.WAYS[name], True)
                    for name in ('**half pooled, T3**', 'paired t, Holm'))
    assert ours['best'][1] > 3 * before['best'][1] and ours['base'][1] > 2 * before['base'][1]


def test_seeds_in_common(power):
    noise = np.random.default_rng(0)
    own, seed = noise.normal(size=(40, 2000)), noise.normal(size=2000)
    assert power.seeds_in_common(own) == pytest.approx(0, abs=.01)
    assert power.seeds_in_common(own + seed) == pytest.approx(.5, abs=.03)
    assert len(power.read(STUDIES)) >= 12
