"""Turns the words of the command line into a study that is known to work."""
from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from mmengine.config import Config

from mmposenc.engine.config.checks import check_writable_folder
from mmposenc.engine.training.launch import set_up_training
from mmposenc.engine.variants.applying import check_builds, with_entry, with_entry_checked
from mmposenc.engine.variants.encodings import Entry
from mmposenc.engine.variants.parsed import parse_config
from mmposenc.engine.variants.rows import PREFIX
from mmposenc.engine.variants.sizes import factor_of, image_sizes

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
from .extras import count_costs, first_test_image_size, input_sizes
from .workers import LocalWorkers, SubmittedWorkers, Workers, visible_gpu_ids


def study_folder(args: argparse.Namespace) -> Path:
    """The folder of the study that the arguments name."""
    return args.out or Path('work_dirs') / f'compare_{Path(args.config).stem}'


def workers_from_arguments(args: argparse.Namespace) -> Workers:
    """Who carries out the runs, according to ``--jobs``, ``--gpus-per-run`` and ``--submitit``.

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
        return SubmittedWorkers(study_folder(args) / 'submitit', cluster, options,
                                args.gpus_per_run)
    gpus = visible_gpu_ids()
    return LocalWorkers(args.jobs or max(1, len(gpus) // args.gpus_per_run), gpus,
                        args.gpus_per_run)


def plan_study(args: argparse.Namespace, cfg: Config | None, entries: Sequence[Entry], command: str
               ) -> Study:
    """The study that the arguments ask for, checked and written, or what they add to an older one.

    Args:
        args: of ``mmposenc compare``.
        cfg: the config that they name; None: that of the older study.
        entries: the encodings that they name.
        command: the call, as a line.

    Raises:
        ValueError: what does not fit: an encoding, a size, the data, the older study.
        FileNotFoundError: a file that the config names is not there.
    """
    folder = study_folder(args)
    check_writable_folder(str(folder), '--out')
    # This comes before the lock, which creates the folder.
    if not (folder / 'study.json').is_file():
        if cfg is None:
            raise FileNotFoundError(f'--out {args.out} holds no study yet: give a config')
        if not entries:
            raise ValueError('--encodings: name what is to be compared, such as none learned peg')
        check_replaces_no_files(folder, cfg)
    with nullcontext() if args.dry_run else planning_lock(folder):
        old = read_study(folder) if (folder / 'study.json').is_file() else None
        if old is not None and cfg is not None:
            check_same_config(old, cfg)
        study = _study_asked_for(args, cfg, entries, command, old)
        study = replace(study, entries=_fitting_entries(study, old, args.encodings))
        if not args.dry_run:
            write_study(study, with_config=old is None)
    return study


def _study_asked_for(args: argparse.Namespace, cfg: Config | None, entries: Sequence[Entry],
                     command: str, old: Study | None) -> Study:
    """The study that the arguments ask for, joined with the study that is there already."""
    if old is not None:
        before = old
    else:
        assert cfg is not None
        length = training_length(cfg)
        # The machine that submits jobs is not the one that trains, so its times would mean nothing.
        extras = ('figures',) if args.submitit else ('figures', 'time')
        before = Study(study_folder(args), parse_config(cfg), args.config, command, '', (),
                       tuple(range(3)), (), length, 4, extras)
    length = before.length
    for unit in ('epochs', 'iterations'):
        if (number := getattr(args, unit)) is not None:
            length = Length(unit, number)
    set_length(copy.deepcopy(before.base.cfg), length)
    factors = [factor_of(before.base, size) for size in args.sizes]
    new = replace(
        before, command=command, created=time.strftime('%Y-%m-%dT%H:%M:%S%z'),
        entries=tuple(entries), length=length, sizes=tuple(sorted({1.0, *factors})),
        seeds=tuple(dict.fromkeys(args.seed_list or range(args.seeds or 0) or before.seeds)),
        pictures=before.pictures if args.pictures is None else args.pictures,
        extras=tuple(name for name in ('figures', 'time') if getattr(args, name) or (
            getattr(args, name) is None and name in before.extras)),
        margin=args.margin or before.margin)
    return new if old is None else extended_study(old, new)


def _fitting_entries(study: Study, old: Study | None, words: Sequence[str]) -> tuple[Entry, ...]:
    """The entries of a study, without rows of a table that the model can't have; rows that were
    named one by one raise an error. Data and metric are checked here too, before any work.
    """
    cfg = study.base.cfg
    metric_of_config(cfg)
    training = copy.deepcopy(cfg)
    training.work_dir = str(study.folder)
    set_up_training(training, tests=True)
    former = [] if old is None else [each.name for each in old.entries]
    known = former if old is not None and old.sizes == study.sizes else []
    new = [each for each in study.entries if each.name not in known]
    fitting = _checked_configs(study, new, [*words, *former])
    if old is None:
        check_builds(next(iter(fitting.values())))
    return tuple(each for each in study.entries if each.name in known or each.name in fitting)


def _checked_configs(study: Study, entries: Sequence[Entry], words: Sequence[str]
                     ) -> dict[str, Config]:
    """Check all entries before saying which do not fit: for each reason the entries that have it.
    """
    base = study.base
    size = first_test_image_size(base) if entries and base.tested_size is None else None
    sizes = image_sizes(base, study.sizes, size)
    fitting: dict[str, Config] = {}
    refused: dict[str, ValueError] = {}
    for entry in entries:
        try:
            fitting[entry.name] = with_entry_checked(base, entry, sizes)
        except ValueError as error:
            refused[entry.name] = error
    asked = [name for name in refused if name in words or not name.startswith(PREFIX)
             or not fitting]
    if len(refused) == len(asked) == 1:
        raise refused[asked[0]]
    reasons: dict[str, list[str]] = {}
    for name, reason in refused.items():
        reasons.setdefault(str(reason).removeprefix(f'encoding {name!r} '), []).append(name)
    for text, names in reasons.items():  # There are more lines than an error message shows.
        print(f'{", ".join(names)}{"" if asked else " left out"}: {text}', file=sys.stderr)
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
    sizes = input_sizes(study)
    for entry in study.entries:
        counted = count_costs(with_entry(study.base, entry), sizes)
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
