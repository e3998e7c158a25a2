"""From the words of the command line to a study that is known to work."""
from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmposenc.engine.config.checks import check_files, check_folder, check_sections
from mmposenc.engine.config.nodes import tested_size
from mmposenc.engine.config.options import read_config
from mmposenc.engine.training.launch import prepare_training
from mmposenc.engine.variants.applying import apply, check_builds, check_fits
from mmposenc.engine.variants.encodings import Entry, read_entries
from mmposenc.engine.variants.insertion import find_insertion
from mmposenc.engine.variants.rows import PREFIX
from mmposenc.engine.variants.sizes import check_sizes
from mmposenc.terminal.streams import doing

from ..statistics.differences import LEAST_RUNS, visible
from ..study.lengths import Length, length_of, set_length
from ..study.metrics import metric_of
from ..study.study import (
    Study,
    check_no_others,
    check_same_config,
    joined,
    planning_lock,
    read_study,
    write_study,
)
from .extras import costs, first_size
from .workers import LocalWorkers, SubmittedWorkers, Workers, visible_gpus


def folder_of(args: argparse.Namespace) -> Path:
    """The folder of the study that these arguments name."""
    return args.out or Path('work_dirs') / f'compare_{_stem(args.config)}'


def _stem(config: str) -> str:
    """Of a file's name; a model of timm has dots of its own."""
    return config.replace(':', '_') if config.startswith('timm:') else Path(config).stem


def workers_of(args: argparse.Namespace) -> Workers:
    """Who carries the runs out, from ``--jobs``, ``--gpus-per-run`` and ``--submitit``.

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
        return SubmittedWorkers(folder_of(args) / 'submitit', cluster, options, args.gpus_per_run)
    gpus = visible_gpus()
    return LocalWorkers(args.jobs or max(1, len(gpus) // args.gpus_per_run), gpus,
                        args.gpus_per_run)


def plan(args: argparse.Namespace, command: str) -> tuple[Study, Config]:
    """The study that the arguments ask for, checked and written, or what they add to an older one.

    Args:
        args: of ``mmposenc compare``.
        command: the call, as a line.

    Returns:
        The study and its base config.

    Raises:
        ValueError: what does not fit: an encoding, a size, the data, the older study.
        FileNotFoundError: a file that the config names is not there.
    """
    folder = folder_of(args)
    check_folder(str(folder), '--out')
    given = None if args.config is None else read_config(args)
    entries = read_entries(args.encodings) if args.encodings else []
    if not (folder / 'study.json').is_file():  # before the lock, which makes the folder
        if given is None:
            raise FileNotFoundError(f'--out {args.out} holds no study yet: give a config')
        if not entries:
            raise ValueError('--encodings: name what is to be compared, such as none learned peg')
        check_no_others(folder, given)
    with nullcontext() if args.dry_run else planning_lock(folder):
        old = read_study(folder) if (folder / 'study.json').is_file() else None
        cfg: Any = given if given is not None or old is None else old.base
        if old is not None and given is not None:
            check_same_config(old, given)
        study = _asked(args, command, cfg, old, folder, entries)
        study = replace(study, entries=tuple(_check(cfg, study, old, args.encodings)))
        if not args.dry_run:
            write_study(study, cfg if old is None else None)
    return study, cfg


def _asked(args: argparse.Namespace, command: str, cfg: Config, old: Study | None, folder: Path,
           entries: list[Entry]) -> Study:
    """What the arguments ask for, with what is there already."""
    seeds = args.seed_list or (range(args.seeds) if args.seeds else
                               old.seeds if old is not None else range(3))
    length_in_config = length_of(cfg)
    length = old.length if old is not None else length_in_config
    for unit in ('epochs', 'iterations'):
        if (number := getattr(args, unit)) is not None:
            length = Length(unit, number)
    set_length(copy.deepcopy(cfg), length)
    extras = tuple(name for name in ('figures', 'time') if (
        getattr(args, name) if getattr(args, name) is not None else
        name in old.extras if old is not None else
        # The machine that submits jobs is not the one that trains.
        name != 'time' or not args.submitit))
    pictures = (4 if old is None else old.pictures) if args.pictures is None else args.pictures
    margin = args.margin or (1.0 if old is None else old.margin)
    new = Study(
        folder, args.config or (old.config if old else ''), command,
        time.strftime('%Y-%m-%dT%H:%M:%S%z'), tuple(entries), tuple(dict.fromkeys(seeds)),
        tuple(sorted({1.0, *args.sizes})), length, pictures, extras, margin)
    return new if old is None else joined(old, new)


def _check(cfg: Config, study: Study, old: Study | None, words: Sequence[str]) -> list[Entry]:
    """Checks all that is known before any work: data, metric, sizes, encodings. Returns the entries
    without rows of a table that the model can't have; those that a word names are refused."""
    find_insertion(cfg)  # before files: who must fetch them first should know that it is worth it
    metric_of(cfg)
    check_sections(cfg, ('test',))
    check_files(cfg, ('test',))
    training = copy.deepcopy(cfg)
    training.work_dir = str(study.folder)
    prepare_training(training)
    check_sizes(cfg, study.sizes)
    there = [] if old is None else [each.name for each in old.entries]
    known = there if old is not None and old.sizes == study.sizes else []
    left_out = _check_all_fit(cfg, [each for each in study.entries if each.name not in known],
                              study.sizes, [*words, *there])
    entries = [each for each in study.entries if each.name not in left_out]
    if old is None:
        check_builds(apply(cfg, entries[0]))
    return entries


