"""Tables of papers (configs/papers/*.yaml) and models that have no file of their own
(configs/models.yaml): a config of this project with some keys changed.

tools/model_table.py checks these files.
"""
from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ..terminal.messages import suggestion_text

Number = int | float | str | None


@dataclass(frozen=True)
class Row:
    """A row of a table: the paper's name of it, the name of its model, or why there is none, and
    the numbers by the table's columns."""

    name: str
    model: str | None
    not_here: str | None
    numbers: dict[str, Number]

    @property
    def counted_costs(self) -> dict[str, int]:
        """Parameters (``params``) and multiply-accumulates (``macs``, ``macs_with_means``) of its
        model, where they were counted."""
        counted: dict[str, int] = models_by_name().get(self.model or '', {}).get('counted', {})
        return counted


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper. Its ``id`` is like ``cpvt/table6``, and ``decisions`` say, by the names
    of rows, how we read the paper."""

    id: str
    title: str
    source: str
    url: str
    columns: list[str]
    rows: list[Row]
    notes: str = ''
    decisions: dict[str, str] = field(default_factory=dict)

    @property
    def here_text(self) -> str:
        """How many of its rows are models of this project: '5 of 7'."""
        return f'{sum(row.model is not None for row in self.rows)} of {len(self.rows)}'


def config_roots(package: Path) -> list[Path]:
    """The folders that may hold a package's configs: that of an installed wheel, then that of a
    checkout."""
    return [root for root in (package / '.mim' / 'configs', package.parent / 'configs')
            if root.is_dir()]


def config_folder() -> Path:
    """The folder that holds the configs of this project."""
    return config_roots(Path(__file__).resolve().parents[1])[0]


@cache
def tables_by_id() -> dict[str, PaperTable]:
    """Every table, by its id."""
    by_id = {}
    for path in sorted(config_folder().glob('papers/*.yaml')):
        paper = yaml.safe_load(path.read_text())
        for name, each in paper['tables'].items():
            rows = [_row(each['columns'], *row) for row in each['rows']]
            by_id[f'{path.stem}/{name}'] = PaperTable(
                f'{path.stem}/{name}', each['title'], paper['venue'],
                each.get('url') or paper.get('url', ''), each['columns'], rows,
                each.get('notes', ''), each.get('decisions', {}))
    return by_id


def _row(columns: list[str], name: object, model: str | dict[str, str], *numbers: Number) -> Row:
    by_column = dict(zip(columns, numbers, strict=True))
    if isinstance(model, str):
        return Row(str(name), model, None, by_column)
    return Row(str(name), None, model['not here'], by_column)


def table(name: str) -> PaperTable:
    """One table.

    Raises:
        ValueError: there is none of this id, with what comes close.
    """
    if name not in tables_by_id():
        raise ValueError(f'no table {name!r}{suggestion_text(name, tables_by_id())}; '
                         'mmposenc papers lists them')
    return tables_by_id()[name]


def row(name: str) -> Row:
    """A row by ``cpvt/table6/3``, counted from 1.

    Raises:
        ValueError: there is no such row, or it is of a model that is not here.
    """
    table_id, _, number = name.rpartition('/')
    rows = table(table_id).rows
    if not number.isdigit() or not 0 < int(number) <= len(rows):
        raise ValueError(f'row {number!r} of {table_id} must be a number from 1 to {len(rows)}')
    chosen = rows[int(number) - 1]
    if chosen.model is None:
        raise ValueError(f'row {number} of {table_id}, {chosen.name!r}, is not here: '
                         f'{chosen.not_here}')
    return chosen


@cache
def models_by_name() -> dict[str, dict[str, Any]]:
    """All models by name, from configs/models.yaml: the ``folder`` of each, ``base`` and
    ``changes`` of those without a file of their own, and ``counted`` where parameters and
    multiply-accumulates were counted."""
    by_name = {}
    for folder, entries in yaml.safe_load((config_folder() / 'models.yaml').read_text()).items():
        for name, entry in entries.items():
            by_name[name] = {'folder': folder, **entry}
    return by_name


def names_without_file() -> list[str]:
    """Names of the models that have no file of their own, in the form that files have."""
    return [f'{entry["folder"]}/{name}.py'
            for name, entry in models_by_name().items() if 'base' in entry]


def config_of_model(name: str) -> Path:
    """The path of the config of a table's model: its file, or one that is written for this process.

    Raises:
        ValueError: there is none.
    """
    entry = models_by_name().get(name, {})
    if 'base' in entry:
        return _write_temporary_config(name)
    path = next(iter(config_folder().glob(f'*/*/{name}.py')), None)
    if path is None:
        raise ValueError(f'no model {name!r} in configs/models.yaml, nor a config of that name')
    return path


def changed_config_or_none(path: str) -> Path | None:
    """The config of a path in configs/ where there is no file: an entry of configs/models.yaml."""
    file = Path(path)
    entry = models_by_name().get(file.stem, {})
    if 'base' not in entry or not path.endswith(f'{entry["folder"]}/{file.name}'):
        return None
    return config_of_model(file.stem)


@cache
def _write_temporary_config(name: str) -> Path:
    """Write the config of a model of configs/models.yaml: its base with the changes."""
    from mmengine.config import Config
    entry = models_by_name()[name]
    cfg = Config.fromfile(str(config_folder() / f'{entry["base"]}.py')).to_dict()
    for key, value in entry.get('changes', {}).items():
        *parents, last = key.split('.')
        node = cfg
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
        node[last] = value
    folder_of_process = Path(tempfile.mkdtemp(prefix='mmposenc-'))
    atexit.register(shutil.rmtree, folder_of_process, ignore_errors=True)
    path = folder_of_process / f'{name}.py'
    path.write_text(''.join(f'{key} = {value!r}\n' for key, value in cfg.items()))
    return path
