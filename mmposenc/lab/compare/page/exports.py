"""The tables of a study as Markdown, and its runs as CSV."""
from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..statistics.formats import cost
from ..statistics.summary import factors, labels
from .tables import Cell, Table, differences, overview, parts, runs

CSV_COLUMNS = ('encoding', 'label', 'seed', 'status', 'factor', 'height', 'width', 'metric', 'unit',
               'value', 'retention', 'parameters', 'macs', 'inference_seconds',
               'train_seconds', 'train_cpu_seconds', 'train_peak_bytes', 'note')


def markdown(table: Table) -> str:
    """A table of Markdown, with its caption above."""
    def shown(cell: Cell) -> str:
        text = escaped(cell.text)
        return f'**{text}**' if cell.mark == 'best' and text else text
    rows = [[escaped(each) for each in table.columns],
            *([shown(cell) for cell in row] for row in table.rows)]
    return f'{escaped(table.caption)}:\n\n{markdown_rows(rows, (0, *table.words))}'


def markdown_rows(rows: Sequence[Sequence[str]], words: Sequence[int] = (0,)) -> str:
    """A table of Markdown: the first row is its header; columns but for ``words`` hold numbers."""
    rule = ['---' if n in words else '---:' for n in range(len(rows[0]))]
    return ''.join(f'| {" | ".join(row)} |\n' for row in (rows[0], rule, *rows[1:]))


def csv_rows(rows: Iterable[Sequence[str]]) -> str:
    """A table as CSV: the first row is its header."""
    file = io.StringIO()
    csv.writer(file, lineterminator='\n').writerows(rows)
    return file.getvalue()


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: in a cell of a table, on one line, and no HTML."""
    return re.sub(r'([\\`*_{}\[\]<>#|~])', r'\\\1', ' '.join(text.split()))


def results_md(results: Mapping[str, Any]) -> str:
    """The tables of a study as Markdown, for a page of one's own.

    Args:
        results: of :func:`mmposenc.lab.compare.statistics.summary.summarize`.
    """
    advice = results['recommendation']
    tables = [overview(results), *(differences(results, factor) for factor in factors(results)),
              parts(results, 'by_size', 'Object size'), parts(results, 'by_class', 'Class'),
              runs(results)]
    label = labels(results)
    taken = escaped(label[advice['encoding']]) if advice['encoding'] is not None else 'Nothing yet'
    return '\n'.join([
        f'## {escaped(results.get("title") or "Encodings compared")}', '',
        f'**{taken}** ({advice["confidence"]}). {escaped(advice["reason"])} '
        f'{escaped(advice["sure"])}', '',
        *(markdown(table) for table in tables if table is not None and table.rows)])


def safe_cell(value: Any) -> Any:
    """Text with an apostrophe before it where a spreadsheet would run it as a formula; a number as
    it is."""
    if not isinstance(value, str):
        return value
    text = value.replace('\r', '\n')  # csv puts no quotes around the first
    return f"'{text}" if text.startswith(('=', '+', '-', '@', '\t', '\n')) else text


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
        trained = next((test['value'] for test in run['tests'] if test['factor'] == 1.0), None)
        for test in run['tests'] or [dict(factor=None, value=None)]:
            factor = test['factor']
            height, width = hw.get(factor, (None, None))
            row: dict[str, Any] = dict(
                encoding=own['name'], label=own['label'], seed=run['seed'], status=run['status'],
                factor=factor, height=height, width=width, metric=metric['name'],
                unit=metric.get('unit'), value=test['value'],
                retention=test['value'] / trained if trained and test['value'] is not None
                else None, parameters=own.get('parameters'),
                macs=cost(own, factor, 'macs'), inference_seconds=cost(own, factor, 'seconds'),
                train_seconds=run.get('train_seconds'),
                train_cpu_seconds=run.get('train_cpu_seconds'),
                train_peak_bytes=run.get('peak_bytes'), note=run.get('note'),
                **{f'value_{part}': (test.get('by_size') or {}).get(part) for part in parts_of})
            writer.writerow({key: safe_cell(value) for key, value in row.items()})
    return file.getvalue()