def _check_all_fit(cfg: Config, entries: Sequence[Entry], sizes: Sequence[float],
                   words: Sequence[str]) -> list[str]:
    """Looks at all entries before it says which do not fit: with each reason, those that have it.
    Returns names of rows of a table among them, if there are others."""
    model = find_insertion(cfg).type
    size = first_size(cfg) if entries and tested_size(cfg) is None else None
    refused: dict[str, ValueError] = {}
    for index, entry in enumerate(entries, 1):
        doing(f'checking encoding {index} of {len(entries)}, {entry.name}')
        try:
            check_fits(cfg, entry, sizes, size)
        except ValueError as error:
            refused[entry.name] = error
    asked = [name for name in refused if name in words or not name.startswith(PREFIX)]
    if len(refused) == len(entries):
        asked = list(refused)
    if len(refused) == len(asked) == 1:
        raise refused[asked[0]]
    reasons: dict[str, list[str]] = {}
    for name, reason in refused.items():
        reasons.setdefault(str(reason).removeprefix(f'encoding {name!r} '), []).append(name)
    for text, names in reasons.items():  # more lines than the end of a command has
        print(f'{", ".join(names)}{"" if asked else " left out"}: {text}', file=sys.stderr)
    if not asked:
        return list(refused)
    fitting = [entry.name for entry in entries if entry.name not in refused]
    raise ValueError(f'--encodings: {len(refused)} of {len(entries)} do not fit {model}, for the '
                     f'reasons above; {" ".join(fitting) or "none of them"} would do')


def headline(study: Study) -> str:
    """The runs of a study in a sentence."""
    return (f'{len(study.runs())} runs of {study.length} each: '
            f'seeds {", ".join(map(str, study.seeds))}; sizes '
            f'{", ".join(f"{factor:g}" for factor in study.sizes)}')


def listing(study: Study, cfg: Config) -> str:
    """The text that ``--dry-run`` prints: the runs, and what each changes."""
    lines = [headline(study), '']
    head = ''.join(f'{f"MACs (M) {factor:g}x":>16}' for factor in study.sizes)
    lines.append(f'{"encoding":<28}{"parameters":>14}{head}')
    for entry in study.entries:
        counted = costs(cfg, entry, study.sizes)
        macs = ''.join(f'{each["macs"] / 1e6:>16,.1f}' if each['macs'] else f'{"-":>16}'
                       for each in counted)
        lines.append(f'{entry.name:<28}{counted[0]["parameters"] or 0:>14,}{macs}')
    return '\n'.join([*lines, '', seen(study)])


def seen(study: Study) -> str:
    """The smallest difference that a plan can tell, in words."""
    count, others = len(study.seeds), len(study.entries) - 1
    if count < LEAST_RUNS or not others:
        return f'no difference can be told: that takes two encodings of {LEAST_RUNS} seeds'
    gap = visible(count, others, tails=1)
    return (f'with {count} seeds of {others + 1} encodings one that is {gap:.1f} standard '
            'deviations of a run behind\nthe best is told in four of five studies (these were 0.3 '
            'to 8 points in docs/evidence.md)')
