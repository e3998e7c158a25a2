"""Statistics of a study: means, what is left out; differences of means against scipy, arithmetic
written out, and draws; what can still be best, what is recommended, and why."""
import math
import random

import numpy as np
import pytest
from helpers.made_up_studies import METRIC, drawn, encoding, run, seeded, study
from scipy import stats

from mmposenc.lab.compare.statistics.differences import (
    Contrast,
    reach_in_standard_errors,
    reach_over_images,
    standings,
    verdict_row,
    weighted_contrast,
)
from mmposenc.lab.compare.statistics.formats import verdict_text
from mmposenc.lab.compare.statistics.results import Metric
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
    percent, share = Metric('', '', '%'), Metric('', '')
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
            assert (row['n'], row['verdict'], row['low']) == (1, 'no measurable difference', None)
            continue
        found = weighted_contrast(values, {name: 1, row['against']: -1})
        reach = reach_in_standard_errors(values, ['none'],
                                         2)['none'] if role == 'base' else stand[name].reach
        assert (row['mean'], row['error']) == (found.mean, found.error)
        assert row['high'] == pytest.approx(found.mean + reach * found.error)
    assert rows['base', 'peg']['verdict'] == 'better' and rows['best', 'none']['verdict'] == 'worse'
    assert rows['best', 'irpe']['verdict'] == 'no measurable difference'


def test_the_base_is_no_encoding_or_the_first():
    results = study({'peg': {1.0: [95.0]}, 'none': {1.0: [80.0]}})
    assert results.base == 'none'
    results.encodings[1]['name'] = 'other'
    assert results.base == 'peg'


def test_runs_that_did_not_finish_have_no_part_in_means():
    results = study(drawn({'none': {1.0: 80.0}, 'peg': {1.0: 95.0}}))
    results.runs[0].update(status='diverged', note='loss is nan')
    results.runs[1].update(status='failed')
    results.runs += [run('peg', 5, {1.0: float('nan')}), run('peg', 6, {1.0: None}),
                        run('peg', 7, {}, status='waiting'), run('peg', 8, {}, status='running')]
    assert {name: sorted(seeds) for name, seeds in results.values_at(1.0).items()} == {
        'none': [2], 'peg': [0, 1, 2]}
    rows = with_summary(results).differences
    assert {row['verdict'] for row in rows} == {'no measurable difference'}


def gaussian(noise, spreads, count, means=None):
    means = means if means is not None else [90] * len(spreads)
    return {f'e{n}': seeded(*(noise.gauss(mean, spread) for _ in range(count)))
            for n, (mean, spread) in enumerate(zip(means, spreads, strict=True))}


@pytest.mark.parametrize('count', [3, 12])
def test_two_encodings_are_welchs_test(count):
    """Whatever their seeds are: nothing is paired."""
    values = gaussian(random.Random(count), (1, 2), count)
    one, other = (list(each.values()) for each in values.values())
    expected = stats.ttest_ind(one, other, equal_var=False)
    values['e1'] = seeded(*other, first=7)
    found = weighted_contrast(values, {'e0': 1, 'e1': -1})
    told, bounds = verdict_row(found, 1.), expected.confidence_interval(.95)
    assert (told['low'], told['high']) == pytest.approx((bounds.low, bounds.high), rel=1e-9)
    assert found.mean / found.error == pytest.approx(expected.statistic)
    assert (told['verdict'] in ('better', 'worse')) == (expected.pvalue < .05)
    assert told['n'] == count and told['mean'] == pytest.approx(np.mean(one) - np.mean(other))


def test_a_mean_of_several_against_one():
    values = {'a': seeded(91., 92.5, 90.2), 'b': seeded(80., 81., 78.5, 84.),
              'c': seeded(70., 70.5, 71., 70.1, 69.), 'd': seeded(1., 4.)}
    found = weighted_contrast(values, {'a': .5, 'c': .5, 'b': -1})
    parts = {name: weight ** 2 * np.var(list(values[name].values()), ddof=1) / len(values[name])
             for name, weight in (('a', .5), ('c', .5), ('b', 1))}
    assert found.error == pytest.approx(math.sqrt(sum(parts.values())))
    assert found.freedom == pytest.approx(sum(parts.values()) ** 2 / sum(
        part ** 2 / (len(values[name]) - 1) for name, part in parts.items()))
    assert found.n == 3


