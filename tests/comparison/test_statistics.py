"""Statistics of a study: against scipy, hand arithmetic, and how often they are wrong."""
import copy
import itertools
import math
import random

import numpy as np
import pytest
from madeup_studies import drawn, run, study
from scipy import stats

from mmposenc.comparison.statistics import (
    base_of,
    best_of,
    compare,
    difference,
    holm,
    interval,
    summarize,
    trained_factor,
    values_at,
)


def seeded(*values, first=0):
    return dict(enumerate(values, first))


def test_interval_is_students():
    values = [81.2, 82.0, 80.4, 83.1]
    told = interval(values)
    assert told['n'] == 4
    assert told['mean'] == pytest.approx(81.675, abs=1e-12)
    # Squares about the mean: .475², .325², 1.275², 1.425².
    assert told['std'] == pytest.approx(math.sqrt(
        (.475 ** 2 + .325 ** 2 + 1.275 ** 2 + 1.425 ** 2) / 3), rel=1e-12)
    low, high = stats.t.interval(.95, 3, loc=81.675, scale=stats.sem(values))
    assert (told['low'], told['high']) == pytest.approx((low, high), rel=1e-12)


def test_interval_of_too_few():
    assert interval([]) == dict(n=0, mean=None, std=None, low=None, high=None)
    assert interval([3.0]) == dict(n=1, mean=3.0, std=None, low=None, high=None)
    # Two values: Student's t of one degree of freedom is tan(.475 pi) = 12.706.
    two = interval([1.0, 3.0])
    assert two['high'] == pytest.approx(2 + math.tan(.475 * math.pi), rel=1e-9)


@pytest.mark.parametrize('count', [3, 5, 12])
def test_difference_is_scipys_paired_test(count):
    noise = random.Random(count)
    one = [noise.gauss(90, 2) for _ in range(count)]
    other = [noise.gauss(88, 2) for _ in range(count)]
    told, expected = difference(seeded(*one), seeded(*other)), stats.ttest_rel(one, other)
    assert told['n'] == count
    assert told['p'] == pytest.approx(expected.pvalue, rel=1e-9)
    bounds = expected.confidence_interval(.95)
    assert (told['low'], told['high']) == pytest.approx((bounds.low, bounds.high), rel=1e-9)
    assert told['error'] == pytest.approx(
        stats.sem([a - b for a, b in zip(one, other, strict=True)]), rel=1e-9)
    assert told['test'] == f'paired t test of {count} seeds'


def test_difference_by_hand():
    # Differences 1, 2, 3: mean 2, standard deviation 1, t = 2 sqrt(3), two degrees of freedom,
    # of which p = 1 - t / sqrt(t² + 2).
    told = difference(seeded(11, 22, 33), seeded(10, 20, 30))
    t = 2 * math.sqrt(3)
    assert told['mean'] == 2
    assert told['p'] == pytest.approx(1 - t / math.sqrt(t * t + 2), rel=1e-9)


def test_only_shared_seeds_are_paired():
    told = difference({0: 5., 1: 6., 2: 8., 7: 1000.}, {2: 7., 1: 6., 0: 3., 9: -1000.})
    assert (told['n'], told['mean']) == (3, pytest.approx(1.0))
    assert told['p'] == pytest.approx(stats.ttest_rel([5, 6, 8], [3, 6, 7]).pvalue, rel=1e-9)


def test_seeds_that_are_not_shared_are_welchs():
    one, other = [5., 6., 8., 9.], [1., 2., 2.5]
    told = difference(seeded(*one), seeded(*other, first=10))
    expected = stats.ttest_ind(one, other, equal_var=False)
    bounds = expected.confidence_interval(.95)
    assert told['p'] == pytest.approx(expected.pvalue, rel=1e-9)
    assert (told['low'], told['high']) == pytest.approx((bounds.low, bounds.high), rel=1e-9)
    assert told['n'] == 3 and told['test'] == "Welch's t test of 4 and 3 seeds"


