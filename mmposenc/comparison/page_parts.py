"""What a page shows besides tables and charts of results: pictures, figures, diagnosis."""
from __future__ import annotations

import math
import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import study_charts, tables
from .charts import data_uri, heat_map
from .formats import UNKNOWN
from .statistics import labels

#: Matrices with more cells are pictures, and not tables.
MOST_CELLS = 400


def inlined(folder: Path, file: str) -> str | None:
    """A picture as an address that holds it; None where it is missing or none."""
    kind = mimetypes.guess_type(file)[0] or ''
    path = (folder / file).resolve()
    inside = path.is_relative_to(folder.resolve())
    if not kind.startswith('image/') or not inside or not path.is_file():
        return None
    return data_uri(path.read_bytes(), kind)


def pictures(results: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Predictions on the same pictures: the truth first, then the encodings in their order."""
    label = labels(results)
    order = list(label)

    def place(entry: Mapping[str, Any]) -> int:
        return order.index(entry['encoding']) if entry.get('encoding') in order else -1
    return [dict(title=each.get('title') or each['id'], source=each.get('source') or '', entries=[
        dict(label=label.get(entry['encoding'], entry['encoding']) if entry.get('encoding')
             else 'Truth', text=entry.get('text') or '',
             file=entry['file'], address=inlined(folder, entry['file']))
        for entry in sorted(each['entries'], key=place)]) for each in results.get('pictures') or []]


def figures(results: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """What was learned: the figures of each encoding that has some."""
    told = []
    for name, label in labels(results).items():
        own = [dict(title=each['title'], text=each.get('text') or each['title'], file=each['file'],
                    untrained=each.get('untrained'), address=inlined(folder, each['file']))
               for each in results.get('figures') or [] if each['encoding'] == name]
        told += [dict(label=label, figures=own)] if own else []
    return told


def diagnosis(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """One table of all values, and every measure with its charts and matrices; None without any.

    Of several seeds of an encoding it is the first.
    """
    label = labels(results)
    found: dict[str, Mapping[str, Any]] = {}
    for each in results.get('diagnosis') or []:
        if each['encoding'] in label:
            found.setdefault(each['encoding'], each)
    by_name: dict[str, dict[str, Any]] = {}
    for name, each in found.items():
        for measure in each['measures']:
            by_name.setdefault(measure['name'], {})[name] = measure
    if not by_name:
        return None
    return dict(table=_values(found, by_name, label),
                measures=[_measure(results, name, measures) for name, measures in by_name.items()])


def _values(found: Mapping[str, Mapping[str, Any]], by_name: Mapping[str, Mapping[str, Any]],
            label: Mapping[str, str]) -> tables.Table:
    """A row for each measure that has a number, and a column an encoding."""
    rows = []
    for measures in by_name.values():
        first = next(iter(measures.values()))
        values = [measures.get(name, {}).get('value') for name in found]
        if any(value is not None for value in values):
            rows.append((tables.Cell(first['title'], first['title']),
                         tables.Cell(first.get('unit') or ''),
                         *(tables.numbered(value, '{:.3g}'.format) for value in values)))
    heads = [label[name] if each['trained'] else f'{label[name]} (untrained)'
             for name, each in found.items()]
    return tables.Table('One number a measure', ('Measure', 'Unit', *heads), rows, words=(1,))


def _measure(results: Mapping[str, Any], name: str, measures: Mapping[str, Mapping[str, Any]],
             ) -> dict[str, Any]:
    label = labels(results)
    first = next(iter(measures.values()))
    charts = study_charts.measure_charts(results, name, measures)
    notes: dict[str, list[str]] = {}
    for encoding, each in measures.items():
        notes.setdefault(each.get('text') or '', []).append(label[encoding])
    return dict(
        title=first['title'], definition=first.get('definition') or '',
        unit=first.get('unit') or '',
        # A note of all encodings needs no names.
        notes=[(', '.join(names) if len(notes) > 1 else '', text)
               for text, names in notes.items() if text],
        charts=charts[:study_charts.MOST_CHARTS], more=charts[study_charts.MOST_CHARTS:],
        maps=[dict(_map(each['map']), label=label[encoding])
              for encoding, each in measures.items() if each.get('map')])


def _map(matrix: Mapping[str, Any]) -> dict[str, Any]:
    """A matrix: a table whose cells are shaded, or a picture where it has very many."""
    values = matrix['values']
    picture = heat_map(values)
    shape = f'{len(values)} × {len(values[0]) if values else 0}'
    if picture is None:
        return dict(cells=[], columns=[], address=None, text=f'{shape}, no number in it')
    address, low, high = picture
    text = f'{shape}, from {low:.3g} (dark) to {high:.3g} (light)'
    if len(values) * len(values[0]) > MOST_CELLS:
        return dict(cells=[], columns=[], address=address, text=text)

    def cell(value: float | None) -> tuple[str, int]:
        if value is None or not math.isfinite(value):
            return UNKNOWN, 0
        return f'{value:.3g}', round(100 * (value - low) / (high - low or 1))
    rows = _names(matrix.get('rows'), len(values))
    return dict(address=None, text=shape, columns=_names(matrix.get('columns'), len(values[0])),
                cells=[(name, [cell(value) for value in row])
                       for name, row in zip(rows, values, strict=True)])


def _names(given: Any, count: int) -> list[str]:
    """Names of rows or columns; their numbers where there are none."""
    return [str(each) for each in given] if isinstance(given, (list, tuple)) else [
        str(n) for n in range(count)]
