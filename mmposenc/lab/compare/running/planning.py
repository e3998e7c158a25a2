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

from mmengine.config import Config

from mmposenc.config_types import ImageSize
from mmposenc.engine.config.checked_classes import build_data_set
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.training.launch import set_train_options
from mmposenc.engine.variants.applying import check_builds, with_entry_checked
from mmposenc.engine.variants.encodings import Entry, read_entries
from mmposenc.engine.variants.model_encodings import PREFIX
from mmposenc.engine.variants.sizes import config_at_size, image_sizes, size_order, size_word
from mmposenc.terminal.messages import in_a_line
from mmposenc.writing import check_new_files

from ..study.config import StudyConfig
from ..study.study import (
    Study,
    check_replaces_no_files,
    extended_study,
    planning_lock,
    write_study,
)
from .costs import first_test_image_size, input_size, measure_costs
from .recording import class_hashes, read_record


def plan_study(args: argparse.Namespace, cfg: Config, command: str) -> Study:
    """The study that the arguments ask for, checked and written, with what an older one in its
    folder has.

    Args:
        args: the arguments of ``mmposenc compare``.
        cfg: the config that they name.
        command: the call, as a line.

    Raises:
        ValueError: what does not fit: an encoding, a size, the data, the older study.
        FileNotFoundError: a file that the config names is not there.
    """
    check_new_files(args.out, (), '--out')
    base, entries = StudyConfig(cfg), tuple(read_entries(args.encodings))
    sizes = tuple(sorted({1.0, *(at for at in args.sizes if config_at_size(
        cfg, at).to_dict() != cfg.to_dict())}, key=size_order))
    new = Study(args.out, base, args.config, command, time.strftime('%Y-%m-%dT%H:%M:%S%z'), entries,
                tuple(range(args.seeds)), sizes, args.margin)
    if not new.is_written():  # This comes before the lock, which creates the folder.
        check_replaces_no_files(new)
    with nullcontext() if args.dry_run else planning_lock(args.out):
        written = new.is_written()
        study = extended_study(new) if written else new
        # Whatever a training and a test check before their first step is checked now.
        training = copy.deepcopy(base.cfg)
        training.work_dir = str(args.out)
        set_train_options(training, tests=True)
        former = {each.name for each in study.entries} - {each.name for each in entries}
        fitting = fitting_configs(base, study.entries, study.sizes, [*args.encodings, *former])
        if not written:
            check_builds(next(iter(fitting.values())))
            _check_data_sets(base)
        study = replace(study, entries=tuple(each for each in study.entries
                                             if each.name in fitting))
        warn_of_changed_classes(study, fitting)
        if not args.dry_run:
            write_study(study, with_config=not written)
    return study


def warn_of_changed_classes(study: Study, configs: dict[str, Config]) -> None:
    """Print which classes of the user's were changed after a run with them was over or trained: the
    results of before stay. ``configs`` are those of the entries, by their names."""
    hashes = {entry: class_hashes(cfg) for entry, cfg in configs.items()}
    for run in study.runs():
        record = read_record(run)
        changed = [name for name, now in hashes[run.entry.name].items()
                   if record['class_hashes'].get(name, now) != now]
        if changed and (record['checkpoint'] is not None or record['status'] == 'diverged'):
            print(f'{" ".join(changed)} was changed after {run.folder} was trained with it, which '
                  'is not trained again; for that, give the changed class another name, or another '
                  '--out', file=sys.stderr)


def _check_data_sets(base: StudyConfig) -> None:
    """Build all data sets, of which each run would otherwise fail for the same reason.

    Raises:
        ValueError: names the phase, and what is wrong.
    """
    for phase in ('train', 'val', 'test'):
        try:
            if base.cfg.get(f'{phase}_dataloader'):
                with warnings.catch_warnings():  # The log of each run has them.
                    warnings.simplefilter('ignore')
                    build_data_set(copy.deepcopy(base.cfg), phase)
        except Exception as error:  # Data sets of the user's may raise anything.
            raise ValueError(f'{phase}_dataloader.dataset cannot be built: {in_a_line(error)}'
                             ) from error


def fitting_configs(base: StudyConfig, entries: Sequence[Entry], sizes: Sequence[ImageSize],
                    words: Sequence[str]) -> dict[str, Config]:
    """The configs with the entries that fit, by their names. All are checked before an error says
    which do not; rows of tables that do not are left out.

    Args:
        base: the config without them.
        entries: encodings.
        sizes: the sizes of the test's images.
        words: names of those that must fit.

    Raises:
        ValueError: names what does not fit.
    """
    size = first_test_image_size(base) if base.tested_size is None else None
    shapes = image_sizes(base, sizes, size)
    fitting: dict[str, Config] = {}
    refused: dict[str, ValueError] = {}
    for entry in entries:
        try:
            cfg = with_entry_checked(base, entry, shapes)
            if ParsedConfig(cfg).length != base.length:
                raise ValueError(f'encoding {entry.name!r} sets the length of its training, but '
                                 'all runs are as long as the config says; leave train_cfg out')
            fitting[entry.name] = cfg
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
    number, unit = study.base.length
    return (f'{len(study.runs())} runs of {number} {unit[:-1] if number == 1 else unit} each: '
            f'seeds {", ".join(map(str, study.seeds))}; sizes '
            f'{", ".join(map(size_word, study.sizes))}')


def dry_run_text(study: Study) -> str:
    """The text that ``--dry-run`` prints: the runs, and what each of them changes."""
    lines = [runs_in_a_sentence(study), '']
    head = ''.join(f'{"MACs (M) " + size_word(at, "x"):>18}' for at in study.sizes)
    lines.append(f'{"encoding":<28}{"parameters":>14}{head}')
    sizes = {at: input_size(study.base, at) for at in study.sizes}
    for entry in study.entries:
        counted = [measure_costs(study.base, entry, at, size, timed=False)
                   for at, size in sizes.items()]
        macs = ''.join(f'{each["macs"] / 1e6:>18,.1f}' if each['macs'] else f'{"-":>18}'
                       for each in counted)
        lines.append(f'{entry.name:<28}{counted[0]["parameters"] or 0:>14,}{macs}')
    return '\n'.join(lines)
