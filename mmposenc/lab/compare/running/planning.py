"""Turns the words of the command line into a study that is known to work."""
from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from mmengine.config import Config
from mmengine.registry import init_default_scope

from mmposenc.engine.config.checks import check_writable_folder
from mmposenc.engine.config.nodes import build_data_set
from mmposenc.engine.training.launch import set_train_options
from mmposenc.engine.variants.applying import check_builds, with_entry_checked
from mmposenc.engine.variants.encodings import Entry, read_entries
from mmposenc.engine.variants.parsed import parse_config
from mmposenc.engine.variants.rows import PREFIX
from mmposenc.engine.variants.sizes import image_sizes
from mmposenc.terminal.messages import in_a_line

from ..statistics.differences import LEAST_RUNS, smallest_visible_difference
from ..study.lengths import Length, set_length, training_length
from ..study.metrics import metric_of_config
from ..study.study import (
    Study,
    check_replaces_no_files,
    check_same_config,
    extended_study,
    planning_lock,
    read_study,
    write_study,
)
from .costs import first_test_image_size, input_size, measure_costs
from .workers import LocalWorkers, SubmittedWorkers, Workers, visible_gpu_ids


def study_folder(args: argparse.Namespace) -> Path:
    """The folder of the study that the arguments name."""
    return args.out or Path('work_dirs') / f'compare_{Path(args.config).stem}'


def workers_from_arguments(args: argparse.Namespace) -> Workers:
    """Who carries out the runs, according to ``--jobs`` and ``--submitit``.

    Raises:
        ValueError: there are not enough GPUs, or submitit is missing or refuses an option.
    """
    if args.submitit:
        cluster, *words = args.submitit
        options: dict[str, object] = {}
        for word in words:
            key, equals, value = word.partition('=')
            if not equals:
                raise ValueError(f'--submitit: {word!r} is not KEY=VALUE')
            options[key] = int(value) if value.isdecimal() else value
        return SubmittedWorkers(study_folder(args) / 'submitit', cluster, options)
    gpus = visible_gpu_ids()
    return LocalWorkers(args.jobs or max(1, len(gpus)), gpus)


def plan_study(args: argparse.Namespace, cfg: Config | None, command: str) -> Study:
    """The study that the arguments ask for, checked and written, or what they add to an older one.

    Args:
        args: of ``mmposenc compare``.
        cfg: the config that they name; None: that of the older study.
        command: the call, as a line.

    Raises:
        ValueError: what does not fit: an encoding, a size, the data, the older study.
        FileNotFoundError: a file that the config names is not there.
    """
    folder = study_folder(args)
    check_writable_folder(str(folder), '--out')
    entries = tuple(read_entries(args.encodings)) if args.encodings else ()
    # This comes before the lock, which creates the folder.
    if not (folder / 'study.json').is_file():
        if cfg is None:
            raise FileNotFoundError(f'--out {folder} holds no study yet: give a config')
        if not entries:
            raise ValueError('--encodings: name what is to be compared, such as none learned peg')
        check_replaces_no_files(folder, cfg)
    with nullcontext() if args.dry_run else planning_lock(folder):
        old = read_study(folder) if (folder / 'study.json').is_file() else None
        if old is None:
            assert cfg is not None
            length = training_length(cfg)
            # The machine that submits jobs is not the one that trains: its times mean nothing.
            before = Study(folder, parse_config(cfg), args.config, command, '', (), (0, 1, 2), (),
                           length, timed=not args.submitit)
        else:
            before = old
            if cfg is not None:
                check_same_config(old, cfg)
        asked = _with_arguments(before, args, entries, command)
        study = asked if old is None else extended_study(old, asked)
        study = replace(study, entries=_fitting_entries(study, old, args.encodings))
        if not args.dry_run:
            write_study(study, with_config=old is None)
    return study


def _with_arguments(before: Study, args: argparse.Namespace, entries: tuple[Entry, ...],
                    command: str) -> Study:
    """A study with what the arguments say in place of what it has."""
    length = before.length
    for unit in ('epochs', 'iterations'):
        if (number := getattr(args, unit)) is not None:
            length = Length(unit, number)
    set_length(copy.deepcopy(before.base.cfg), length)  # Raises an error for the other unit.
    seeds = args.seed_list or range(args.seeds or 0) or before.seeds
    return replace(before, command=command, created=time.strftime('%Y-%m-%dT%H:%M:%S%z'),
                   entries=entries, length=length, sizes=tuple(sorted({1.0, *args.sizes})),
                   seeds=tuple(dict.fromkeys(seeds)), margin=args.margin or before.margin,
                   timed=before.timed if args.time is None else args.time)