def test_few_runs_have_no_verdict():
    told = verdict_row(weighted_contrast({'a': seeded(90, 92), 'b': seeded(80, 81)},
                                         {'a': 1, 'b': -1}), 1)
    assert (told['n'], told['verdict'], told['mean']) == (2, 'no measurable difference', 10.5)
    assert told['low'] < 10.5 < told['high']
    values = {'a': seeded(90.), 'b': seeded(80., 81., 82.), 'c': {}}
    assert weighted_contrast(values, {'a': 1, 'b': -1}) == (1, 9, None, None)
    for name in ('c', 'gone'):
        assert weighted_contrast(values, {name: 1, 'b': -1}) == (0, None, None, None)


@pytest.mark.parametrize('values', [[.8, .8, .8], [.8, .8 + 1e-9, .8 + 2e-9],
                                    np.float32([.8, .8, .8]).astype(float).tolist()])
def test_values_without_spread_are_not_tested(values):
    study = {'a': seeded(*values), 'b': seeded(.7, .7, .7)}
    told = verdict_row(weighted_contrast(study, {'a': 1, 'b': -1}), 1.)
    assert verdict_text(told, METRIC) == 'no measurable difference: no spread'
    assert told['low'] is None
    assert {standing.by for standing in standings(study).values()} == {None}


@pytest.mark.parametrize('mean, error, reach, verdict', [
    (.3, .2, None, 'level'), (-.3, .5, None, 'no measurable difference'), (1.2, .2, None, 'better'),
    (-.8, .2, None, 'worse'), (.3, .2, 3, 'level'), (.3, .2, 4, 'no measurable difference'),
    (1.2, .2, 7, 'no measurable difference'), (-1.5, .2, 7, 'worse')])
def test_level_is_two_one_sided_tests(mean, error, reach, verdict):
    """Of a study of 6 runs each: bounds of 90% within the margin, or those of a family of
    comparisons; a difference that is found is told as one, be it small."""
    told = verdict_row(Contrast(6, mean, error, 10), 1., reach)
    assert told['verdict'] == verdict
    wide, inner = (reach or stats.t.isf(tail, 10) for tail in (.025, .05))
    assert (told['low'], told['high']) == pytest.approx((mean - wide * error, mean + wide * error))
    assert (verdict == 'level') == (abs(mean) + inner * error < 1 and abs(mean) < wide * error)


@pytest.mark.parametrize('tails', [1, 2])
def test_of_two_encodings_the_reach_is_welchs_t(tails):
    values = gaussian(random.Random(3), (2, 2), 40)
    found = weighted_contrast(values, {'e0': 1, 'e1': -1})
    reach = reach_in_standard_errors(values, values, tails)
    assert list(reach.values()) == pytest.approx(
        [stats.t.isf(.05 / tails, found.freedom)] * 2, rel=.03)
    assert reach_in_standard_errors({'a': seeded(1, 2, 3), 'b': seeded(1, 2)}, ['a'], 1) == {}


def test_the_reach_is_dunnetts_where_spreads_are_equal():
    """One against five others, many runs each: the critical value of scipy's multivariate t."""
    values = gaussian(random.Random(3), (1,) * 6, 200)
    reach = reach_in_standard_errors(values, ['e0'], 2)['e0']
    cover = stats.multivariate_normal(cov=(np.eye(5) + 1) / 2).cdf(
        np.full(5, reach), lower_limit=np.full(5, -reach))
    assert cover == pytest.approx(.95, abs=.006)


def test_what_is_out_is_out_by_its_row():
    noise, out = random.Random(0), 0
    for _ in range(8):
        values = gaussian(noise, (1, .2, 3, 1), 3, (80, 84, 86, 79))
        stand = standings(values)
        best = max(values, key=lambda name: np.mean(
            list(values[name].values())))  # noqa: B023
        assert stand[best].by is None
        for name, standing in stand.items():
            if name != best:
                told = verdict_row(weighted_contrast(values, {name: 1, standing.by or best: -1}),
                                   1., standing.reach)
                assert (told['verdict'] == 'worse') == (standing.by is not None)
                out += standing.by is not None
    assert out


def advice(values, **more):
    return with_summary(study(values, **more)).recommendation


def test_clear_best_is_taken():
    told = advice(drawn({'none': {1.0: 80.}, 'learned': {1.0: 90.}, 'peg': {1.0: 96.}}, std=.05))
    assert (told['encoding'], told['confidence'], told['candidates']) == ('peg', 'best', ['peg'])
    assert told['sure'] == 'No encoding and learned are worse.'


