"""Differences of means: against scipy, arithmetic written out, and draws."""
import math
import random

import numpy as np
import pytest
from scipy import integrate, stats

from mmposenc.lab.compare.statistics.differences import beyond, contrast, critical, row


def seeded(*values, first=0):
    return dict(enumerate(values, first))


@pytest.mark.parametrize('count', [3, 12])
def test_two_encodings_of_as_many_runs_are_welchs_test(count):
    """Whatever their seeds are: nothing is paired."""
    noise = random.Random(count)
    one, other = ([noise.gauss(90, spread) for _ in range(count)] for spread in (1, 2))
    expected = stats.ttest_ind(one, other, equal_var=False)
    told = row(contrast({'a': seeded(*one), 'b': seeded(*other, first=7)}, {'a': 1, 'b': -1}))
    bounds = expected.confidence_interval(.95)
    assert told['p'] == pytest.approx(expected.pvalue, rel=1e-9)
    assert (told['low'], told['high']) == pytest.approx((bounds.low, bounds.high), rel=1e-9)
    assert told['n'] == count and told['mean'] == pytest.approx(np.mean(one) - np.mean(other))


def naive(values, weights, draws):
    """Error and freedom of a contrast, with what is known of each variance written out."""
    own = {name: np.var(list(each.values()), ddof=1) for name, each in values.items()}
    free = {name: len(each) - 1 for name, each in values.items()}
    pooled = sum(own[name] * free[name] for name in own) / sum(free.values())
    square = sum(weight ** 2 * (own[name] + pooled) / 2 / len(values[name])
                 for name, weight in weights.items())
    # The variance of that estimate, were the variances the true ones: by drawing each s^2.
    noise = np.random.default_rng(0)
    drawn = {name: own[name] * noise.chisquare(free[name], draws) / free[name] for name in own}
    common = sum(drawn[name] * free[name] for name in own) / sum(free.values())
    squares = sum(weight ** 2 * (drawn[name] + common) / 2 / len(values[name])
                  for name, weight in weights.items())
    return math.sqrt(square), 2 * square ** 2 / squares.var()


@pytest.mark.parametrize('weights', [{'a': 1, 'b': -1}, {'a': .5, 'c': .5, 'b': -1}])
def test_a_variance_is_half_its_own_and_half_of_all(weights):
    values = {'a': seeded(91., 92.5, 90.2), 'b': seeded(80., 81., 78.5, 84.), 'd': seeded(1., 4.),
              'c': seeded(70., 70.5, 71., 70.1, 69.), 'e': seeded(0., 9., 3., 5., 2., 1.)}
    error, freedom = naive(values, weights, 400_000)
    told = contrast({**values, 'once': seeded(1000.)}, weights)
    assert told.error == pytest.approx(error, rel=1e-12)
    # 2 E² / Var of the drawn squares is what Satterthwaite's freedom stands for; 1% is 3 standard
    # deviations of a variance of so many draws.
    assert told.freedom == pytest.approx(freedom, rel=.01)
    assert told.n == 3


def test_two_runs_have_an_error_and_no_test_one_has_a_mean_and_none_nothing():
    told = row(contrast({'a': seeded(90, 92), 'b': seeded(80, 81)}, {'a': 1, 'b': -1}))
    assert (told['n'], told['p'], told['verdict']) == (2, None, 'too few runs')
    assert told['mean'] == 10.5 and told['low'] < 10.5 < told['high']
    values = {'a': seeded(90.), 'b': seeded(80., 81., 82.), 'c': {}}
    assert contrast(values, {'a': 1, 'b': -1}) == (1, 9, None, None)
    for name in ('c', 'gone'):
        told = row(contrast(values, {name: 1, 'b': -1}))
        assert (told['n'], told['mean'], told['verdict']) == (0, None, 'too few runs')


@pytest.mark.parametrize('values', [[.8, .8, .8], [.8, .8 + 1e-9, .8 + 2e-9],
                                    np.float32([.8, .8, .8]).astype(float).tolist()])
def test_values_without_spread_are_not_tested(values):
    told = row(contrast({'a': seeded(*values), 'b': seeded(.7, .7, .7)}, {'a': 1, 'b': -1}))
    assert told['p'] is None and told['verdict'] == 'no difference seen'
    assert 'no spread' in told['test'] and told['low'] == told['mean'] == told['high']


@pytest.mark.parametrize('freedom', [1, 2, 3.7, 20, 400])
def test_of_one_comparison_it_is_students(freedom):
    for t in (0, .5, 2.5, -7, 60):
        assert beyond(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), abs=1e-8)
    assert critical(freedom) == pytest.approx(stats.t.isf(.025, freedom), rel=1e-6)


@pytest.mark.parametrize('count', [3, 66])
@pytest.mark.parametrize('freedom', [2.5, 9])
def test_the_largest_of_several_by_another_integral(count, freedom):
    """Over the distribution function of the spread instead of its logarithm."""
    def inside(share):
        s = math.sqrt(stats.chi2.ppf(share, freedom) / freedom)
        return 1 - (1 - 2 * stats.norm.sf(6 * s)) ** count
    expected = integrate.quad(inside, 0, 1, limit=200, epsabs=1e-8)[0]
    assert beyond(6, freedom, count) == pytest.approx(expected, abs=1e-6)
    assert beyond(critical(freedom, count), freedom, count) == pytest.approx(.05, abs=1e-9)
    assert critical(freedom, 2 * count) > critical(freedom, count)
