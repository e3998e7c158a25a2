"""The tables of a study, once for the page and for Markdown, and its runs as CSV."""
from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .formats import UNKNOWN, count_text, first_upper, p_text, seconds_text, size_text, value_text
from .statistics import base_of, best_of, factors, interval, trained_factor, values_at

CSV_COLUMNS = ('encoding', 'label', 'seed', 'status', 'factor', 'height', 'width', 'metric', 'unit',
               'value', 'parameters', 'macs', 'inference_seconds', 'train_seconds',
               'train_cpu_seconds', 'train_peak_bytes', 'note')


@dataclass(frozen=True)
class Cell:
    """What is read, what is sorted by (None comes last), and what it says: 'better', 'best', ..."""
    text: str
    sort: float | str | None = None
    mark: str = ''


@dataclass(frozen=True)
class Table:
    """A caption, the columns' names, and rows whose first cell is a name; other columns hold
    numbers but for those in ``words``."""
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    words: tuple[int, ...] = ()


def number(value: float | None, text: str, mark: str = '') -> Cell:
    """A cell that is sorted by its number."""
    return Cell(text, value if value is None else float(value), mark)


def cost(encoding: Mapping[str, Any], factor: float, key: str) -> float | None:
    """'macs', 'seconds', ... of an encoding at a size; None where it is not known."""
    for each in encoding.get('costs') or []:
        if each['factor'] == factor:
            value: float | None = each.get(key)
            return value
    return None


def run_mean(results: Mapping[str, Any], name: str, key: str) -> float | None:
    """The mean of 'train_seconds', ... over the finished runs of an encoding that know it."""
    known = [run[key] for run in results['runs'] if run['encoding'] == name
             and run['status'] == 'finished' and run.get(key) is not None]
    return interval(known)['mean']


def overview(results: Mapping[str, Any]) -> Table:
    """Every encoding with its mean and interval at every size, and what it costs."""
    metric, trained = results['metric'], trained_factor(results)
    sizes = factors(results)
    told = {(row['encoding'], row['factor']): row for row in results['summary']}
    best = {factor: best_of(values_at(results, factor), metric['higher_is_better'])
            for factor in sizes}
    rows = []
    for each in results['encodings']:
        name = each['name']
        cells = [Cell(each['label'], each['label'])]
        for factor in sizes:
            row = told[name, factor]
            half = None if row['low'] is None else (row['high'] - row['low']) / 2
            text = value_text(row['mean'], metric)
            cells.append(number(row['mean'], text if half is None
                                else f'{text} ± {value_text(half, metric)}',
                                'best' if best[factor] == name else ''))
        macs, seconds = cost(each, trained, 'macs'), run_mean(results, name, 'train_cpu_seconds')
        cells += [number(told[name, trained]['n'], str(told[name, trained]['n'])),
                  number(each.get('parameters'), grouped(each.get('parameters'))),
                  number(macs, count_text(macs)), number(seconds, seconds_text(seconds))]
        rows.append(tuple(cells))
    unit = f', {metric["unit"]}' if metric.get('unit') else ''
    heads = [f'{factor:g}×' + (' (trained)' if factor == trained else '') for factor in sizes]
    return Table(first_upper(f'{metric["label"]}{unit} by image size: mean over seeds ± half of '
                             'its 95% interval'),
                 ('Encoding', *heads, 'Seeds', 'Parameters', 'MACs', 'Training, CPU'), rows)


