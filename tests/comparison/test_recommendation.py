"""Which encoding is recommended, why, and how sure that is said to be."""
from madeup_studies import METRIC, drawn, encoding, run, study

from mmposenc.comparison.recommendation import beside
from mmposenc.comparison.statistics import summarize


def advice(values, **more):
    return summarize(study(values, **more))['recommendation']


def test_clear_best_is_taken_and_shown():
    told = advice(drawn({'none': {1.0: 80.}, 'learned': {1.0: 90.}, 'peg': {1.0: 96.}}, std=.05))
    assert told['encoding'] == 'peg' and told['confidence'] == 'shown'
    assert 'highest top-1 accuracy at the trained size' in told['reason']
    assert 'Next is learned with' in told['reason']
    assert 'none and learned are worse than peg' in told['sure'] and 'Not shown' not in told['sure']


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


def test_level_at_the_trained_size_parted_by_others():
    values = {name: {1.0: at, 2.0: [value - (0 if name == 'none' else 20) - n / 10
                                    for n, value in enumerate(at)]} for name, at in LEVEL.items()}
    told = advice(values)
    assert told['encoding'] == 'none' and told['confidence'] == 'open'
    assert 'No difference seen at the trained size between none and peg' in told['reason']
    assert 'their means are within one standard error of the best' in told['reason']
    assert 'Over the other sizes none has the highest mean' in told['reason']


def test_equal_values_of_one_seed_are_called_the_same():
    told = advice({name: {1.0: [80]} for name in ('none', 'peg')})
    assert 'between none and peg: their means are the same.' in told['reason']


def test_level_everywhere_takes_the_cheapest():
    costs = [encoding('none', macs=3e6), encoding('peg', macs=2e6), encoding('low', macs=1)]
    told = advice({name: {1.0: at} for name, at in LEVEL.items()}, encodings=costs)
    assert told['encoding'] == 'peg' and 'So take the cheapest: peg.' in told['reason']
    told = advice({name: {1.0: at, 2.0: at} for name, at in LEVEL.items()}, encodings=costs)
    assert 'other sizes do not part none and peg either' in told['reason']
    assert told['encoding'] == 'peg'


def test_parameters_part_equal_costs_and_unknown_ones_come_last():
    values = {name: {1.0: LEVEL[name]} for name in ('none', 'peg')}
    cheap, dear = encoding('none', 70), encoding('peg', 60)
    assert advice(values, encodings=[cheap, dear])['encoding'] == 'peg'
    dear.update(costs=[], parameters=None)
    assert advice(values, encodings=[cheap, dear])['encoding'] == 'none'


def test_cheapest_is_so_at_the_trained_size():
    costs = [encoding('none', macs=3e6), encoding('peg', macs=2e6)]
    for each, macs in zip(costs, (1, 9e9), strict=True):
        each['costs'].insert(0, dict(factor=2.0, macs=macs))
    values = {name: {1.0: LEVEL[name], 2.0: LEVEL[name]} for name in ('none', 'peg')}
    assert advice(values, encodings=costs)['encoding'] == 'peg'


def test_level_encoding_that_diverged_is_not_taken():
    results = study({name: {1.0: at} for name, at in LEVEL.items()})
    results['runs'].append(run('none', 9, {}, status='diverged'))
    told = summarize(results)['recommendation']
    assert told['encoding'] == 'peg' and 'diverged' not in told['reason']


def test_leader_that_diverged_is_not_taken_where_another_is_level():
    values = {**LEVEL, 'swin': [91., 90.5, 91.]}
    results = study({name: {1.0: at} for name, at in values.items()},
                    encodings=[encoding(name, macs=macs) for name, macs in
                               zip(values, (3e6, 2e6, 1, 2.5e6), strict=True)])
    results['runs'].append(run('peg', 9, {}, status='diverged'))
    told = summarize(results)['recommendation']
    assert told['encoding'] == 'swin' and told['confidence'] == 'open'  # the cheapest of the rest
    assert ('between none, peg and swin: their means are within one standard error of the best. Of '
            'peg 1 of 4 runs diverged; its mean is of the others. It is not taken. So take the '
            'cheapest: swin.') in told['reason']
    results['runs'].append(run('swin', 9, {}, status='diverged'))
    told = summarize(results)['recommendation']
    assert told['encoding'] == 'none' and told['reason'].endswith('not taken. Take none.')


def test_leader_that_diverged_is_taken_alone_and_never_surely():
    results = study(drawn({'none': {1.0: 80.}, 'peg': {1.0: 96.}}, std=.05))
    assert summarize(results)['recommendation']['confidence'] == 'shown'
    for seed in (7, 8):
        results['runs'].append(run('peg', seed, {}, status='diverged'))
    told = summarize(results)['recommendation']
    assert told['encoding'] == 'peg' and told['confidence'] == 'open'
    assert told['reason'].endswith('Of peg 2 of 5 runs diverged; its mean is of the others.')


def test_only_encoding_of_which_others_diverged():
    results = study({'none': {1.0: [80., 81.]}})
    results['runs'].append(run('none', 9, {}, status='diverged'))
    assert '1 of 3 runs diverged' in summarize(results)['recommendation']['reason']


def test_one_seed_is_sure_of_nothing():
    told = advice({'none': {1.0: [80.]}, 'peg': {1.0: [95.]}})
    assert told['encoding'] == 'peg' and told['confidence'] == 'open'
    assert 'one seed' in told['reason'] and told['sure'].startswith('Nothing')


def test_one_seed_is_level_where_its_values_are_equal():
    costs = [encoding('none', macs=3e6), encoding('peg', macs=2e6)]
    told = advice({'none': {1.0: [80.]}, 'peg': {1.0: [80.]}}, encodings=costs)
    assert told['encoding'] == 'peg' and 'So take the cheapest' in told['reason']


def test_nothing_finished_and_nothing_to_compare():
    results = study({'none': {1.0: [80.]}, 'peg': {1.0: [95.]}})
    for each in results['runs']:
        each['status'] = 'diverged'
    assert summarize(results)['recommendation']['encoding'] is None
    assert advice({'peg': {1.0: [1., 2., 3.]}})['reason'] == (
        'It is the only encoding with a finished run.')


def test_lower_metric_is_recommended():
    metric = {**METRIC, 'higher_is_better': False, 'unit': ''}
    told = advice({'none': {1.0: [3., 3.1, 3.3]}, 'peg': {1.0: [1., 1.2, 1.1]}}, metric=metric)
    assert told['encoding'] == 'peg' and 'lowest' in told['reason']


def test_the_base_is_beside_the_best_by_its_own_test():
    """Of nine encodings all pairs show nothing, and the one test of the base does."""
    values = {f'e{n}': {1.0: [80 + n / 4, 81 + n * .275, 80 + n * .225]} for n in range(9)}
    worse, level = beside(summarize(study(values)), 1.0, 'e8')
    assert worse == ['e0'] and level == [f'e{n}' for n in range(1, 8)]
