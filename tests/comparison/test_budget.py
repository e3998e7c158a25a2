import pytest
from mmengine.config import Config
from tinystudies import tiny_study

from mmposenc.comparison.budget import Cost, Estimate, cost_of
from mmposenc.comparison.encodings import read_entries
from mmposenc.comparison.lengths import Length
from mmposenc.comparison.study import Study

BASE = Config(dict(train_cfg=dict(by_epoch=True, max_epochs=10, val_interval=5)))
COST = Cost(start=10.0, step=0.1, epoch_steps=100, validation=5.0, tests=4.0)


def study(tmp_path, seconds=None, seeds=(0, 1, 2)):
    return Study(tmp_path, 'base.py', '', '', tuple(read_entries(['none', 'peg'])), seeds, (1.0,),
                 Length('epochs', 10), seconds)


def estimate(jobs, slow=COST):
    return Estimate({'none': COST, 'peg': slow}, jobs, BASE)


def test_a_run_is_the_sum_of_its_parts():
    one = estimate(1)
    assert one.run_seconds('none', Length('epochs', 10)) == 10 + 1000 * 0.1 + 2 * 5 + 4
    # A validation every second epoch and at the end.
    assert one.run_seconds('none', Length('epochs', 3)) == pytest.approx(10 + 30 + 2 * 5 + 4)


def test_runs_side_by_side_take_the_time_of_the_busiest(tmp_path):
    length = Length('epochs', 10)
    assert estimate(1).study_seconds(study(tmp_path), length) == 6 * 124
    assert estimate(2).study_seconds(study(tmp_path), length) == 3 * 124
    assert estimate(4).study_seconds(study(tmp_path), length) == 2 * 124
    # In the order of the runs: none 124 | peg 224, then none at 124, peg at 224.
    slow = estimate(2, COST._replace(step=0.2))
    assert slow.study_seconds(study(tmp_path, seeds=(0, 1)), length) == 224 + 224


def test_the_longest_training_that_fits(tmp_path):
    for seconds in (100, 200, 300, 390):
        asked = study(tmp_path, seconds)
        found = estimate(2).longest(asked)
        assert estimate(2).study_seconds(asked, found) <= 0.95 * seconds
        longer = Length('epochs', found.number + 1)
        assert estimate(2).study_seconds(asked, longer) > 0.95 * seconds
    assert estimate(2).longest(study(tmp_path, 1e6)) == Length('epochs', 10)  # the config's own


def test_a_budget_that_is_too_small_names_the_least(tmp_path):
    # Three runs, one after the other, of 10 + 10 + 5 + 4 s; 87 / 0.95 = 91.6.
    with pytest.raises(ValueError, match=r'--budget: 60 s are too few for 6 runs of 1 epoch with 2 '
                                         r'at once; at least 92s are required'):
        estimate(2).longest(study(tmp_path, 60))
    # What checks and timing took is gone: (87 + 19) / 0.95 = 111.6.
    with pytest.raises(ValueError, match='at least 112s are required'):
        estimate(2).longest(study(tmp_path, 100), spent=19)


def test_the_parts_are_timed(tmp_path):
    tiny = tiny_study(tmp_path, sizes=(1.0, 2.0))
    cost = cost_of(tiny, tiny.entries[1], 0.0, tmp_path / 'times')
    assert cost.epoch_steps == 2  # four pictures, two in a batch
    assert 0 < cost.step < 20
    assert 0 < cost.validation < cost.tests
