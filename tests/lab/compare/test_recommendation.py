"""Which encoding is recommended, why, and how sure that is said to be."""
import pytest
from helpers.made_up_studies import drawn, encoding, run, study

from mmposenc.lab.compare.statistics.summary import with_summary


def advice(values, **more):
    return with_summary(study(values, **more))['recommendation']


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
    results['runs'] += [run(name, 9, {}, status='diverged') for name in diverged]
    told = with_summary(results)['recommendation']
    assert (told['encoding'], told['confidence']) == (taken, 'can still be best')
    assert ('Of peg 1 of 4 runs diverged' in told['reason']) == ('peg' in diverged)


def test_leader_that_diverged_is_taken_alone_and_never_surely():
    results = study(drawn({'none': {1.0: 80.}, 'peg': {1.0: 96.}}, std=.05))
    assert with_summary(results)['recommendation']['confidence'] == 'best'
    for seed in (7, 8):
        results['runs'].append(run('peg', seed, {}, status='diverged'))
    told = with_summary(results)['recommendation']
    assert told['encoding'] == 'peg' and told['confidence'] == 'can still be best'
    assert '2 of 5 runs diverged' in told['reason']


def test_nothing_finished_nothing_to_compare_and_one_seed():
    results = study({'none': {1.0: [80.]}, 'peg': {1.0: [95.]}})
    told = with_summary(results)['recommendation']
    assert (told['encoding'], told['confidence']) == ('peg', 'can still be best')
    assert 'one seed' in told['reason']
    for each in results['runs']:
        each['status'] = 'diverged'
    assert with_summary(results)['recommendation']['encoding'] is None
    assert advice({'peg': {1.0: [1., 2., 3.]}})['encoding'] == 'peg'
