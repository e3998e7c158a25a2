"""Builds the tables of a study's page."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..statistics import formats, summary
from ..statistics.differences import TRAINED
from ..statistics.formats import Results


@dataclass(frozen=True)
class Cell:
    """A cell: its text, the value by which it is sorted (None comes last), and how it is marked:
    'better', 'best', ..."""
    text: str
    sort: float | str | None = None
    mark: str = ''


@dataclass(frozen=True)
class Table:
    """A table: its caption, the names of its columns, and rows whose first cell is a name. Other
    columns hold numbers, except those in ``words``."""
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    words: tuple[int, ...] = ()


def text_cell(text: str, mark: str = '') -> Cell:
    """A cell that is sorted by its text."""
    return Cell(text, text, mark)


def number_cell(value: float | None, text: str | Callable[[float], str] = str,
                mark: str = '') -> Cell:
    """A cell that is sorted by its number; a function makes the text of a number that is known."""
    if not isinstance(text, str):
        text = formats.UNKNOWN if value is None else text(value)
    return Cell(text, None if value is None else float(value), mark)


def costs_by_kind(results: Results) -> dict[str, dict[str, float | None]]:
    """For each kind of cost and each encoding, its number at the trained size, or None if it is not
    known.

    Kinds are 'parameters', 'macs' and 'seconds' of an image, 'images_a_second', 'mebibytes' of a
    pass, and means over finished runs: 'train_seconds' of the CPU, 'train_mebibytes' at the peak.
    """
    by_encoding = {}
    for each in results['encodings']:
        name, seconds = each['name'], formats.cost_at_size(each, TRAINED, 'seconds')
        by_encoding[name] = dict(
            parameters=each['parameters'], macs=formats.cost_at_size(each, TRAINED, 'macs'),
            seconds=seconds, images_a_second=1 / seconds if seconds else None,
            mebibytes=_mebibytes(formats.cost_at_size(each, TRAINED, 'peak_bytes')),
            train_seconds=_run_mean(results, name, 'train_cpu_seconds'),
            train_mebibytes=_mebibytes(_run_mean(results, name, 'peak_bytes')))
    return {kind: {name: costs[kind] for name, costs in by_encoding.items()}
            for kind in next(iter(by_encoding.values()))}


def _run_mean(results: Results, encoding: str, key: str) -> float | None:
    known = [run[key] for run in results['runs'] if run['encoding'] == encoding
             and run['status'] == 'finished' and run[key] is not None]
    return fmean(known) if known else None


def _mebibytes(count: float | None) -> float | None:
    return None if count is None else count / 2 ** 20


def overview_table(results: Results) -> Table:
    """The table of all encodings, with mean and interval at every size and the costs that are
    known; the best mean at the trained size comes first."""
    metric = results['metric']
    sizes = {factor: summary.summary_at(results, factor)
             for factor in summary.size_factors(results)}
    label, costs = summary.label_of_each_encoding(results), costs_by_kind(results)
    columns = [(head, costs[kind], text) for head, kind, text in (
        ('Parameters', 'parameters', count_with_commas), ('MACs', 'macs', formats.count_text),
        ('Images a second', 'images_a_second', '{:.3g}'.format),
        ('Inference, MiB', 'mebibytes', '{:.4g}'.format),
        ('Training, CPU', 'train_seconds', formats.seconds_text),
        ('Training, MiB', 'train_mebibytes', '{:.4g}'.format)) if {*costs[kind].values()} != {None}]
    rows = [(text_cell(label[each]),
             *(number_cell(mean['mean'], formats.interval_text(mean, metric), best_mark(mean))
               for mean in (at[each] for at in sizes.values())),
             number_cell(row['n']),
             *(number_cell(values[each], text) for _, values, text in columns))
            for each, row in sizes[TRAINED].items()]
    unit = f', {metric["unit"]}' if metric['unit'] else ''
    heads = [f'{factor:g}×' + (' (trained)' if factor == TRAINED else '') for factor in sizes]
    caption = (f'{metric["label"]}{unit} by image size: mean over seeds (its 95% interval); bold: '
               'can still be best')
    return Table(formats.capitalized_unless_name(caption),
                 ('Encoding', *heads, 'Seeds', *(head for head, _, _ in columns)), rows)


def differences_table(results: Results, factor: float) -> Table:
    """The table that compares every encoding at one size with the best one and with the base; the
    best mean comes first."""
    metric, base = results['metric'], summary.base_encoding(results)
    label = summary.label_of_each_encoding(results)
    best = summary.best_at(results, factor)
    rows = {(row['encoding'], row['role']): row for row in results['differences']
            if row['factor'] == factor}
    lines = []
    for each, mean in summary.summary_at(results, factor).items():
        cells = []
        for role, itself in (('best', 'the best mean'), ('base', 'the base')):
            row = rows.get((each, role))
            if row is None:
                cells += [Cell(formats.UNKNOWN), text_cell(itself)]
                continue
            text = formats.verdict_text(row, metric)
            if role == 'best' and row['against'] != best:
                text += f' than {label[row["against"]]}'
            cells += [number_cell(row['mean'], formats.interval_text(row, metric, sign=True)),
                      text_cell(text, row['verdict'] if row['verdict'] in ('better', 'worse')
                                else 'same')]
        lines.append((text_cell(label[each]),
                      number_cell(mean['mean'], formats.interval_text(mean, metric)),
                      number_cell(mean['n']), text_cell(mean['standing'], best_mark(mean)), *cells))
    size = next(each for each in results['sizes'] if each['factor'] == factor)
    trained = ', the trained size' if factor == TRAINED else ''
    return Table(f'What can be best, and differences, at {formats.size_text(size)}{trained}',
                 ('Encoding', 'Mean (95% interval)', 'Seeds', 'Stands',
                  'Minus the best (95% bounds)', 'Against the best',
                  f'Minus {label[base]} (95% interval)', f'Against {label[base]}'),
                 lines, words=(3, 5, 7))


def best_mark(row: Results) -> str:
    """For a row of the summary, the mark that says whether its encoding can be the best."""
    return 'best' if row['standing'] in (formats.BEST, formats.CAN_BE) else ''


def count_with_commas(count: float | None) -> str:
    """Write a whole number with commas between thousands."""
    return formats.UNKNOWN if count is None else f'{count:,}'


def parts_table(results: Results, key: str, what: str) -> Table | None:
    """The table of means by class or by object size at the trained size, with one column for each
    encoding.

    Args:
        results: of a study.
        key: 'by_class' or 'by_size'.
        what: the first column's name.

    Returns:
        None where no finished run has any.
    """
    metric = results['metric']
    by_part: dict[str, dict[str, list[float]]] = {}
    for run in results['runs']:
        for test in run['tests'] if run['status'] == 'finished' else ():
            for part, value in test[key].items() if test['factor'] == TRAINED else ():
                known = by_part.setdefault(part, {}).setdefault(run['encoding'], [])
                if value is not None and math.isfinite(value):
                    known.append(value)
    if not by_part:
        return None
    rows = []
    for part, by_encoding in by_part.items():
        means = {each['name']: summary.mean_row(by_encoding.get(each['name'], []))['mean']
                 for each in results['encodings']}
        have = [mean for mean in means.values() if mean is not None]
        best = max(have, default=None)
        spread = max(have) - min(have) if have else None
        rows.append((text_cell(part),
                     *(number_cell(mean, formats.value_text(mean, metric),
                                   'best' if mean is not None and mean == best and spread else '')
                       for mean in means.values()),
                     number_cell(spread, formats.value_text(spread, metric))))
    caption = f'{metric["label"]} by {what.lower()} at the trained size, means over seeds'
    heads = (what, *summary.label_of_each_encoding(results).values(), 'Range')
    return Table(formats.capitalized_unless_name(caption), heads, rows)


def runs_table(results: Results) -> Table:
    """The table of all runs: how each ended, its value at the trained size, and what it took."""
    metric, label, rows = results['metric'], summary.label_of_each_encoding(results), []
    for run in results['runs']:
        mark = 'worse' if run['status'] in ('diverged', 'failed') else ''
        value = next((test['value'] for test in run['tests'] if test['factor'] == TRAINED), None)
        rows.append((text_cell(label[run['encoding']]), number_cell(run['seed']),
                     text_cell(run['status'], mark),
                     number_cell(value, formats.value_text(value, metric)),
                     number_cell(run['train_seconds'], formats.seconds_text),
                     number_cell(run['train_cpu_seconds'], formats.seconds_text),
                     Cell(run['note'], run['note'] or None)))
    return Table('Every run of this study', (
        'Encoding', 'Seed', 'Status', formats.capitalized_unless_name(metric['label']),
        'Training, wall', 'Training, CPU', 'Note'),
        rows, words=(2, 6))
