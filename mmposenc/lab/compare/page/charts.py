"""The charts of a study's page, drawn by matplotlib: seeds and sizes."""
from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from mmposenc.config_types import ImageSize

from ..statistics import formats
from ..statistics.differences import LEAST_RUNS, TRAINED
from ..statistics.results import Results, Row
from ..study.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = 'os^DvP*X'
#: Text stays text, which a reader can search; names of encodings are no formulas; and the same
#: numbers give the same file.
_STYLE = {'svg.fonttype': 'none', 'svg.hashsalt': 'mmposenc', 'text.parse_math': False,
          'font.size': 8, 'axes.spines.top': False, 'axes.spines.right': False,
          'axes.grid': True, 'grid.alpha': 0.3}


class Chart(NamedTuple):
    """A chart: its title, the address of its picture, what a screen reader says of it, and a line
    below it. Its numbers are in the tables of the page."""

    title: str
    address: str
    text: str
    note: str = ''


@contextmanager
def _axes(width: float, height: float, addresses: list[str], legend: int = 0) -> Iterator[Axes]:
    """An empty coordinate system; what the block draws becomes an address in the list. It is high
    enough for a legend beside it with so many lines."""
    import matplotlib
    from matplotlib.figure import Figure
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, max(height, 0.5 + 0.15 * legend)), layout='constrained')
        axes = figure.add_subplot()
        yield axes
        if legend:
            axes.legend(loc='upper left', bbox_to_anchor=(1, 1), frameon=False, fontsize=7)
        file = io.BytesIO()
        figure.savefig(file, format='svg', metadata={'Date': None, 'Creator': None})
    addresses.append(f'data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}')


def _styles_by_encoding(results: Results) -> dict[str, Record]:
    """For each encoding, how every chart draws it: by its place in the study."""
    return {each['name']: dict(color=f'C{index % 10}', markersize=5,
                               marker=_MARKERS[(index + index // 10) % len(_MARKERS)],
                               label=each['label'][:40] + '…' * (len(each['label']) > 40))
            for index, each in enumerate(results.encodings)}


def _error_bars(rows: Sequence[Row]) -> list[list[float]]:
    """How far the intervals of means reach below and above them. An interval of two seeds is 18
    standard deviations long and would hide everything else."""
    shown = [row if row['n'] >= LEAST_RUNS else dict(mean=0.0, low=math.nan, high=math.nan)
             for row in rows]
    return [[row['mean'] - row['low'] for row in shown],
            [row['high'] - row['mean'] for row in shown]]


def _in_words(results: Results, at: ImageSize) -> str:
    label = results.label
    return '; '.join(f'{label[name]}: {formats.interval_text(row, results.metric)}' for name, row
                     in list(results.summary_at(at).items())[:12])


def all_charts(results: Results) -> dict[str, list[Chart]]:
    """The charts of each section of the page: 'results' and 'sizes'. A section of which nothing is
    known has none."""
    return dict(results=_seed_charts(results), sizes=_size_charts(results))


def _seed_charts(results: Results) -> list[Chart]:
    """Every seed's value at the trained size, the mean and its interval: a row an encoding, the
    best mean first."""
    values, looks = results.values_at(TRAINED), _styles_by_encoding(results)
    rows = {name: row for name, row in results.summary_at(TRAINED).items() if values[name]}
    if not rows:
        return []
    addresses: list[str] = []
    with _axes(6, 0.8 + 0.22 * len(rows), addresses) as axes:
        for at, (name, row) in enumerate(rows.items()):
            color = looks[name]['color']
            axes.plot(list(values[name].values()), [at] * len(values[name]), 'o', color=color,
                      alpha=0.5, markersize=4)
            axes.errorbar([row['mean']], [at], xerr=_error_bars([row]), color=color, marker='|',
                          markersize=9, capsize=2)
        axes.set_yticks(range(len(rows)), [looks[name]['label'] for name in rows])
        axes.invert_yaxis()
        axes.set_xlabel(formats.metric_text(results.metric))
    return [Chart('Every seed at the trained size', addresses[0], _in_words(results, TRAINED),
                  'A dot is a run, the stroke the mean, the bar its 95% interval (3 seeds or '
                  'more).')]


def _size_charts(results: Results) -> list[Chart]:
    """The metric over the image size, if there are several."""
    sizes, looks = results.tested_sizes, _styles_by_encoding(results)
    by_size = [results.summary_at(at) for at in sizes]
    if len(sizes) < 2:
        return []
    addresses: list[str] = []
    with _axes(7, 3.6, addresses, len(looks)) as axes:
        for index, (name, look) in enumerate(looks.items()):
            known = [place for place, each in enumerate(by_size) if each[name]['n']]
            rows = [by_size[place][name] for place in known]
            # Bars at the same size lie side by side.
            moved = [place + 0.015 * (index / len(looks) - 0.5) for place in known]
            axes.errorbar(moved, [row['mean'] for row in rows], yerr=_error_bars(rows),
                          elinewidth=0.8, **look)
        axes.set_xticks(range(len(sizes)), [formats.size_head(at) for at in sizes])
        axes.set(xlabel="image size: multiples of the test's, or height × width",
                 ylabel=formats.metric_text(results.metric))
    text = '. '.join(f'At {formats.size_head(at)}: {_in_words(results, at)}' for at in sizes)
    metric = formats.capitalized_unless_name(results.metric.label)
    return [Chart(f'{metric} over image size', addresses[0], text,
                  'Bars are 95% intervals of the mean over 3 or more seeds. All numbers are in the '
                  'tables of the results.')]
