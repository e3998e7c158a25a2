"""Writes the runs of a study as CSV."""
from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from ..statistics.formats import Results, cost_at_size

CSV_COLUMNS = ('encoding', 'label', 'seed', 'status', 'factor', 'height', 'width', 'metric', 'unit',
               'value', 'retention', 'parameters', 'macs', 'inference_seconds',
               'train_seconds', 'train_cpu_seconds', 'train_peak_bytes', 'note')


def csv_text(rows: Iterable[Sequence[str]]) -> str:
    """Write a table as CSV, with its first row as header."""
    file = io.StringIO()
    csv.writer(file, lineterminator='\n').writerows(rows)
    return file.getvalue()


def safe_cell(value: object) -> Any:
    """A value for a cell. Text that a spreadsheet would run as a formula gets an apostrophe before
    it."""
    if not isinstance(value, str):
        return value
    text = value.replace('\r', '\n')  # The module csv puts no quotes around a lone carriage return.
    return f"'{text}" if text.startswith(('=', '+', '-', '@', '\t', '\n')) else text


def results_csv(results: Results) -> str:
    """One row for each run and image size, and one for a run that has no result. What is not known
    is empty.

    Columns are :data:`CSV_COLUMNS`, and one for each object size there is ('value_small', ...).
    """
    encodings = {each['name']: each for each in results['encodings']}
    hw = {each['factor']: each['hw'] or (None, None) for each in results['sizes']}
    metric = results['metric']
    parts_of = list(dict.fromkeys(part for run in results['runs'] for test in run['tests']
                                  for part in test['by_size']))
    file = io.StringIO()
    writer = csv.DictWriter(file, [*CSV_COLUMNS, *(f'value_{part}' for part in parts_of)],
                            lineterminator='\n')
    writer.writeheader()
    for run in results['runs']:
        encoding = encodings[run['encoding']]
        trained = next((test['value'] for test in run['tests'] if test['factor'] == 1.0), None)
        for test in run['tests'] or [dict(factor=None, value=None, by_size={})]:
            factor = test['factor']
            height, width = hw.get(factor, (None, None))
            row: dict[str, object] = dict(
                encoding=encoding['name'], label=encoding['label'], seed=run['seed'],
                status=run['status'], factor=factor, height=height, width=width,
                metric=metric['name'], unit=metric['unit'], value=test['value'],
                retention=test['value'] / trained if trained and test['value'] is not None
                else None, parameters=encoding['parameters'],
                macs=cost_at_size(encoding, factor, 'macs'),
                inference_seconds=cost_at_size(encoding, factor, 'seconds'),
                train_seconds=run['train_seconds'],
                train_cpu_seconds=run['train_cpu_seconds'],
                train_peak_bytes=run['peak_bytes'], note=run['note'],
                **{f'value_{part}': test['by_size'].get(part) for part in parts_of})
            writer.writerow({key: safe_cell(value) for key, value in row.items()})
    return file.getvalue()