def _fitting_entries(study: Study, old: Study | None, words: Sequence[str]) -> tuple[Entry, ...]:
    """The entries of a study, without rows of a table that the model can't have; rows that were
    named one by one raise an error. Data and metric are checked here too, before any work.
    """
    cfg = study.base.cfg
    metric_of_config(cfg)
    training = copy.deepcopy(cfg)
    training.work_dir = str(study.folder)
    set_train_options(training, tests=True)
    former = [] if old is None else [each.name for each in old.entries]
    fitting = _checked_configs(study, [*words, *former])
    if old is None:
        check_builds(next(iter(fitting.values())))
        _check_data_sets(training)
    return tuple(each for each in study.entries if each.name in fitting)


def _check_data_sets(cfg: Config) -> None:
    """Build the data sets of a config, of which each run would otherwise fail for the same reason.

    Raises:
        ValueError: names the phase, and what is wrong.
    """
    init_default_scope(cfg.default_scope)
    for phase in ('train', 'val', 'test'):
        loader = cfg.get(f'{phase}_dataloader')
        try:
            if loader:
                with warnings.catch_warnings():  # The log of each run has them.
                    warnings.simplefilter('ignore')
                    build_data_set(copy.deepcopy(loader.dataset))
        except Exception as error:  # Data sets of the user's may raise anything.
            raise ValueError(f'{phase}_dataloader.dataset cannot be built: {in_a_line(error)}'
                             ) from error


def _checked_configs(study: Study, words: Sequence[str]) -> dict[str, Config]:
    """Check all entries before saying which do not fit; rows of tables that do not are left out."""
    base, entries = study.base, study.entries
    size = first_test_image_size(base) if base.tested_size is None else None
    sizes = image_sizes(base, study.sizes, size)
    fitting: dict[str, Config] = {}
    refused: dict[str, ValueError] = {}
    for entry in entries:
        try:
            fitting[entry.name] = with_entry_checked(base, entry, sizes)
        except ValueError as reason:
            refused[entry.name] = reason
    asked = [name for name in refused if name in words or not name.startswith(PREFIX)
             or not fitting]
    if len(refused) == len(asked) == 1:
        raise refused[asked[0]]
    for name, error in refused.items():  # There are more lines than an error message shows.
        text = str(error).removeprefix(f'encoding {name!r} ')
        print(f'{name}{"" if asked else " left out"}: {text}', file=sys.stderr)
    if asked:
        raise ValueError(f'--encodings: {len(refused)} of {len(entries)} do not fit '
                         f'{base.insertion.type}, for the reasons above; '
                         f'{" ".join(fitting) or "none of them"} would do')
    return fitting


def runs_in_a_sentence(study: Study) -> str:
    """The number of runs of a study, in a sentence."""
    return (f'{len(study.runs())} runs of {study.length} each: '
            f'seeds {", ".join(map(str, study.seeds))}; sizes '
            f'{", ".join(f"{factor:g}" for factor in study.sizes)}')


def dry_run_text(study: Study) -> str:
    """The text that ``--dry-run`` prints: the runs, and what each of them changes."""
    lines = [runs_in_a_sentence(study), '']
    head = ''.join(f'{f"MACs (M) {factor:g}x":>16}' for factor in study.sizes)
    lines.append(f'{"encoding":<28}{"parameters":>14}{head}')
    sizes = {factor: input_size(study.base, factor) for factor in study.sizes}
    for entry in study.entries:
        counted = [measure_costs(study.base, entry, factor, size, timed=False)
                   for factor, size in sizes.items()]
        macs = ''.join(f'{each["macs"] / 1e6:>16,.1f}' if each['macs'] else f'{"-":>16}'
                       for each in counted)
        lines.append(f'{entry.name:<28}{counted[0]["parameters"] or 0:>14,}{macs}')
    return '\n'.join([*lines, '', detectable_difference_text(study)])


def detectable_difference_text(study: Study) -> str:
    """Say in words what difference a plan can tell at least."""
    count, others = len(study.seeds), len(study.entries) - 1
    if count < LEAST_RUNS or not others:
        return f'no difference can be told: that takes two encodings of {LEAST_RUNS} seeds'
    gap = smallest_visible_difference(count, others, tails=1)
    return (f'with {count} seeds of {others + 1} encodings one that is {gap:.1f} standard '
            'deviations of a run behind\nthe best is told in four of five studies (these were 0.3 '
            'to 8 points in docs/evidence.md)')
