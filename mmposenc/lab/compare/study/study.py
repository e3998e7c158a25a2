"""What a comparison was asked for, and where its files are on the disk."""
from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmposenc.engine.config.nodes import flat_config
from mmposenc.engine.training.lock import WorkDirLock
from mmposenc.engine.variants.encodings import Entry

from .config import StudyConfig, parse_study_config
from .files import read_json_if_any, with_none_for_not_finite, write_json, write_text

SCHEMA = 1
#: The file with the base config of a study and its options.
CONFIG = 'config.py'
#: What a comparison replaces, or adds to, in its folder besides config.py and study.json. The logs
#: of a cluster are not among it: their folder is created before the study, and each job has files
#: of its own.
_RESULTS = ('report.html', 'results.csv', 'best.py', 'costs.json', 'runs')


@dataclass(frozen=True)
class Study:
    """A comparison: one config, and what is varied in it.

    Attributes:
        folder: where all of it lies.
        base: the config with its options in it, which every run begins with.
        config: the name of the base config, as it was given.
        command: the calls that asked for something, a line each.
        created: when, in ISO form.
        entries: the encodings.
        seeds: each encoding is trained with each.
        sizes: factors of the trained size that are tested; 1 is one of them.
        margin: points; encodings closer than that are level.
    """

    folder: Path
    base: StudyConfig = field(compare=False)
    config: str
    command: str
    created: str
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...]
    sizes: tuple[float, ...]
    margin: float = 1.0

    def runs(self) -> list[Run]:
        """All trainings. Those of the first seed come first, so that all encodings are seen early.
        """
        return [Run(self.folder / 'runs' / entry.slug / f'seed{seed}', entry, seed)
                for seed in self.seeds for entry in self.entries]

    def is_written(self) -> bool:
        """Whether its folder holds a study, this one or an older one."""
        return (self.folder / 'study.json').is_file()

    @property
    def costs_file(self) -> Path:
        """The file with what each model costs at each size, by the names of encodings."""
        return self.folder / 'costs.json'


@dataclass(frozen=True)
class Run:
    """One training: its folder, its encoding and its seed."""

    folder: Path
    entry: Entry
    seed: int

    @property
    def record_file(self) -> Path:
        """The file with all that is known of the run."""
        return self.folder / 'run.json'


def read_study(folder: Path) -> Study:
    """Read the study of a folder.

    Raises:
        FileNotFoundError: there is none.
        ValueError: another version wrote it, or it is no study.
    """
    fields = read_json_if_any(folder / 'study.json')
    if fields is None:
        raise FileNotFoundError(f'{folder} holds no study (study.json)')
    try:
        if fields.pop('schema', None) != SCHEMA:
            raise ValueError(f'it is of another schema than {SCHEMA}')
        entries = tuple(Entry(**each) for each in fields.pop('entries'))
        others: Any = {key: tuple(value) if isinstance(value, list) else value
                       for key, value in fields.items()}
        base = parse_study_config(Config.fromfile(folder / CONFIG))
        return Study(folder=folder, base=base, entries=entries, **others)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f'{folder / "study.json"} is no study of this version: {error}') from error


def write_study(study: Study, *, with_config: bool = False) -> None:
    """Write what was asked for, and the base config if it is not there yet."""
    study.folder.mkdir(parents=True, exist_ok=True)
    if with_config:
        write_text(study.folder / CONFIG, study.base.cfg.pretty_text)
    fields = {each.name: getattr(study, each.name) for each in dataclasses.fields(study)
              if each.name not in ('folder', 'base')}
    fields['entries'] = [asdict(each) for each in study.entries]
    write_json(study.folder / 'study.json', {'schema': SCHEMA, **fields})


def check_replaces_no_files(study: Study) -> None:
    """Raise ValueError if a new study would replace files in a folder that contains no study."""
    config = study.folder / CONFIG
    # A call that was killed may have written the config.
    is_same = config.is_file() and config.read_bytes() == study.base.cfg.pretty_text.encode()
    existing = [name for name in ([] if is_same else [CONFIG]) + [*_RESULTS]
                if os.path.lexists(study.folder / name)]
    if existing:
        raise ValueError(f'--out {study.folder} holds no study (study.json), but '
                         f'{", ".join(existing)}, which a study would write to; give it a folder '
                         'of its own')


def extended_study(old: Study, new: Study) -> Study:
    """Join an older study with what a newer call adds: encodings, seeds and sizes.

    Raises:
        ValueError: names what else differs: runs would not be comparable.
    """
    written = Config.fromstring(new.base.cfg.pretty_text, '.py')
    before, now = flat_config(old.base.cfg.to_dict()), flat_config(written.to_dict())
    if differ := [key for key in {**before, **now} if before.get(key) != now.get(key)]:
        key = differ[0]
        more = f' (and {len(differ) - 1} more)' if len(differ) > 1 else ''
        raise _error_of_difference(old, f'{key} of the config{more}', before.get(key), now.get(key))
    known = {entry.name: entry for entry in old.entries}
    for entry in new.entries:
        if with_none_for_not_finite(
            asdict(known.get(entry.name, entry))) != with_none_for_not_finite(asdict(entry)):
            raise _error_of_difference(old, f'the encoding {entry.name!r}',
                                       known[entry.name].changes, entry.changes)
    both = replace(
        old, entries=old.entries + tuple(e for e in new.entries if e.name not in known),
        seeds=tuple(sorted({*old.seeds, *new.seeds})),
        sizes=tuple(sorted({*old.sizes, *new.sizes})), margin=new.margin)
    if (both.entries, both.seeds, both.sizes) == (old.entries, old.seeds, old.sizes):
        return both
    return replace(both, command=f'{old.command}\n{new.command}')


def _error_of_difference(study: Study, what: str, old: object, new: object) -> ValueError:
    return ValueError(f'--out {study.folder} holds a study of {study.config} in which {what} is '
                      f'another: {old!r} there, {new!r} now. Encodings, seeds and sizes may be '
                      'added; for all else give another --out')


@contextmanager
def planning_lock(folder: Path, wait: float = 0.5) -> Iterator[None]:
    """A context in which only one command plans a study; other commands say that they wait."""
    waiting = False
    while True:
        try:
            lock = WorkDirLock(folder / 'planning')
            break
        except ValueError:
            if not waiting:
                print(f'another command has the study in {folder} in hand; waiting for it',
                      file=sys.stderr, flush=True)
            waiting = True
            time.sleep(wait)
    try:
        yield
    finally:
        lock.release()