def test_seeds_that_are_not_shared_and_have_no_spread_are_not_tested():
    one = [.8 + n * 1e-9 for n in range(3)]
    told = difference(seeded(*one), seeded(*one, first=10))
    assert told['p'] is None and told['verdict'] == 'no difference seen'


def test_two_seeds_are_not_tested():
    told = difference(seeded(90, 92), seeded(80, 81))
    assert (told['n'], told['p'], told['verdict']) == (2, None, 'too few runs')
    assert told['mean'] == 10.5 and told['low'] < 10.5 < told['high']
    assert difference({}, {0: 1.0})['mean'] is None


@pytest.mark.parametrize('one', [[90.1, 91.1, 92.1], [90.0, 91.0, 92.0],
                                 np.float32([90.1, 91.1, 92.1]).astype(float).tolist()])
def test_differences_without_spread_are_not_tested(one):
    told = difference(seeded(*one), seeded(90.0, 91.0, 92.0))
    assert told['p'] is None and told['verdict'] == 'no difference seen'
    assert 'no spread' in told['test']


def test_holm_by_hand():
    # Holm's own steps: 4 x .01; 3 x .015 = .045; 2 x .02 = .04, not below .045; 1 x .9.
    assert holm([.02, .01, .9, .015]) == pytest.approx([.045, .04, .9, .045])
    assert holm([.6, .7]) == [1, 1]
    assert holm([]) == []


def test_holm_rejects_what_its_definition_does():
    noise = random.Random(1)
    for _ in range(300):
        ps = [noise.random() ** 4 for _ in range(noise.randint(1, 7))]
        rejected = set()
        for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
            if ps[index] * (len(ps) - rank) >= .05:
                break
            rejected.add(index)
        assert {i for i, p in enumerate(holm(ps)) if p < .05} == rejected


def test_families_base_and_best():
    """Of the base one test for each other; of the best, which the values choose, all pairs."""
    values = {'none': seeded(80, 81.5, 80.2), 'peg': seeded(95, 96.1, 95.4),
              'learned': seeded(90.2, 92, 90.1), 'irpe': seeded(94, 96.5, 95.2)}
    rows = compare(values, 'none', True, 1.0)
    base = {row['encoding']: row for row in rows if row['role'] == 'base'}
    best = {row['encoding']: row for row in rows if row['role'] == 'best'}
    assert set(base) == {'peg', 'learned', 'irpe'} and set(best) == {'none', 'learned', 'irpe'}
    assert {row['against'] for row in best.values()} == {'peg'}
    raw = {pair: stats.ttest_rel(list(values[pair[0]].values()),
                                 list(values[pair[1]].values())).pvalue
           for pair in itertools.combinations(values, 2)}
    corrected = dict(zip(raw, holm(list(raw.values())), strict=True))
    assert best['none']['p'] == pytest.approx(corrected['none', 'peg'], rel=1e-9)
    assert best['irpe']['p'] == pytest.approx(corrected['peg', 'irpe'], rel=1e-9)
    assert base['peg']['p'] == pytest.approx(holm([raw['none', name] for name in base])[
        list(base).index('peg')], rel=1e-9)
    assert best['none']['test'].endswith('Holm over 6')
    assert base['peg']['test'].endswith('Holm over 3')
    assert base['peg']['verdict'] == 'better' and best['none']['verdict'] == 'worse'
    assert best['none']['mean'] == pytest.approx(-base['peg']['mean'])
    assert best['irpe']['verdict'] == 'no difference seen'


def test_lower_may_be_better():
    values = {'none': seeded(4.0, 4.2, 4.1), 'peg': seeded(2.0, 2.3, 2.1)}
    assert best_of(values, False) == 'peg'
    rows = compare(values, 'none', False, 1.0)
    assert [(row['role'], row['verdict']) for row in rows] == [
        ('base', 'better'), ('best', 'worse')]


def test_no_row_against_a_best_that_is_the_base():
    values = {'none': seeded(9, 9.5, 9.1), 'peg': seeded(2, 2.3, 2.2)}
    assert [row['role'] for row in compare(values, 'none', True, 1.0)] == ['base']