def differences(results: Mapping[str, Any], factor: float) -> Table:
    """Every encoding at one size against the base and against the best, with p and verdict."""
    metric, base = results['metric'], base_of(results)
    best = best_of(values_at(results, factor), metric['higher_is_better'])
    rows = {(row['encoding'], row['against']): row for row in results['differences']
            if row['factor'] == factor}
    label = {each['name']: each['label'] for each in results['encodings']}
    told = {row['encoding']: row for row in results['summary'] if row['factor'] == factor}
    against = [base] + [best] * (best not in (None, base))
    lines = []
    for name, own in told.items():
        std = f' ({value_text(own["std"], metric)})' if own['std'] is not None else ''
        cells = [Cell(label[name], label[name]),
                 number(own['mean'], value_text(own['mean'], metric) + std)]
        for other in against:
            cells += _difference(rows.get((name, other)), metric,
                                 'the best' if other == best else 'the base')
        lines.append(tuple(cells))
    heads = [head for other in against
             for head in (f'minus {label[str(other)]} (95% interval)', 'Pairs', 'p', 'Verdict')]
    size = next(each for each in results['sizes'] if each['factor'] == factor)
    trained = ', the trained size' if factor == trained_factor(results) else ''
    return Table(f'Means, and differences over the same seeds, at {size_text(size)}{trained}',
                 ('Encoding', 'Mean (std)', *heads), lines,
                 words=tuple(5 + 4 * n for n in range(len(against))))


def _difference(row: Mapping[str, Any] | None, metric: Mapping[str, Any], itself: str,
                ) -> list[Cell]:
    """Four cells of one comparison."""
    if row is None:
        return [Cell(UNKNOWN)] * 3 + [Cell(itself, itself)]
    mark = {'better': 'better', 'worse': 'worse'}.get(row['verdict'], '')
    text = value_text(row['mean'], metric, sign=True)
    if row['low'] is not None:
        ends = (value_text(row[end], metric, sign=True) for end in ('low', 'high'))
        text += f' ({" to ".join(ends)})'
    return [number(row['mean'], text), number(row['n'], str(row['n'])),
            number(row['p'], p_text(row['p'])), Cell(row['verdict'], row['verdict'], mark)]


def grouped(count: int | None) -> str:
    """A count with its thousands apart."""
    return UNKNOWN if count is None else f'{count:,}'


def parts(results: Mapping[str, Any], key: str, what: str) -> Table | None:
    """Means by class or by object size at the trained size: a row each, a column an encoding.

    Args:
        results: of a study.
        key: 'by_class' or 'by_size'.
        what: the first column's name.

    Returns:
        None where no finished run has any.
    """
    metric, trained = results['metric'], trained_factor(results)
    found: dict[str, dict[str, list[float]]] = {}
    for run in results['runs']:
        for test in run['tests'] if run['status'] == 'finished' else ():
            for part, value in (test.get(key) or {}).items() if test['factor'] == trained else ():
                known = found.setdefault(part, {}).setdefault(run['encoding'], [])
                if value is not None and math.isfinite(value):
                    known.append(value)
    if not found:
        return None
    rows = []
    for part, by_encoding in found.items():
        means = {each['name']: interval(by_encoding.get(each['name'], []))['mean']
                 for each in results['encodings']}
        have = [mean for mean in means.values() if mean is not None]
        best = (max if metric['higher_is_better'] else min)(have, default=None)
        spread = max(have) - min(have) if have else None
        rows.append((Cell(part, part),
                     *(number(mean, value_text(mean, metric),
                              'best' if mean is not None and mean == best and len(have) > 1 else '')
                       for mean in means.values()),
                     number(spread, value_text(spread, metric))))
    labels = [each['label'] for each in results['encodings']]
    return Table(first_upper(f'{metric["label"]} by {what.lower()} at the trained size, means over '
                             'seeds'),
                 (what, *labels, 'Range'), rows)


