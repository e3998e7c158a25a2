"""The charts of a study: accuracy over size and against cost, learning curves, diagnosis."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mmposenc.lab.compare.statistics.formats import cost

from ..statistics.differences import LEAST_RUNS
from ..statistics.formats import count_text, first_upper, interval_text, seconds_text, value_text
from ..statistics.summary import factors, interval, labels, trained_factor
from .charts import Axis, Chart, Line, Style, line_chart, thinned
from .tables import Cell, Table, number, numbered, run_mean

#: Charts of one measure beside each other; more are in a list that opens.
MOST_CHARTS = 12
#: Rows of a table of a curve.
MOST_ROWS = 40


def styles(results: Mapping[str, Any]) -> dict[str, Style]:
    """encoding -> how it is drawn, by its place in the study."""
    return {each['name']: Style(n) for n, each in enumerate(results['encodings'])}


def metric_axis(results: Mapping[str, Any]) -> Axis:
    """The scale of the metric; shares stay within what can be."""
    metric = results['metric']
    percent = metric.get('unit') == '%'
    known = [row['mean'] for row in results['summary'] if row['mean'] is not None]
    label = f'{metric["label"]}, {metric["unit"]}' if metric.get('unit') else metric['label']
    return Axis(first_upper(label), lambda value: value_text(value, metric), lambda v: f'{v:.6g}',
                limits=(0 if all(mean >= 0 for mean in known) else -math.inf,
                        100 if percent else math.inf))


def bar(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """The ends of an interval that a chart can show: those of two seeds are 18 standard deviations
    long, and hide all else."""
    return (row['low'], row['high']) if row['n'] >= LEAST_RUNS else (None, None)


def size_chart(results: Mapping[str, Any]) -> Chart | None:
    """The metric over the image size; None of a single size."""
    sizes = factors(results)
    if len(sizes) < 2:
        return None
    style, label = styles(results), labels(results)
    by_name: dict[str, list[Any]] = {name: [] for name in style}
    for row in sorted(results['summary'], key=lambda row: row['factor']):
        by_name[row['encoding']].append(row)
    lines = [Line(label[name], style[name], [row['factor'] for row in rows],
                  [row['mean'] for row in rows], [bar(row)[0] for row in rows],
                  [bar(row)[1] for row in rows]) for name, rows in by_name.items()]
    x = Axis('image size, as a multiple of the trained one', lambda value: f'{value:g}×',
             ticks=sizes)
    metric = results['metric']
    title = first_upper(f'{metric["label"]} over image size')
    heads = ('Encoding', *(f'{each:g}×' for each in sizes))
    table = Table(f'{title}: mean (95% interval)', heads, [
        (Cell(label[name]), *(number(row['mean'], interval_text(row, metric)) for row in rows))
        for name, rows in by_name.items()])
    return line_chart('over-size', title, lines, x, metric_axis(results), dodge=True, table=table,
                      note='Bars are 95% intervals of the mean over 3 or more seeds; long ones are '
                      'cut at the edge of the chart.')


def cost_charts(results: Mapping[str, Any]) -> list[Chart]:
    """The metric at the trained size against everything that is known of the costs."""
    trained = trained_factor(results)

    def of(each: Mapping[str, Any]) -> dict[str, float | None]:
        costs = {key: cost(each, trained, key) for key in ('macs', 'seconds', 'peak_bytes')}
        trains = {key: run_mean(results, each['name'], key)
                  for key in ('train_cpu_seconds', 'peak_bytes')}
        return {'parameters': each.get('parameters'),
                'multiply-accumulates an image': costs['macs'],
                'seconds an image': costs['seconds'],
                'peak memory of inference, MiB': mebibytes(costs['peak_bytes']),
                'CPU time of a training': trains['train_cpu_seconds'],
                'peak memory of a training, MiB': mebibytes(trains['peak_bytes'])}

    known = {each['name']: of(each) for each in results['encodings']}
    texts: list[Callable[[float], str]] = [
        large, large, seconds_text, small, seconds_text, small]
    charts = [_cost_chart(results, f'cost-{n}', kind, text,
                          {name: costs[kind] for name, costs in known.items()})
              for n, (kind, text) in enumerate(zip(next(iter(known.values())), texts, strict=True))]
    return [chart for chart in charts if chart is not None]


def mebibytes(count: float | None) -> float | None:
    """Bytes in MiB."""
    return None if count is None else count / 2 ** 20


def large(value: float) -> str:
    """A count in four digits, as encodings may differ in the third."""
    return count_text(value, digits=4)


def small(value: float) -> str:
    """Any number in four digits."""
    return f'{value:.4g}'


def _cost_chart(results: Mapping[str, Any], id: str, label: str, text: Callable[[float], str],
                known: Mapping[str, float | None]) -> Chart | None:
    told = {row['encoding']: row for row in results['summary']
            if row['factor'] == trained_factor(results)}
    style = styles(results)
    lines = [Line(each['label'], style[each['name']], [value], [row['mean']], [bar(row)[0]],
                  [bar(row)[1]]) for each in results['encodings']
             for row, value in [(told[each['name']], known[each['name']])] if value is not None]
    values = [value for value in known.values() if value]
    axis = Axis(label, text, logarithmic=bool(values) and max(values) > 20 * min(values))
    y, metric = metric_axis(results), results['metric']
    table = Table(f'{y.label}, and {label}', ('Encoding', metric['label'], label), [
        (Cell(each['label'], each['label']),
         number(told[each['name']]['mean'], value_text(told[each['name']]['mean'], metric)),
         numbered(known[each['name']], text)) for each in results['encodings']])
    return line_chart(id, f'Against {label}', lines, axis, y, table=table)


def curve_charts(results: Mapping[str, Any]) -> list[Chart]:
    """The loss of training, and the metric of validation, over epochs or iterations."""
    metric = results['metric']
    charts = [_curve_chart(results, 'loss', 'Loss in training',
                           Axis('loss', lambda value: f'{value:.3g}')),
              _curve_chart(results, 'metric', first_upper(f'{metric["label"]} in validation'),
                           metric_axis(results))]
    return [chart for chart in charts if chart is not None]


def _curve_chart(results: Mapping[str, Any], key: str, title: str, y: Axis) -> Chart | None:
    style, label = styles(results), labels(results)
    lines, means, step = [], {}, 'epoch'
    for name in style:
        runs = [run for run in results['runs'] if run['encoding'] == name]
        curves: dict[int, dict[float, float]] = {}
        for run in runs:
            curves[run['seed']] = {}
            for point in run.get('curve') or []:
                step = 'iteration' if 'iteration' in point else 'epoch'
                if point.get(key) is not None:
                    curves[run['seed']][point[step]] = point[key]
        finished = [curves[run['seed']] for run in runs if run['status'] == 'finished']
        means[name] = {at: [curve[at] for curve in finished if at in curve]
                       for at in sorted({at for curve in finished for at in curve})}
        lines.append(_mean_line(label[name], style[name], means[name]))
        for run in runs:
            if run['status'] == 'diverged':
                points = sorted(curves[run['seed']].items())
                lines.append(Line(f'{label[name]}, seed {run["seed"]}, diverged', style[name],
                                  [at for at, _ in points], [value for _, value in points],
                                  markers=False, lost=True))
    return line_chart(f'curve-{key}', title, lines, Axis(step), y, bands=True,
                      table=_curve_table(title, step, means, label, y),
                      note='Lines are means over seeds, areas reach from the least to the greatest '
                      'of them. Of a run that diverged there is a line of its own.')


def _mean_line(label: str, style: Style, points: Mapping[float, list[float]]) -> Line:
    at = [list(points)[n] for n in thinned(len(points))]
    several = any(len(points[x]) > 1 for x in at)
    return Line(label, style, at, [math.fsum(points[x]) / len(points[x]) for x in at],
                [min(points[x]) for x in at] if several else (),
                [max(points[x]) for x in at] if several else (), markers=len(at) <= 12)


def _curve_table(title: str, step: str, means: Mapping[str, Mapping[float, list[float]]],
                 label: Mapping[str, str], y: Axis) -> Table:
    steps = sorted({at for points in means.values() for at in points})
    rows = [(number(at, f'{at:g}'), *(
        numbered(interval(points.get(at, []))['mean'], y.text) for points in means.values()))
        for at in (steps[n] for n in thinned(len(steps), MOST_ROWS))]
    cut = f' ({len(rows)} of {len(steps)} rows)' if len(rows) < len(steps) else ''
    return Table(f'{title}, mean over seeds{cut}', (step, *(label[name] for name in means)), rows)


def measure_charts(results: Mapping[str, Any], id: str, measures: Mapping[str, Mapping[str, Any]],
                   ) -> list[Chart]:
    """One chart for each line that a measure has (blocks, rows and columns), of all encodings.

    Args:
        results: of a study.
        id: of the measure.
        measures: encoding -> the measure of that name.
    """
    style, label = styles(results), labels(results)
    names = list(dict.fromkeys(series['label'] for measure in measures.values()
                               for series in measure.get('series') or []))
    charts = []
    for n, name in enumerate(names):
        found = {encoding: series for encoding, measure in measures.items()
                 for series in measure.get('series') or [] if series['label'] == name}
        measure = next(iter(measures.values()))
        lines = [Line(label[encoding], style[encoding], *_numbers(series))
                 for encoding, series in found.items()]
        chart = line_chart(
            f'measure-{id}-{n}', name or measure['title'], lines,
            Axis(measure.get('xlabel') or ''),
            Axis(measure.get('ylabel') or measure.get('unit') or '', lambda v: f'{v:.3g}'),
            table=_series_table(measure, name, found, label))
        charts += [chart] if chart else []
    return charts


def _numbers(series: Mapping[str, Any]) -> tuple[Sequence[float], Sequence[float]]:
    """x and y of a series; words along x are counted."""
    x = series['x']
    return (x if all(isinstance(at, (int, float)) for at in x) else range(len(x))), series['y']


def _series_table(measure: Mapping[str, Any], name: str, found: Mapping[str, Mapping[str, Any]],
                  label: Mapping[str, str]) -> Table:
    steps = list(dict.fromkeys(x for series in found.values() for x in series['x']))
    known = {encoding: dict(zip(series['x'], series['y'], strict=True))
             for encoding, series in found.items()}
    rows = [(Cell(f'{at:g}' if isinstance(at, (int, float)) else str(at), at), *(
        numbered(values.get(at), small) for values in known.values()))
        for at in (steps[n] for n in thinned(len(steps), MOST_ROWS))]
    caption = f'{measure["title"]}: {name}' if name else measure['title']
    return Table(caption, (measure.get('xlabel') or 'x', *(label[each] for each in found)), rows)