def test_what_can_still_be_best_is_told():
    told = advice({'none': {1.0: [80., 81., 80.]}, 'peg': {1.0: [84., 82.5, 89.]}})
    assert (told['encoding'], told['confidence']) == ('peg', 'can still be best')
    assert told['sure'] == 'Can still be best: peg and no encoding. More seeds may tell.'


LEVEL = {'none': [91., 91.1, 91.05], 'peg': [91.1, 91.2, 91.], 'low': [50., 51., 50.4]}


@pytest.mark.parametrize('costs, taken', [
    # The cheapest that is level, by MACs at the trained size, else by parameters; what is not known
    # comes last.
    ({'peg': dict(macs=2e6)}, 'peg'), ({'none': dict(macs=2e6)}, 'none'),
    ({'none': dict(parameters=70), 'peg': dict(parameters=60)}, 'peg'),
    ({'peg': dict(macs=None, parameters=None)}, 'none')])
def test_of_level_encodings_the_cheapest_is_taken(costs, taken):
    encodings = [encoding(name, **{'macs': 1 if name == 'low' else 3e6, **costs.get(name, {})})
                 for name in LEVEL]
    for each in encodings:  # another order of costs at a size that is not the trained one
        each['costs'].insert(0, dict(factor=4.0, macs=1 if each['name'] == 'none' else 9e9))
    told = advice({name: {1.0: at} for name, at in LEVEL.items()}, encodings=encodings)
    assert (told['encoding'], told['confidence']) == (taken, 'can still be best')
    assert 'no encoding is level with it within 1' in told['reason']


@pytest.mark.parametrize('diverged, taken', [
    (['peg'], 'swin'), (['peg', 'swin'], 'none'), (['none'], 'peg')])
def test_what_diverged_is_not_taken_where_another_can_be_best(diverged, taken):
    values = {**LEVEL, 'peg': [92., 91., 93.], 'swin': [92., 90.9, 92.]}
    results = study({name: {1.0: at} for name, at in values.items()})
    results.runs += [run(name, 9, {}, status='diverged') for name in diverged]
    told = with_summary(results).recommendation
    assert (told['encoding'], told['confidence']) == (taken, 'can still be best')
    assert ('Of peg 1 of 4 runs diverged' in told['reason']) == ('peg' in diverged)


def test_leader_that_diverged_is_taken_alone_and_never_surely():
    results = study(drawn({'none': {1.0: 80.}, 'peg': {1.0: 96.}}, std=.05))
    assert with_summary(results).recommendation['confidence'] == 'best'
    for seed in (7, 8):
        results.runs.append(run('peg', seed, {}, status='diverged'))
    told = with_summary(results).recommendation
    assert told['encoding'] == 'peg' and told['confidence'] == 'can still be best'
    assert '2 of 5 runs diverged' in told['reason']


def test_a_tie_is_said():
    told = with_summary(study({'peg': {1.0: [80.]}, 'learned': {1.0: [80.]}})).recommendation
    assert told['reason'].startswith('peg ties with learned: they have the same top-1 accuracy at ')


def test_nothing_finished_nothing_to_compare_and_one_seed():
    results = study({'none': {1.0: [80.]}, 'peg': {1.0: [95.]}})
    told = with_summary(results).recommendation
    assert (told['encoding'], told['confidence']) == ('peg', 'can still be best')
    assert 'one seed' in told['reason']
    for each in results.runs:
        each['status'] = 'diverged'
    assert with_summary(results).recommendation['encoding'] is None
    assert advice({'peg': {1.0: [1., 2., 3.]}})['encoding'] == 'peg'


def test_reach_over_images_is_the_paired_t_interval_of_a_mean():
    """Of right or wrong answers the jackknife is Student's interval, also over several seeds."""
    answers = np.random.default_rng(0).integers(0, 2, (2, 3, 40)) * 100.0
    left = (answers.sum(2, keepdims=True) - answers) / 39
    seen = answers.mean(1)
    expected = stats.ttest_rel(*seen).confidence_interval(.95)
    reach = reach_over_images(*left.tolist())
    assert reach == pytest.approx((expected.high - expected.low) / 2)
    results = study({'none': {1.0: [80., 81., 82.]}, 'peg': {1.0: [95., 96., 97.]}})
    for each, values in zip(results.runs, left.reshape(-1, 40).tolist(), strict=True):
        each['tests'][0]['without_images'] = values
    assert [row['images'] for row in with_summary(results).differences] == [reach, reach]
    results.runs[0]['tests'][0]['without_images'].pop()
    assert {row['images'] for row in with_summary(results).differences} == {None}
