"""What one run of a comparison does, in a process of its own.

The argument of :func:`main` is the run's folder, such as STUDY/runs/peg/seed0. It trains, tests at
every size and writes run.json; started again, it continues where it was.
"""
from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from mmengine.config import Config

from mmposenc import engine
from mmposenc.attention.building import parameter_counts
from mmposenc.config_types import ImageSize
from mmposenc.engine.training.checkpoints import latest_checkpoint
from mmposenc.engine.training.finite import NotFinite, noting_first_not_finite
from mmposenc.engine.training.lock import WorkDirLock
from mmposenc.engine.variants.applying import with_entry
from mmposenc.engine.variants.sizes import config_at_size, size_order, size_word
from mmposenc.terminal.messages import in_a_line

from ..study.config import value_of_test
from ..study.records import Record
from ..study.study import Run, Study, read_study
from .images import also_without_images
from .recording import (
    RecordHook,
    class_hashes,
    is_over,
    read_record,
    sizes_left_to_test,
    versions_and_machine,
    write_record,
)
from .workers import TAKEN

#: The smallest number of checkpoints of a training: a run that is killed repeats at most a tenth of
#: itself.
_CHECKPOINTS = 10
#: The exit status of a run that is over without having finished.
NOT_FINISHED = 4
#: How many levels of a model have their outputs checked in a test: backbone, neck, head and their
#: parts.
_DEPTH = 2
#: The seconds that a run has to save itself after the command that started it has gone.
_GRACE = 30


def run_config(study: Study, run: Run, purpose: str) -> Config:
    """The config of a run: the study's config with the run's encoding and seed. It keeps its last
    checkpoint alone, which is tested.

    Args:
        study, run: which.
        purpose: 'train', or the name of a test; the work directory below the run's folder.
    """
    cfg = with_entry(study.base, run.entry)
    number, unit = study.base.length
    hooks = cfg.setdefault('default_hooks', {})
    hooks['checkpoint'] = {
        'type': 'CheckpointHook', **(hooks.get('checkpoint') or {}), 'by_epoch': unit == 'epochs',
        'interval': max(1, number // _CHECKPOINTS), 'max_keep_ckpts': 1, 'save_last': True,
        'save_best': None, 'out_dir': None}  # Runs would share another folder.
    # mmengine keeps one logger and one visualizer for each name.
    name = str(run.folder.resolve() / purpose).strip(os.sep).replace(os.sep, '_')
    cfg.experiment_name = name
    if cfg.get('visualizer'):
        cfg.visualizer.name = name
    cfg.randomness = {**(cfg.get('randomness') or {}), 'seed': run.seed}
    cfg.work_dir = str(run.folder / purpose)
    return cfg


def carry_out(study: Study, run: Run) -> Record:
    """Do what is left of a run, and return its record."""
    record = read_record(run)
    if is_over(study, record):
        return record
    write_record(run, record, status='running', note='', environment=versions_and_machine())
    try:
        if record['checkpoint'] is None:
            _train_and_record(study, run, record)
        note = _test_all_sizes(study, run, record)
        end: Record = {'status': 'finished', 'note': note}
    except NotFinite as error:
        end = {'status': 'diverged', 'note': error.report}
    except Exception as error:
        traceback.print_exc()
        end = {'status': 'failed', 'note': in_a_line(error)}
    write_record(run, record, **end)
    return record


def _train_and_record(study: Study, run: Run, record: Record) -> None:
    cfg = run_config(study, run, 'train')
    write_record(run, record, class_hashes=class_hashes(cfg))
    # Without a checkpoint, load_from of the config counts.
    resume = 'auto' if latest_checkpoint(cfg.work_dir, cfg) else None
    engine.set_train_options(cfg, resume=resume)
    runner = engine.build_runner(cfg)
    hook = RecordHook(run, record)
    runner.register_hook(hook)
    runner.train()
    hook.update_record(share=1.0)
    write_record(run, record, parameters=sum(parameter_counts(runner.model).values()),
                 checkpoint=os.path.relpath(str(latest_checkpoint(cfg.work_dir, cfg)),
                                            study.folder))


def _test_all_sizes(study: Study, run: Run, record: Record) -> str:
    """Test at the trained size, then at all other sizes that are left. An error at another size
    leaves the values of the other sizes as they are. Returns a note of such errors."""
    failed = []
    checkpoint = str(study.folder / record['checkpoint'])
    for at in sizes_left_to_test(study, record):
        try:
            row = _test_at_size(study, run, at, checkpoint)
        except (Exception, NotFinite) as error:
            if at == 1:
                raise
            traceback.print_exc()
            failed.append(f'no test at {size_word(at, "x")}: {in_a_line(error)}')
            continue
        write_record(run, record, tests=sorted([*record['tests'], row],
                                               key=lambda test: size_order(test['factor'])))
    return '; '.join(failed)


def _test_at_size(study: Study, run: Run, at: ImageSize, checkpoint: str) -> Record:
    """The result of weights at one size."""
    cfg = config_at_size(run_config(study, run, f'test/{size_word(at)}'), at)
    engine.set_test_options(cfg, checkpoint)
    runner = engine.build_runner(cfg)
    left = also_without_images(runner.test_loop.evaluator.metrics[0], study.base.metric.name)
    bad: list[str] = []
    with noting_first_not_finite(runner.model, bad, _DEPTH):
        metrics = runner.test()
    value = value_of_test(study.base, metrics)
    # A classifier whose outputs are NaN would otherwise predict the first class of all.
    if bad or not math.isfinite(value):
        what = f'the output of {bad[0]}' if bad else f'{study.base.metric.name}={value}'
        raise NotFinite(f'predictions are not finite: {what}')
    return {'factor': at, 'value': value, 'without_images': left}


def end_when_parent_ends() -> None:
    """End this process when its standard input ends, that is when the command at the other end is
    gone for whatever reason. It saves itself if there is time."""
    def end_at_end_of_stdin() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        os._exit(NOT_FINISHED)
    threading.Thread(target=end_at_end_of_stdin, daemon=True).start()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('folder', type=Path)
    parser.add_argument('--tied', action='store_true', help='end when the standard input ends')
    args = parser.parse_args(argv)
    if args.tied:
        end_when_parent_ends()
    try:
        lock = WorkDirLock(args.folder)
    except ValueError as error:
        print(error, file=sys.stderr)
        return TAKEN
    study = read_study(args.folder.parents[2])
    run = next(each for each in study.runs() if each.folder.resolve() == args.folder.resolve())
    record = carry_out(study, run)
    lock.release()
    return 0 if record['status'] == 'finished' else NOT_FINISHED
