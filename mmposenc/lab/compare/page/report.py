"""results.csv and report.html of a study; docs/report.md says how to read them."""
from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..statistics import formats
from ..statistics.differences import LEAST_RUNS, TRAINED
from ..statistics.results import Results
from ..study.records import Record, write_text
from . import tables
from .charts import all_charts


def write_report(results: Results, folder: Path) -> None:
    """Write results.csv and report.html; each is complete or not there.

    Args:
        results: what is returned by :func:`~..statistics.summary.with_summary`.
        folder: the folder of the study.
    """
    write_text(folder / 'results.csv', results_csv(results), safe=False)
    write_text(folder / 'report.html', report_html(results), safe=False)


def report_html(results: Results) -> str:
    """The text of report.html for summarised results: one file without scripts, which loads nothing
    from a network."""
    import jinja2
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('mmposenc.lab.compare.page'), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(capitalized_unless_name=formats.capitalized_unless_name,
                               breakable=breakable_html)
    sizes, label = results.tested_sizes, results.label
    return environment.get_template('report.html').render(
        results=results, title=results.title, label=label,
        answer=recommendation_for_readers(results),
        counts=Counter(word for run in results.runs for word in ('all', run['status'])),
        overview=tables.overview_table(results), charts=all_charts(results),
        differences=[tables.differences_table(results, at) for at in sorted(
            sizes, key=lambda at: at != TRAINED)] if len(label) > 1 else [],
        runs=tables.runs_table(results),
        base=label[results.base],
        seeds=len({run['seed'] for run in results.runs}))


def breakable_html(name: str) -> str:
    """A name as HTML, such as that of a config, in which a line may break behind each part."""
    import markupsafe
    return markupsafe.Markup('_<wbr>').join(name.split('_'))


def recommendation_for_readers(results: Results) -> Record:
    """The recommendation, with a headline and a word on how sure it is."""
    advice, label = results.recommendation, results.label
    sure = ('Best: every other is worse' if advice['confidence'] == formats.BEST else
            f'{len(advice["candidates"])} of {len(label)} can still be best')
    if advice['encoding'] is None:
        return dict(advice, head='No recommendation yet', word=sure)
    tested = any(row['n'] >= LEAST_RUNS for row in results.differences
                 if row['factor'] == TRAINED)
    head = f'{"Take" if tested else "So far:"} {label[advice["encoding"]]}'
    return dict(advice, head=head, word=sure)


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
    encodings = {each['name']: each for each in results.encodings}
    hw = {each['factor']: each['hw'] or (None, None) for each in results.sizes}
    metric = results.metric
    rows: list[dict[str, object]] = []
    for run in results.runs:
        encoding = encodings[run['encoding']]
        trained = formats.value_at_trained_size(run)
        for test in run['tests'] or [dict(factor=None, value=None)]:
            factor, value = test['factor'], test['value']
            height, width = hw.get(factor, (None, None))
            rows.append(dict(
                encoding=encoding['name'], label=encoding['label'], seed=run['seed'],
                status=run['status'], factor=factor, height=height, width=width,
                metric=metric.name, unit=metric.unit, value=value,
                retention=value / trained if trained and value is not None else None,
                parameters=encoding['parameters'],
                macs=formats.cost_at_size(encoding, factor, 'macs'),
                inference_seconds=formats.cost_at_size(encoding, factor, 'seconds'),
                train_seconds=run['train_seconds'], train_cpu_seconds=run['train_cpu_seconds'],
                train_peak_bytes=run['peak_bytes'], note=run['note']))
    return csv_text([list(rows[0]), *([safe_cell(value) for value in row.values()]
                                      for row in rows)])
