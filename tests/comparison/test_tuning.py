"""Learning rates and lengths of each encoding: which runs there are, and what is chosen."""
from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from mmengine.config import Config
from tinystudies import tiny_study

from mmposenc.lab.compare.page.exports import results_csv, results_md, tuning
from mmposenc.lab.compare.page.results import collect
from mmposenc.lab.compare.running.planning import Plan, headline
from mmposenc.lab.compare.running.runs import (
    carry_out,
    chosen_rate,
    is_complete,
    new_record,
    read_record,
    run_config,
    tuned,
)
from mmposenc.lab.compare.running.timing import Cost, Estimate
from mmposenc.lab.compare.statistics.summary import summarize
from mmposenc.lab.compare.study.encodings import lengthened, read_entries
from mmposenc.lab.compare.study.files import write_json
from mmposenc.lab.compare.study.rates import check_tunable, read_tune, set_rate
from mmposenc.lab.compare.study.study import TUNING_SEED, joined, read_study

RATES = (.1, 1.0, 10.0)


def ended(study, values, status='finished'):
    """Writes what trainings with each rate ended with; None diverged."""
    for run in study.tunings():
        value = values[run.rate]
        write_json(run.record_file, {
            **new_record(run), 'status': 'diverged' if value is None else status,
            'curve': [dict(epoch=1, loss=1.0, metric=90.0), dict(epoch=2, loss=1., metric=value)]})


@pytest.mark.parametrize('values, best', [
    ({.1: 50., 1.: 70., 10.: 60.}, 1.), ({.1: 70., 1.: 70., 10.: None}, .1),
    ({.1: None, 1.: 0., 10.: None}, 1.)])
def test_the_best_of_the_validation_is_taken(tmp_path, values, best):
    study = tiny_study(tmp_path, rates=RATES)
    ended(study, values)
    assert tuned(study, study.entries[0]) == values
    assert chosen_rate(study, study.entries[0]) == best
    run = study.runs()[0]
    base = study.base().optim_wrapper.optimizer.lr
    assert run_config(study, run, 'train').optim_wrapper.optimizer.lr == pytest.approx(base * best)
    for each in study.tunings():
        assert run_config(study, each, 'train').optim_wrapper.optimizer.lr == pytest.approx(
            base * each.rate)
        assert is_complete(study, each)


def test_nothing_is_compared_before_all_rates_are_tried(tmp_path):
    study = tiny_study(tmp_path, names=('none',), rates=RATES)
    with pytest.raises(ValueError, match=r"'none' is not chosen: the training with 0.1 times"):
        chosen_rate(study, study.entries[0])
    ended(study, dict.fromkeys(RATES, 50.), status='failed')
    with pytest.raises(ValueError, match='is not over'):
        chosen_rate(study, study.entries[0])
    ended(study, dict.fromkeys(RATES))
    record = carry_out(study, study.runs()[0])
    assert record['status'] == 'failed' and "no learning rate of 'none'" in record['note']


def test_a_training_that_tunes_tests_nothing_and_goes_on_where_it_was(tmp_path):
    study = tiny_study(tmp_path, names=('none',), rates=RATES, epochs=1)
    ended(study, {.1: 1., 1.: -1., 10.: 2.})
    run = study.tunings()[1]
    run.record_file.unlink()
    assert not is_complete(study, run)
    record = carry_out(study, run)
    assert record['status'] == 'finished' and record['tests'] == [] and is_complete(study, run)
    assert set(tuned(study, study.entries[0])) == set(RATES)
    assert read_record(run)['curve'][-1]['metric'] is not None
    assert run.folder.parents[2] == study.folder and read_study(study.folder) == study


def test_a_seed_of_the_users_is_tested_whatever_its_number(tmp_path):
    study = tiny_study(tmp_path, names=('none',), seeds=(TUNING_SEED,), epochs=1, rates=RATES)
    ended(study, {.1: 1., 1.: 2., 10.: None})
    record = carry_out(study, study.runs()[0])
    assert record['status'] == 'finished' and len(record['tests']) == 1 and record['rate'] == 1


