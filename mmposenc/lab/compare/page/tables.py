"""Builds the tables of a study's page."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from mmposenc.config_types import ImageSize

from ..statistics import formats
from ..statistics.differences import TRAINED
from ..statistics.results import Results, Row


class Cell(NamedTuple):
    """A cell: its text, and how it is marked: 'better', 'best', ..."""
    text: str
    mark: str = ''


class Table(NamedTuple):
    """A table: its caption, the names of its columns, and rows whose first cell is a name. Other
    columns hold numbers, except those in ``words``."""
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    words: tuple[int, ...] = ()


#: For each kind of cost, the name of its column, and how a number is written.
COSTS: dict[str, tuple[str, Callable[[float], str]]] = {
    'parameters': ('Parameters', '{:,.0f}'.format), 'macs': ('MACs', formats.count_text),
    'seconds': ('Seconds an image', formats.seconds_text),
    'mebibytes': ('Inference, MiB', '{:.4g}'.format),
    'train_seconds': ('Training, CPU', formats.seconds_text),
    'train_mebibytes': ('Training, MiB', '{:.4g}'.format)}


def costs_by_kind(results: Results) -> dict[str, dict[str, float | None]]:
    """For each kind of cost and each encoding, its number at the trained size (of trainings the
    mean over finished runs), or None if it is not known."""
    by_encoding = {}
    for each in results.encodings:
        finished = [run for run in results.runs if run['encoding'] == each['name']
                    and run['status'] == 'finished']
        costs = {kind: formats.cost_at_size(each, TRAINED, kind)
                 for kind in ('macs', 'seconds', 'peak_bytes')}
        for kind, key in (('train_seconds', 'train_cpu_seconds'), ('train_bytes', 'peak_bytes')):
            known = [run[key] for run in finished if run[key] is not None]
            costs[kind] = fmean(known) if known else None
        by_encoding[each['name']] = {
            **costs, 'parameters': each['parameters'],
            'mebibytes': costs['peak_bytes'] and costs['peak_bytes'] / 2 ** 20,
            'train_mebibytes': costs['train_bytes'] and costs['train_bytes'] / 2 ** 20}
    return {kind: {name: costs[kind] for name, costs in by_encoding.items()} for kind in COSTS}


def overview_table(results: Results) -> Table:
    """The table of all encodings, with mean and interval at every size and the costs that are
    known; the best mean at the trained size comes first."""
    metric, costs = results.metric, costs_by_kind(results)
    sizes = {at: results.summary_at(at) for at in results.tested_sizes}
    label = results.label
    kinds = [kind for kind in COSTS if {*costs[kind].values()} != {None}]
    rows = []
    for name, row in sizes[TRAINED].items():
        means = [Cell(formats.interval_text(at[name], metric), best_mark(at[name]))
                 for at in sizes.values()]
        known = [None if (value := costs[kind][name]) is None else COSTS[kind][1](value)
                 for kind in kinds]
        rows.append((Cell(label[name]), *means, Cell(str(row['n'])),
                     *(Cell(text or formats.UNKNOWN) for text in known)))
    heads = [formats.size_head(at) + (" (the test's)" if at == TRAINED else '') for at in sizes]
    caption = (f'{formats.metric_text(metric)} by image size: mean over seeds (its 95% interval); '
               'bold: can still be best')
    return Table(caption,
                 ('Encoding', *heads, 'Seeds', *(COSTS[kind][0] for kind in kinds)), rows)


def print_overview(results: Results) -> None:
    """Print the table of all encodings without the costs, for which a terminal has no room."""
    from rich import console, table
    overview, number = overview_table(results), 2 + len(results.sizes)
    shown = table.Table(title=overview.caption.replace(
        'bold: can still be best', '*: no other is shown to be better'), title_justify='left')
    for name in overview.columns[:number]:
        shown.add_column(name, overflow='fold')
    for row in overview.rows:
        shown.add_row(*(f'{cell.text} *' if cell.mark == 'best' else cell.text
                        for cell in row[:number]))
    # Otherwise rich would take ``[stage 1]`` and ``:x:`` in a label for commands.
    console.Console(markup=False, emoji=False, highlight=False).print(shown)


def differences_table(results: Results, at: ImageSize) -> Table:
    """The table that compares every encoding at one size with the best one and with the base; the
    best mean comes first."""
    metric, base = results.metric, results.base
    label = results.label
    rows = {(row['encoding'], row['role']): row for row in results.differences
            if row['factor'] == at}
    lines = []
    means = results.summary_at(at)
    for name, mean in means.items():
        cells = []
        for role, itself in (('base', 'the base'), ('best', 'the best mean')):
            if role == 'best':
                cells.append(Cell(mean['standing'], best_mark(mean)))
            row = rows.get((name, role))
            if row is None:
                cells += [Cell(formats.UNKNOWN), Cell(itself)]
                continue
            text = formats.verdict_text(row, metric)
            if role == 'best' and row['against'] != next(iter(means)):
                text += f' than {label[row["against"]]}'
            images = '' if row.get('images') is None else (
                f'; images ±{formats.value_text(row["images"], metric)}')
            cells += [Cell(formats.interval_text(row, metric, sign=True) + images),
                      Cell(text, row['verdict'] if row['verdict'] in ('better', 'worse')
                           else 'same')]
        lines.append((Cell(label[name]), Cell(formats.interval_text(mean, metric)),
                      Cell(str(mean['n'])), *cells))
    size = next(each for each in results.sizes if each['factor'] == at)
    trained = ", the test's own size" if at == TRAINED else ''
    return Table(f'What can be best, and differences, at {formats.size_text(size)}{trained}',
                 ('Encoding', 'Mean (95% interval)', 'Seeds',
                  f'Minus {label[base]} (95% interval)', f'Against {label[base]}', 'Stands',
                  'Minus the best (95% bounds)', 'Against the best'), lines, words=(4, 5, 7))


def best_mark(row: Row) -> str:
    """For a row of the summary, the mark that says whether its encoding can be the best."""
    return 'best' if row['standing'] in (formats.BEST, formats.CAN_BE) else ''


def runs_table(results: Results) -> Table:
    """The table of all runs: how each ended, its value at the trained size, and what it took."""
    metric, label, rows = results.metric, results.label, []
    for run in results.runs:
        mark = 'worse' if run['status'] in ('diverged', 'failed') else ''
        value = formats.value_text(formats.value_at_trained_size(run), metric)
        rows.append((Cell(label[run['encoding']]), Cell(str(run['seed'])),
                     Cell(run['status'], mark), Cell(value),
                     Cell(formats.seconds_text(run['train_seconds'])),
                     Cell(formats.seconds_text(run['train_cpu_seconds'])), Cell(run['note'])))
    return Table('Every run of this study', (
        'Encoding', 'Seed', 'Status', formats.capitalized_unless_name(metric.label),
        'Training, wall', 'Training, CPU', 'Note'),
        rows, words=(2, 6))
