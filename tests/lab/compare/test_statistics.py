"""Statistics of a study: means, differences, what can still be best, what is left out."""
import math

import pytest
from helpers.made_up_studies import drawn, run, seeded, study
from scipy import stats

from mmposenc.lab.compare.statistics import summary
from mmposenc.lab.compare.statistics.differences import (
    reach_in_standard_errors,
    standings,
    weighted_contrast,
)
from mmposenc.lab.compare.statistics.summary import difference_rows, mean_row, with_summary


def test_interval_is_students():
    values = [81.2, 82.0, 80.4, 83.1]
    told = mean_row(values)
    assert (told['n'], told['mean']) == (4, pytest.approx(81.675, abs=1e-12))
    # Squares about the mean: .475², .325², 1.275², 1.425².
    assert told['std'] == pytest.approx(math.sqrt(
        (.475 ** 2 + .325 ** 2 + 1.275 ** 2 + 1.425 ** 2) / 3), rel=1e-12)
    low, high = stats.t.interval(.95, 3, loc=81.675, scale=stats.sem(values))
    assert (told['low'], told['high']) == pytest.approx((low, high), rel=1e-12)
    for few in ([], [3.0]):
        assert mean_row(few) == dict(n=len(few), mean=few[0] if few else None, std=None, low=None,
                                     high=None)


def test_intervals_stay_within_what_can_be():
    percent, share = dict(unit='%'), dict(unit='')
    told = mean_row([99., 100., 99.5], percent)
    assert told['high'] == 100 and told['low'] == mean_row([99., 100., 99.5])['low']
    assert mean_row([.01, .2, .1], share)['low'] == 0
    assert mean_row([1., 3., 2.], share) == mean_row([1., 3., 2.])  # not a share after all


def test_roles_base_and_best():
    """Of the base both sides, of the best one; an encoding with one run is in no family."""
    values = {'none': seeded(80, 81.5, 80.2), 'peg': seeded(95, 96.1, 95.4),
              'learned': seeded(90.2, 92, 90.1), 'irpe': seeded(94, 96.5, 95.2),
              'once': seeded(50.)}
    stand = standings(values)
    rows = {(row['role'], row['encoding']): row for row
            in difference_rows(values, 'none', 1.0, 1.0, stand)}
    assert {name for role, name in rows if role == 'base'} == {'peg', 'learned', 'irpe', 'once'}
    assert {name for role, name in rows if role == 'best'} == {'none', 'learned', 'irpe', 'once'}
    assert {row['against'] for (role, _), row in rows.items() if role == 'best'} == {'peg'}
    for (role, name), row in rows.items():
        if name == 'once':
            assert (row['n'], row['verdict'], row['low']) == (1, 'cannot tell', None)
            continue
        found = weighted_contrast(values, {name: 1, row['against']: -1})
        reach = reach_in_standard_errors(values, ['none'],
                                         2)['none'] if role == 'base' else stand[name].reach
        assert (row['mean'], row['error']) == (found.mean, found.error)
        assert row['high'] == pytest.approx(found.mean + reach * found.error)
    assert rows['base', 'peg']['verdict'] == 'better' and rows['best', 'none']['verdict'] == 'worse'
    assert rows['best', 'irpe']['verdict'] == 'cannot tell'


def test_the_base_is_no_encoding_or_the_first():
    results = study({'peg': {1.0: [95.0]}, 'none': {1.0: [80.0]}})
    assert summary.base_encoding(results) == 'none'
    results['encodings'][1]['name'] = 'other'
    assert summary.base_encoding(results) == 'peg'


def test_runs_that_did_not_finish_have_no_part_in_means():
    results = study(drawn({'none': {1.0: 80.0}, 'peg': {1.0: 95.0}}))
    results['runs'][0].update(status='diverged', note='loss is nan')
    results['runs'][1].update(status='failed')
    results['runs'] += [run('peg', 5, {1.0: float('nan')}), run('peg', 6, {1.0: None}),
                        run('peg', 7, {}, status='waiting'), run('peg', 8, {}, status='running')]
    assert {name: sorted(seeds) for name, seeds in summary.values_at(results, 1.0).items()} == {
        'none': [2], 'peg': [0, 1, 2]}
    rows = with_summary(results)['differences']
    assert {row['verdict'] for row in rows} == {'cannot tell'}