def test_each_choice_is_said_and_stands_in_the_csv(tmp_path):
    study = tiny_study(tmp_path, rates=RATES)
    ended(study, {.1: 50., 1.: 60., 10.: None})
    for run in study.runs():
        test = dict(factor=1.0, value=50.0, by_class={}, by_size={})
        write_json(run.record_file, {**new_record(run), 'status': 'finished', 'rate': 1.0,
                                     'tests': [test]})
    results = summarize(collect(study))
    assert tuning(results)[1] == 'PEG: 1 times the learning rate, of 0.1 (50.0), 1 (60.0), 10 (–)'
    assert '- PEG: 1 times the learning rate' in results_md(results)
    assert [row['rate'] for row in csv.DictReader(io.StringIO(results_csv(results)))] == ['1.0'] * 2
    plain = tiny_study(tmp_path)
    assert not tuning(summarize(collect(plain))) and plain.tunings() == []


def test_runs_that_tune_are_counted(tmp_path):
    study = tiny_study(tmp_path, rates=RATES, seeds=(0, 1))
    said = headline(Plan(study, study.base(), None))
    assert said.startswith("6 runs of one seed choose the learning rates, of 0.1, 1, 10 times the "
                           "config's; then 4 runs of 2 epochs each")
    cost = Cost(start=1, step=1, epoch_steps=2, validation=3, tests=100)
    estimate = Estimate({'none': cost, 'peg': cost}, 1, study.base())
    run = estimate.run_seconds('none', study.length)
    assert estimate.study_seconds(study, study.length) == 4 * run + 6 * (run - 100)


def test_an_encoding_is_trained_longer_as_an_entry_of_its_own(tmp_path):
    entries = lengthened(read_entries(['none', 'peg']), [1, 2, .5])
    assert [each.name for each in entries] == [
        'none', 'none@2x', 'none@0.5x', 'peg', 'peg@2x', 'peg@0.5x']
    assert entries[4].label == 'PEG, 2 times as long'
    study = replace(tiny_study(tmp_path), entries=tuple(entries))
    assert [run_config(study, run, 'train').train_cfg.max_epochs for run in study.runs()] == [
        2, 4, 1] * 2
    cost = Cost(start=0, step=1, epoch_steps=1, validation=0, tests=0)
    estimate = Estimate(dict.fromkeys([each.name for each in entries], cost), 1, study.base())
    assert estimate.study_seconds(study, study.length) == 2 * (2 + 4 + 1)


def test_schedules_go_with_the_rate():
    cfg = Config(dict(
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=.01)),
        param_scheduler=[dict(type='LinearLR', start_factor=.1, end=1),
                         dict(type='CosineAnnealingLR', eta_min=1e-4)]))
    set_rate(cfg, 3.0)
    assert cfg.optim_wrapper.optimizer.lr == pytest.approx(.03)
    assert cfg.param_scheduler[1].eta_min == pytest.approx(3e-4)
    assert cfg.param_scheduler[0].start_factor == .1


@pytest.mark.parametrize('words, said', [
    (['depth'], 'only lr'), (['lr', '1', '2'], '3 to 5 different'), (['lr', 'a', '1', '2'], '3 to'),
    (['lr', '0', '1', '2'], 'above 0'), (['lr', *'123456'], '3 to 5')])
def test_wrong_words(words, said):
    with pytest.raises(ValueError, match=said):
        read_tune(words)
    assert read_tune(['lr', '3', '.5', '1']) == (.5, 1, 3) and read_tune(None) == ()
    assert read_tune(['lr'])[1:] == (1, 3)


def test_what_cannot_be_tuned_is_refused(tmp_path):
    study = tiny_study(tmp_path, rates=RATES)
    cfg = study.base()
    check_tunable(cfg)
    cfg.val_dataloader = cfg.val_cfg = cfg.val_evaluator = None
    with pytest.raises(ValueError, match='chooses by the validation'):
        check_tunable(cfg)
    cfg.optim_wrapper.optimizer.lr = None
    with pytest.raises(ValueError, match=r'optimizer.lr=None must be a number'):
        check_tunable(cfg)
    with pytest.raises(ValueError, match='--tune is another'):
        joined(study, replace(study, rates=(.5, 1., 2.)))
    assert joined(study, replace(study, rates=())).rates == RATES
