"""Which encoding is recommended, why, and how sure that is said to be."""
import pytest
from madeup_studies import METRIC, drawn, encoding, run, study

from mmposenc.lab.compare.statistics.summary import beside, summarize


def advice(values, **more):
    return summarize(study(values, **more))['recommendation']


def test_clear_best_is_taken_and_shown():
    told = advice(drawn({'none': {1.0: 80.}, 'learned': {1.0: 90.}, 'peg': {1.0: 96.}}, std=.05))
    assert (told['encoding'], told['confidence']) == ('peg', 'shown')
    assert 'none and learned are worse than peg' in told['sure'] and 'Not shown' not in told['sure']
    metric = {**METRIC, 'higher_is_better': False, 'unit': ''}
    told = advice({'none': {1.0: [3., 3.1, 3.3]}, 'peg': {1.0: [1., 1.2, 1.1]}}, metric=metric)
    assert told['encoding'] == 'peg'


def test_leader_by_more_than_an_error_is_likely():
    values = {'none': {1.0: [80., 81., 80.]}, 'peg': {1.0: [84., 82.5, 89.]}}
    told = advice(values)
    assert (told['encoding'], told['confidence']) == ('peg', 'likely')
    assert 'Not shown: any difference between peg and none' in told['sure']


LEVEL = {'none': [90., 92., 91.], 'peg': [92., 90., 91.2], 'low': [50., 51., 50.4]}


def test_the_base_has_a_test_of_its_own():
    """Over all pairs of many encodings nothing is shown; against the base it is."""
    values = {f'e{n}': {1.0: [80 + n / 4, 81 + n * .275, 80 + n * .225]} for n in range(9)}
    results = summarize(study(values))
    rows = {(row['role'], row['encoding']): row for row in results['differences']}
    assert rows['best', 'e0']['p'] > rows['base', 'e8']['p'] and rows['base', 'e8']['p'] < .05
    assert rows['best', 'e0']['verdict'] == 'no difference seen'
    assert 'Shown: e0 is worse than e8' in results['recommendation']['sure']
    assert beside(results, 1.0, 'e8') == (['e0'], [f'e{n}' for n in range(1, 8)])


ONE = {1.0: [80.]}


@pytest.mark.parametrize('values, costs, taken', [
    # Level at the trained size: the best at others, else the cheapest by MACs at the trained size,
    # else by parameters; what is not known comes last.
    ({name: {1.0: at, 2.0: [value - (0 if name == 'none' else 20) - n / 10
                            for n, value in enumerate(at)]} for name, at in LEVEL.items()},
     {}, 'none'),
    ({name: {1.0: at, 2.0: at} for name, at in LEVEL.items()}, {'peg': dict(macs=2e6)}, 'peg'),
    ({name: {1.0: at} for name, at in LEVEL.items()}, {'peg': dict(macs=2e6)}, 'peg'),
    ({name: {1.0: LEVEL[name]} for name in ('none', 'peg')}, {
        'none': dict(macs=1e6, parameters=70), 'peg': dict(macs=1e6, parameters=60)}, 'peg'),
    ({name: {1.0: LEVEL[name]} for name in ('none', 'peg')}, {
        'peg': dict(macs=None, parameters=None)}, 'none'),
    ({'none': ONE, 'peg': ONE}, {'peg': dict(macs=2e6)}, 'peg')])
def test_level_encodings_are_parted_by_other_sizes_and_costs(values, costs, taken):
    encodings = [encoding(name, **{'macs': 1 if name == 'low' else 3e6, **costs.get(name, {})})
                 for name in values]
    for each in encodings:  # another order of costs at a size that is not the trained one
        each['costs'].insert(0, dict(factor=4.0, macs=1 if each['name'] == 'none' else 9e9))
    told = advice(values, encodings=encodings)
    assert (told['encoding'], told['confidence']) == (taken, 'open')


@pytest.mark.parametrize('diverged, taken', [
    (['peg'], 'swin'), (['peg', 'swin'], 'none'), (['none'], 'peg')])
def test_what_diverged_is_not_taken_where_another_is_level(diverged, taken):
    """But the cheapest of the rest."""
    values = {**LEVEL, 'swin': [91., 90.5, 91.]}
    results = study({name: {1.0: at} for name, at in values.items()},
                    encodings=[encoding(name, macs=macs) for name, macs in
                               zip(values, (3e6, 2e6, 1, 2.5e6), strict=True)])
    results['runs'] += [run(name, 9, {}, status='diverged') for name in diverged]
    told = summarize(results)['recommendation']
    assert (told['encoding'], told['confidence']) == (taken, 'open')
    assert ('peg 1 of 4 runs diverged' in told['reason']) == ('peg' in diverged)


def test_leader_that_diverged_is_taken_alone_and_never_surely():
    results = study(drawn({'none': {1.0: 80.}, 'peg': {1.0: 96.}}, std=.05))
    assert summarize(results)['recommendation']['confidence'] == 'shown'
    for seed in (7, 8):
        results['runs'].append(run('peg', seed, {}, status='diverged'))
    told = summarize(results)['recommendation']
    assert told['encoding'] == 'peg' and told['confidence'] == 'open'
    assert '2 of 5 runs diverged' in told['reason']


def test_nothing_finished_nothing_to_compare_and_one_seed():
    results = study({'none': {1.0: [80.]}, 'peg': {1.0: [95.]}})
    told = summarize(results)['recommendation']
    assert (told['encoding'], told['confidence']) == ('peg', 'open')
    assert 'one seed' in told['reason']
    for each in results['runs']:
        each['status'] = 'diverged'
    assert summarize(results)['recommendation']['encoding'] is None
    assert advice({'peg': {1.0: [1., 2., 3.]}})['encoding'] == 'peg'
