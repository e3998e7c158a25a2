"""What one run of a comparison does, in a process of its own.

    python -m mmposenc.lab.compare.running.runs STUDY/runs/peg/seed0

It trains, tests at every size and writes run.json; started again, it continues where it was.
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
from mmengine.dist import all_gather_object, is_main_process

from mmposenc import engine
from mmposenc.engine.training.checkpoints import latest_checkpoint
from mmposenc.engine.training.finite import NotFinite, noting_first_not_finite
from mmposenc.engine.training.lock import WorkDirLock
from mmposenc.engine.training.processes import unwrapped_model
from mmposenc.engine.variants.applying import with_entry
from mmposenc.engine.variants.sizes import config_at_size
from mmposenc.terminal.messages import in_a_line

from ..study.files import Record, read_json, write_json
from ..study.lengths import set_length
from ..study.metrics import config_with_details, value_and_details
from ..study.study import Run, Study, read_study
from .extras import make_missing_extras, missing_extras
from .recording import RecordHook, read_progress, versions_and_machine, write_progress
from .workers import KILL

#: Exit statuses: another process works on the run; the run is over without having finished.
TAKEN, NOT_FINISHED = 75, 4
#: How many levels of a model have their outputs checked in a test: backbone, neck, head and their
#: parts.
_DEPTH = 2
#: The seconds that a run has to save itself after the command that started it has gone.
_GRACE = 30


def new_record(run: Run) -> Record:
    """What run.json holds before anything is known."""
    return {'encoding': run.entry.name, 'seed': run.seed, 'status': 'waiting', 'note': '',
            'parameters': None, 'seconds': None, 'train_seconds': None, 'train_cpu_seconds': None,
            'peak_bytes': None, 'curve': [], 'tests': [], 'checkpoint': None}


def read_record(run: Run) -> Record:
    """The record of a run, or a new one."""
    return {**new_record(run), **(read_json(run.record_file) or {})}


def sizes_left_to_test(study: Study, record: Record) -> list[float]:
    """The sizes of a study that a record has no test of, the trained size first."""
    tested = [test['factor'] for test in record['tests']]
    return sorted((factor for factor in study.sizes if factor not in tested),
                  key=lambda factor: factor != 1)


def is_over(study: Study, record: Record) -> bool:
    """Whether nothing is left to do: tested at all sizes, or diverged."""
    return record['status'] == 'diverged' or (
        record['status'] == 'finished' and not sizes_left_to_test(study, record))


def has_nothing_to_do(study: Study, run: Run) -> bool:
    """Whether a call has nothing to do for a run: it is over, and the extras of its encoding are
    there."""
    record = read_record(run)
    return is_over(study, record) and not (
        run.first and record['status'] == 'finished' and missing_extras(study, run))


def run_config(study: Study, run: Run, purpose: str) -> Config:
    """The config of a run: the study's config with the run's encoding, length and seed.

    Args:
        study, run: which.
        purpose: 'train', or the name of a test; the work directory below the run's folder.
    """
    cfg = with_entry(study.base, run.entry)
    set_length(cfg, study.length)
    # mmengine keeps one logger and one visualizer for each name.
    name = str(run.folder.resolve() / purpose).strip(os.sep).replace(os.sep, '_')
    cfg.experiment_name = name
    if cfg.get('visualizer'):
        cfg.visualizer.name = name
    cfg.randomness = {**(cfg.get('randomness') or {}), 'seed': run.seed}
    cfg.work_dir = str(run.folder / purpose)
    return cfg


def carry_out(study: Study, run: Run, launcher: str = 'none') -> Record:
    """Do what is left of a run, and return its record.

    Args:
        study, run: which.
        launcher: as the config's: 'pytorch' in processes that torchrun started.
    """
    begin, record = time.monotonic(), {**read_record(run), 'note': '',
                                       'environment': versions_and_machine()}
    before = record.get('seconds') or 0
    if not is_over(study, record):
        record['status'] = 'running'
    _write_record(run, record)
    try:
        if record['checkpoint'] is None:
            _train_and_record(study, run, record, launcher)
        _test_all_sizes(study, run, record, launcher)
        record['status'] = 'finished'
    except NotFinite as error:
        record.update(status='diverged', note=error.report)
    except Exception as error:
        traceback.print_exc()
        record.update(status='failed', note=in_a_line(error))
    engine.leave_process_group()
    if record['status'] != 'failed' and run.first and is_main_process():
        _write_record(run,
                      record)  # Saved now, because what follows may be killed when memory runs out.
        _write_phase(run, 'extras')
        finished = record['status'] == 'finished'
        make_missing_extras(study, run,
                            str(study.folder / record['checkpoint']) if finished else None)
    record['seconds'] = before + time.monotonic() - begin
    _write_record(run, record)
    return record


def _train_and_record(study: Study, run: Run, record: Record, launcher: str) -> None:
    _write_phase(run, 'start')
    cfg = run_config(study, run, 'train')
    cfg.launcher = launcher
    # Without a checkpoint, load_from of the config counts.
    resume = 'auto' if latest_checkpoint(cfg.work_dir) else None
    engine.set_up_training(cfg, resume=resume)
    runner = engine.build_runner(cfg)
    hook = RecordHook(run, study.metric.name, study.length.unit == 'epochs')
    runner.register_hook(hook)
    runner.train()
    costs = hook.costs()
    record.update(train_seconds=costs['seconds'], train_cpu_seconds=costs['cpu_seconds'],
                  peak_bytes=costs['peak_bytes'], curve=hook.curve,
                  parameters=sum(p.numel() for p in runner.model.parameters()),
                  checkpoint=os.path.relpath(str(latest_checkpoint(cfg.work_dir)), study.folder))
    bad = [point for point in hook.curve
           if point['loss'] is not None and not math.isfinite(point['loss'])]
    if bad:
        raise NotFinite(f'the loss was not finite: {bad[0]}')
    _write_record(run, record)


def _test_all_sizes(study: Study, run: Run, record: Record, launcher: str) -> None:
    """Test at the trained size, then at all other sizes that are left. An error at another size
    leaves a note, and the values of the other sizes stay."""
    failed = []
    checkpoint = str(study.folder / record['checkpoint'])
    for factor in sizes_left_to_test(study, record):
        _write_phase(run, f'test at {factor:g}x')
        try:
            row = _test_at_size(study, run, factor, checkpoint, launcher)
        except (Exception, NotFinite) as error:
            if factor == 1:
                raise
            traceback.print_exc()
            failed.append(f'no test at {factor:g}x: {in_a_line(error)}')
            continue
        record['tests'] = sorted([*record['tests'], row], key=lambda test: test['factor'])
        _write_record(run, record)
    record['note'] = '; '.join(failed)


def _test_at_size(study: Study, run: Run, factor: float, checkpoint: str, launcher: str
                  ) -> Record:
    """The result of weights at one size, with everything that is measured there."""
    cfg = config_with_details(config_at_size(run_config(study, run, f'test/{factor:g}'), factor))
    cfg.launcher = launcher
    engine.set_up_testing(cfg, checkpoint)
    runner = engine.build_runner(cfg)
    bad: list[str] = []
    with noting_first_not_finite(unwrapped_model(runner.model), bad, _DEPTH):
        metrics = runner.test()
    value, by_class, by_size = value_and_details(cfg, study.metric, metrics)
    bad = [name for names in all_gather_object(bad) for name in names]
    # A classifier whose outputs are NaN would otherwise predict the first class of all.
    if bad or not math.isfinite(value):
        raise NotFinite('predictions are not finite: '
                        + (f'the output of {bad[0]}' if bad else f'{study.metric.name}={value}'))
    return {'factor': factor, 'value': value, 'by_class': by_class, 'by_size': by_size}


def _write_record(run: Run, record: Record) -> None:
    if is_main_process():
        write_json(run.record_file, record)


def _write_phase(run: Run, phase: str) -> None:
    """Write into the progress file which phase begins; what training wrote stays."""
    if is_main_process():
        write_progress(run, {**read_progress(run), 'phase': phase, 'time': time.time()})


def end_when_parent_ends() -> None:
    """End this process when its standard input ends, that is when the command at the other end is
    gone for whatever reason. It saves itself if there is time."""
    def end_at_end_of_stdin() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        if hasattr(os, 'killpg'):
            os.killpg(0, KILL)
    threading.Thread(target=end_at_end_of_stdin, daemon=True).start()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('folder', type=Path)
    parser.add_argument('--launcher', choices=['none', 'pytorch'], default='none')
    parser.add_argument('--tied', action='store_true', help='end when the standard input ends')
    args = parser.parse_args(argv)
    if args.tied:
        end_when_parent_ends()
    lock = None
    if int(os.environ.get('RANK', 0)) == 0:
        try:
            lock = WorkDirLock(args.folder)
        except ValueError as error:
            print(error, file=sys.stderr)
            return TAKEN
    study = read_study(args.folder.parents[2])
    run = next(each for each in study.runs() if each.folder.resolve() == args.folder.resolve())
    record = carry_out(study, run, args.launcher)
    if lock is not None:
        lock.release()
    return 0 if record['status'] == 'finished' else NOT_FINISHED


if __name__ == '__main__':
    sys.exit(main())
