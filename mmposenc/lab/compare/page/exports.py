"""Writes the runs of a study as CSV."""
from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from ..statistics.formats import Results, cost_at_size, value_at_trained_size


def csv_text(rows: Iterable[Sequence[object]]) -> str:
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
    is empty."""
    encodings = {each['name']: each for each in results['encodings']}
    hw = {each['factor']: each['hw'] or (None, None) for each in results['sizes']}
    metric = results['metric']
    rows: list[dict[str, object]] = []
    for run in results['runs']:
        encoding = encodings[run['encoding']]
        trained = value_at_trained_size(run)
        for test in run['tests'] or [dict(factor=None, value=None)]:
            factor, value = test['factor'], test['value']
            height, width = hw.get(factor, (None, None))
            rows.append(dict(
                encoding=encoding['name'], label=encoding['label'], seed=run['seed'],
                status=run['status'], factor=factor, height=height, width=width,
                metric=metric['name'], unit=metric['unit'], value=value,
                retention=value / trained if trained and value is not None else None,
                parameters=encoding['parameters'], macs=cost_at_size(encoding, factor, 'macs'),
                inference_seconds=cost_at_size(encoding, factor, 'seconds'),
                train_seconds=run['train_seconds'], train_cpu_seconds=run['train_cpu_seconds'],
                train_peak_bytes=run['peak_bytes'], note=run['note']))
    return csv_text([list(rows[0]), *([safe_cell(value) for value in row.values()]
                                      for row in rows)])