def test_false_differences_are_at_most_one_study_in_twenty():
    """Encodings that are equal, seeds that share a deviation: in how many studies is one of them
    called better or worse? .05 is promised; the bound is that and 4 standard deviations."""
    studies, wrong = 500, dict(base=0, best=0)
    for number in range(studies):
        values = drawn({name: {1.0: 90.0} for name in ('none', 'a', 'b', 'c')}, seed=number)
        rows = compare({name: seeded(*at[1.0]) for name, at in values.items()}, 'none', True, 1.0)
        for role in wrong:
            wrong[role] += any(row['verdict'] in ('better', 'worse') for row in rows
                               if row['role'] == role)
    most = .05 * studies + 4 * math.sqrt(.05 * .95 * studies)
    assert 0 < wrong['base'] <= most and 0 < wrong['best'] <= most, wrong


def test_real_differences_are_found():
    found = 0
    for number in range(50):
        values = drawn({'none': {1.0: 80.0}, 'peg': {1.0: 90.0}}, std=.5, shared=5, seed=number)
        rows = compare({name: seeded(*at[1.0]) for name, at in values.items()}, 'none', True, 1.0)
        found += rows[0]['verdict'] == 'better'
    assert found == 50


def test_summarize_adds_three_keys_and_changes_nothing():
    results = study(drawn({'none': {1.0: 80.0, 1.5: 60.0}, 'peg': {1.0: 95.0, 1.5: 60.0}}))
    before = copy.deepcopy(results)
    told = summarize(results)
    assert results == before
    assert {key: told[key] for key in before} == before
    assert [(row['encoding'], row['factor'], row['n']) for row in told['summary']] == [
        ('none', 1.0, 3), ('peg', 1.0, 3), ('none', 1.5, 3), ('peg', 1.5, 3)]
    assert summarize(told) == told
    assert {row['factor'] for row in told['differences']} == {1.0, 1.5}


def test_runs_that_did_not_finish_have_no_part_in_means():
    results = study(drawn({'none': {1.0: 80.0}, 'peg': {1.0: 95.0}}))
    results['runs'][0].update(status='diverged', note='loss is nan')
    results['runs'][1].update(status='failed')
    results['runs'] += [run('peg', 5, {1.0: float('nan')}), run('peg', 6, {1.0: None}),
                        run('peg', 7, {}, status='waiting'), run('peg', 8, {}, status='running')]
    assert {name: sorted(seeds) for name, seeds in values_at(results, 1.0).items()} == {
        'none': [2], 'peg': [0, 1, 2]}
    rows = summarize(results)['differences']
    assert {row['verdict'] for row in rows} == {'too few runs'}


def test_base_and_trained_size():
    results = study({'peg': {.5: [1.], 1.0: [2.]}, 'none': {.5: [1.], 1.0: [2.]}})
    assert base_of(results) == 'none' and trained_factor(results) == 1.0
    results['encodings'][1]['name'] = 'other'
    assert base_of(results) == 'peg'
    results['sizes'] = [dict(factor=.5, trained=True), dict(factor=1.0, trained=False)]
    assert trained_factor(results) == .5
    results['sizes'] = [dict(factor=f, trained=False) for f in (.5, .75, 2.0)]
    assert trained_factor(results) == .75


@pytest.mark.parametrize('change, message', [
    (dict(schema=2), r"results\['schema'\] is 2; this version reads 1"),
    (dict(sizes=[]), "need an entry each"),
    (dict(runs=[run('peg', 0, {}), run('peg', 0, {})]), "encoding 'peg', seed 0 twice"),
    (dict(runs=[run('pge', 0, {})]), "names the encoding 'pge'"),
])
def test_results_that_are_not_of_the_schema(change, message):
    with pytest.raises(ValueError, match=message):
        summarize({**study({'none': {1.0: [1.]}, 'peg': {1.0: [1.]}}), **change})
    with pytest.raises(ValueError, match="has no 'metric'"):
        summarize(dict(schema=1, sizes=[1], encodings=[1], runs=[]))