def runs(results: Mapping[str, Any]) -> Table:
    """Every run: how it ended, its value at the trained size, what it took."""
    metric, trained = results['metric'], trained_factor(results)
    label = {each['name']: each['label'] for each in results['encodings']}
    rows = []
    for run in results['runs']:
        value = next((test['value'] for test in run['tests'] if test['factor'] == trained), None)
        seconds, cpu = run.get('train_seconds'), run.get('train_cpu_seconds')
        rows.append((Cell(label[run['encoding']], label[run['encoding']]),
                     number(run['seed'], str(run['seed'])),
                     Cell(run['status'], run['status'],
                          'worse' if run['status'] in ('diverged', 'failed') else ''),
                     number(value, value_text(value, metric)),
                     number(seconds, seconds_text(seconds)), number(cpu, seconds_text(cpu)),
                     Cell(run.get('note') or '', run.get('note') or None)))
    return Table('Every run of this study', (
        'Encoding', 'Seed', 'Status', first_upper(metric['label']), 'Training, wall',
        'Training, CPU', 'Note'),
        rows, words=(2, 6))


def markdown(table: Table) -> str:
    """A table of Markdown, with its caption above."""
    def line(cells: Sequence[str]) -> str:
        return f'| {" | ".join(cells)} |'

    def shown(cell: Cell) -> str:
        text = escaped(cell.text)
        return f'**{text}**' if cell.mark == 'best' and text else text
    rule = ['---' if n == 0 or n in table.words else '---:' for n in range(len(table.columns))]
    return '\n'.join([f'{escaped(table.caption)}:', '', line([escaped(c) for c in table.columns]),
                      line(rule), *(line([shown(cell) for cell in row]) for row in table.rows), ''])


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: in a cell of a table, on one line, and no HTML."""
    return re.sub(r'([\\`*_{}\[\]<>#|~])', r'\\\1', ' '.join(text.split()))


def results_md(results: Mapping[str, Any]) -> str:
    """The tables of a study as Markdown, for a page of one's own.

    Args:
        results: of :func:`mmposenc.comparison.statistics.summarize`.
    """
    advice = results['recommendation']
    tables = [overview(results), *(differences(results, factor) for factor in factors(results)),
              parts(results, 'by_size', 'Object size'), parts(results, 'by_class', 'Class'),
              runs(results)]
    label = {each['name']: each['label'] for each in results['encodings']}
    taken = escaped(label[advice['encoding']]) if advice['encoding'] is not None else 'Nothing yet'
    return '\n'.join([
        f'## {escaped(results.get("title") or "Encodings compared")}', '',
        f'**{taken}** ({advice["confidence"]}). {escaped(advice["reason"])} '
        f'{escaped(advice["sure"])}', '',
        *(markdown(table) for table in tables if table is not None and table.rows)])


def results_csv(results: Mapping[str, Any]) -> str:
    """One row a run and image size, and one of a run that has none; what is not known is empty.

    Columns are :data:`CSV_COLUMNS`, and one for each object size there is ('value_small', ...).
    """
    encodings = {each['name']: each for each in results['encodings']}
    hw = {each['factor']: each.get('hw') or (None, None) for each in results['sizes']}
    metric = results['metric']
    parts_of = list(dict.fromkeys(part for run in results['runs'] for test in run['tests']
                                  for part in test.get('by_size') or ()))
    file = io.StringIO()
    writer = csv.DictWriter(file, [*CSV_COLUMNS, *(f'value_{part}' for part in parts_of)],
                            lineterminator='\n')
    writer.writeheader()
    for run in results['runs']:
        own = encodings[run['encoding']]
        for test in run['tests'] or [dict(factor=None, value=None)]:
            factor = test['factor']
            height, width = hw.get(factor, (None, None))
            writer.writerow(dict(
                encoding=own['name'], label=own['label'], seed=run['seed'], status=run['status'],
                factor=factor, height=height, width=width, metric=metric['name'],
                unit=metric.get('unit'), value=test['value'], parameters=own.get('parameters'),
                macs=cost(own, factor, 'macs'), inference_seconds=cost(own, factor, 'seconds'),
                train_seconds=run.get('train_seconds'),
                train_cpu_seconds=run.get('train_cpu_seconds'),
                train_peak_bytes=run.get('peak_bytes'), note=run.get('note'),
                **{f'value_{part}': (test.get('by_size') or {}).get(part) for part in parts_of}))
    return file.getvalue()
