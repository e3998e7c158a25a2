"""The charts of a study: accuracy over size and against cost, and learning curves."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean

from ..statistics import formats, summary
from ..statistics.differences import LEAST_RUNS, TRAINED
from ..statistics.formats import Results
from ..study.files import Record
from .charts import (
    RIGHT,
    WIDTH,
    Axis,
    Chart,
    Line,
    Style,
    axis_scale,
    line_chart,
    placed_ticks,
    y_range,
)
from .tables import Cell, Table, costs_by_kind, number_cell

#: A longer curve is thinned, to between this many points and twice as many.
POINTS = 100


def styles(results: Results) -> dict[str, Style]:
    """For each encoding, how it is drawn: by its place in the study."""
    return {each['name']: Style(n) for n, each in enumerate(results['encodings'])}


def metric_axis(results: Results) -> Axis:
    """The axis of the metric; shares stay within their possible range."""
    metric = results['metric']
    percent = metric['unit'] == '%'
    known = [row['mean'] for row in results['summary'] if row['mean'] is not None]
    label = f'{metric["label"]}, {metric["unit"]}' if metric['unit'] else metric['label']
    return Axis(formats.capitalized_unless_name(label),
                lambda value: formats.value_text(value, metric),
                tick='{:.6g}'.format, limits=(
                    0 if all(mean >= 0 for mean in known) else -math.inf,
                    100 if percent else math.inf))


def interval_ends(rows: Sequence[Results]
                  ) -> tuple[list[float | None], list[float | None]]:
    """The ends of intervals that a chart can show. An interval of two seeds is 18 standard
    deviations long and would hide everything else."""
    known = [row if row['n'] >= LEAST_RUNS else dict(low=None, high=None) for row in rows]
    return [row['low'] for row in known], [row['high'] for row in known]


def dot_chart_layout(results: Results) -> Record | None:
    """A chart with every seed's value at the trained size, the mean and its interval: one row for
    each encoding, the best mean first. None if no run has finished."""
    label, style = summary.label_of_each_encoding(results), styles(results)
    axis = metric_axis(results)
    values, at_trained = summary.values_at(results, TRAINED), summary.summary_at(results, TRAINED)
    left, row_height = 164, 20
    lines = {each: Line(label[each], style[each], (), list(values[each].values()),
                        *interval_ends([row]))
             for each, row in at_trained.items() if values[each]}
    if not lines:
        return None
    across = axis_scale(axis, *y_range(list(lines.values()), axis), left, WIDTH - RIGHT)
    rows = [dict(
        label=line.label if len(line.label) <= 20 else f'{line.label[:19]}…', whole=line.label,
        style=line.style, y=24 + row_height * n, mean=across(at_trained[each]['mean']),
        dots=[dict(x=across(value), text=f'{line.label}, seed {seed}: {axis.text(value)}')
              for seed, value in values[each].items()],
        bar=[min(max(across(end), left), WIDTH - RIGHT) for end in (*line.low, *line.high)
             if end is not None])
        for n, (each, line) in enumerate(lines.items())]
    return dict(rows=rows, left=left, axis=axis.label, bottom=24 + row_height * len(rows),
                ticks=placed_ticks(axis, across),
                text='; '.join(f'{line.label}: {", ".join(map(axis.text, line.y))}'
                               for line in list(lines.values())[:12]))


def retention_chart(results: Results) -> Chart | None:
    """A chart of the share of its value at the trained size that each run keeps, over the image
    size; None if there is only one size."""
    trained, shares_kept = summary.values_at(results, TRAINED), []
    for factor in summary.size_factors(results):
        for name, seeds in summary.values_at(results, factor).items():
            shares = [value / trained[name][seed] for seed, value in seeds.items()
                      if trained[name].get(seed, 0) > 0]
            shares_kept.append(dict(encoding=name, factor=factor, **summary.mean_row(shares)))
    metric = dict(name='retention', label="share of the trained size's value", unit='')
    return size_chart({**results, 'summary': shares_kept, 'metric': metric}, 'retention')


def size_chart(results: Results, id: str = 'over-size') -> Chart | None:
    """A chart of the metric over the image size; None if there is only one size."""
    sizes = summary.size_factors(results)
    if len(sizes) < 2:
        return None
    style, label = styles(results), summary.label_of_each_encoding(results)
    by_name: dict[str, list[Results]] = {each: [] for each in style}
    for row in sorted(results['summary'], key=lambda row: row['factor']):
        by_name[row['encoding']].append(row)
    lines = [Line(label[each], style[each], [row['factor'] for row in rows],
                  [row['mean'] for row in rows], *interval_ends(rows)) for each,
             rows in by_name.items()]
    x = Axis('image size, as a multiple of the trained one', lambda value: f'{value:g}×',
             ticks=sizes)
    metric = results['metric']
    title = formats.capitalized_unless_name(f'{metric["label"]} over image size')
    heads = ('Encoding', *(f'{each:g}×' for each in sizes))
    table = Table(f'{title}: mean (95% interval)', heads, [
        (Cell(label[each]),
         *(number_cell(row['mean'], formats.interval_text(row, metric)) for row in rows))
        for each, rows in by_name.items()])
    return line_chart(id, title, lines, x, metric_axis(results), dodge=True, table=table,
                      note='Bars are 95% intervals of the mean over 3 or more seeds; long ones are '
                      'cut at the edge of the chart.')


def cost_charts(results: Results) -> list[Chart]:
    """Charts of the metric at the trained size against each cost that is known."""
    # Four digits, because encodings may differ in the third.
    large, small = partial(formats.count_text, digits=4), '{:.4g}'.format
    kinds = (('parameters', 'parameters', large),
             ('macs', 'multiply-accumulates an image', large),
             ('seconds', 'seconds an image', formats.seconds_text),
             ('mebibytes', 'peak memory of inference, MiB', small),
             ('train_seconds', 'CPU time of a training', formats.seconds_text),
             ('train_mebibytes', 'peak memory of a training, MiB', small))
    costs = costs_by_kind(results)
    charts = [_cost_chart(results, kind, label, text, costs[kind]) for kind, label, text in kinds]
    return [chart for chart in charts if chart is not None]


def _cost_chart(results: Results, kind: str, label: str, text: Callable[[float], str],
                known: Mapping[str, float | None]) -> Chart | None:
    at_trained = summary.summary_at(results, TRAINED)
    style, labeled = styles(results), summary.label_of_each_encoding(results)
    lines = [Line(labeled[each], style[each], [value], [at_trained[each]['mean']],
                  *interval_ends([at_trained[each]])) for each,
             value in known.items() if value is not None]
    values = [value for value in known.values() if value]
    axis = Axis(label, text, logarithmic=bool(values) and max(values) > 20 * min(values))
    return line_chart(f'cost-{kind}', f'Against {label}', lines, axis, metric_axis(results))


def curve_charts(results: Results) -> list[Chart]:
    """Charts of the training loss, and of the metric of validation, over epochs or iterations."""
    metric = results['metric']
    title = formats.capitalized_unless_name(f'{metric["label"]} in validation')
    charts = [_curve_chart(results, 'loss', 'Loss in training', Axis('loss', '{:.3g}'.format)),
              _curve_chart(results, 'metric', title, metric_axis(results))]
    return [chart for chart in charts if chart is not None]


def _curve_chart(results: Results, key: str, title: str, y: Axis) -> Chart | None:
    style, label = styles(results), summary.label_of_each_encoding(results)
    finished = [run for run in results['runs'] if run['status'] == 'finished']
    step = 'iteration' if any('iteration' in point for run in finished for point in run['curve']
                              ) else 'epoch'
    values: dict[str, dict[float, list[float]]] = {name: {} for name in style}
    for run in finished:
        for point in run['curve']:
            if point[key] is not None:
                values[run['encoding']].setdefault(point[step], []).append(point[key])
    steps = sorted({at for points in values.values() for at in points})
    stride = max(1, len(steps) // POINTS)
    shown = [at for number, at in enumerate(steps, 1) if number % stride == 0 or at == steps[-1]]
    lines = []
    for name, points in values.items():
        seen = [at for at in shown if at in points]
        several = any(len(points[at]) > 1 for at in seen)
        lines.append(Line(label[name], style[name], seen, [fmean(points[at]) for at in seen],
                          [min(points[at]) for at in seen] if several else (),
                          [max(points[at]) for at in seen] if several else (),
                          markers=len(seen) <= 12))
    table = Table(f'{title}, mean over seeds', (step, *label.values()), [
        (Cell(f'{at:g}', at), *(number_cell(fmean(points[at]) if at in points else None, y.text)
                                for points in values.values())) for at in shown])
    return line_chart(f'curve-{key}', title, lines, Axis(step), y, bands=True, table=table,
                      note='Lines are means over the finished seeds, areas reach from the least to '
                      'the greatest of them.')
