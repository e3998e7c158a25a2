"""What a comparison was asked for, and where its files are on the disk."""
from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from mmengine.config import Config

from mmposenc.config_types import ImageSize
from mmposenc.engine.training.lock import WorkDirLock
from mmposenc.engine.variants.encodings import Entry, entry_of_name
from mmposenc.engine.variants.model_encodings import Changes
from mmposenc.engine.variants.sizes import size_order

from .config import StudyConfig
from .config_text import differing_values
from .records import (
    SCHEMA,
    STUDY,
    Record,
    read_json_if_any,
    read_text,
    with_none_for_not_finite,
    write_json,
    write_text,
)

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
        sizes: the sizes of the test's images; 1, the test's own, is one of them.
        margin: points; encodings closer than that are level.
    """

    folder: Path
    base: StudyConfig = field(compare=False)
    config: str
    command: str
    created: str
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...]
    sizes: tuple[ImageSize, ...]
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


def read_fields(folder: Path) -> Record:
    """Read ``study.json``, which says what was asked of the study in a folder. Nothing of the
    folder runs.

    Raises:
        FileNotFoundError: there is none.
        ValueError: another version wrote it, or it is damaged.
    """
    fields: Record | None = read_json_if_any(
        folder / 'study.json', STUDY, 'finish the study by the version that began it, or give '
        'another --out')
    if fields is None:
        raise FileNotFoundError(f'{folder} holds no study (study.json)')
    return fields


def read_study(folder: Path) -> Study:
    """Read the study of a folder, whose config runs: for studies that :func:`write_study` wrote.

    Raises:
        FileNotFoundError, ValueError: as :func:`read_fields`.
    """
    fields = read_fields(folder)
    return Study(folder, StudyConfig(Config.fromfile(folder / CONFIG)), fields['config'],
                 fields['command'], fields['created'],
                 tuple(
                     Entry(each['name'], each['label'], Changes.read(each['changes']))
                     for each in fields['entries']), tuple(fields['seeds']),
                 tuple(fields['sizes']), fields['margin'])


def write_study(study: Study, *, with_config: bool = False) -> None:
    """Write what was asked for, and the base config if it is not there yet."""
    if with_config:
        write_text(study.folder / CONFIG, study.base.cfg.pretty_text)
    fields = {each.name: getattr(study, each.name) for each in dataclasses.fields(study)
              if each.name not in ('folder', 'base')}
    fields['entries'] = [each.fields() for each in study.entries]
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


def extended_study(new: Study) -> Study:
    """Join a call with the study in its folder, to which it may add encodings, seeds and sizes.

    The folder may come from somebody else. Nothing of it runs: its texts are compared with those of
    the call, which says what each encoding is.

    Raises:
        ValueError: names what else differs: runs would not be comparable.
    """
    old, asked = read_fields(new.folder), {entry.name: entry for entry in new.entries}
    try:
        differ = differing_values(read_text(new.folder / CONFIG), new.base.cfg.pretty_text)
    except ValueError as error:
        raise ValueError(f'{new.folder / CONFIG} is damaged ({error}); put a copy of it back, or '
                         'give another --out') from error
    for key, values in differ.items():
        more = f' (and {len(differ) - 1} more)' if len(differ) > 1 else ''
        raise _error_of_difference(new, f'{key} of the config{more}', *values)
    entries: dict[str, Entry] = {}
    for each in old['entries']:
        entry = entries[each['name']] = asked.get(each['name']) or entry_of_name(each['name'])
        if with_none_for_not_finite(entry.fields()) != each:
            raise _error_of_difference(new, f'the encoding {entry.name!r}', each, entry.fields())
    both = replace(
        new, entries=tuple({**entries, **asked}.values()), created=old['created'],
        seeds=tuple(sorted({*old['seeds'], *new.seeds})), command=old['command'],
        sizes=tuple(sorted({*old['sizes'], *new.sizes}, key=size_order)))
    if any(len(getattr(both, name)) > len(old[name]) for name in ('entries', 'seeds', 'sizes')):
        return replace(both, command=f'{old["command"]}\n{new.command}')
    return both


def _error_of_difference(study: Study, what: str, old: object, new: object) -> ValueError:
    return ValueError(f'--out {study.folder} holds a study in which {what} is another: {old} '
                      f'there, {new} now. Encodings, seeds and sizes may be added; for all else '
                      'give another --out')


@contextmanager
def planning_lock(folder: Path) -> Iterator[None]:
    """A context in which only one command plans a study; other commands say that they wait."""
    try:
        lock = WorkDirLock(folder / 'planning')
    except ValueError:
        print(f'another command has the study in {folder} in hand; waiting for it',
              file=sys.stderr, flush=True)
        lock = WorkDirLock(folder / 'planning', seconds=-1)
    try:
        yield
    finally:
        lock.release()
