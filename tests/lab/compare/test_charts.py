"""Charts: where points lie, what they say, and colours that can be told apart."""
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from helpers.made_up_studies import encoding, run, study

from mmposenc.lab.compare.page import charts, study_charts
from mmposenc.lab.compare.page.charts import Axis, Line, Style, line_chart
from mmposenc.lab.compare.statistics.summary import with_summary

GOLDEN = Path(__file__).parent / 'golden' / 'charts.txt'
#: Machado et al. 2009, severity 1, on linear RGB.
VISION = dict(
    all=np.eye(3),
    protan=np.array([[.152286, 1.052583, -.204868], [.114503, .786281, .099216],
                     [-.003882, -.048116, 1.051998]]),
    deutan=np.array([[.367322, .860646, -.227968], [.280085, .672501, .047413],
                     [-.011820, .042940, .968881]]),
    tritan=np.array([[1.255528, -.076749, -.178779], [-.078411, .930809, .147602],
                     [.004733, .691367, .303900]]))


def linear(color):
    parts = np.array([int(color[i:i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= .04045, parts / 12.92, ((parts + .055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = np.array([[.4124, .3576, .1805], [.2126, .7152, .0722], [.0193, .1192, .9505]]) @ rgb
    f = [x ** (1 / 3) if x > .008856 else 7.787 * x + 16 / 116 for x in xyz / (.9505, 1, 1.089)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize('theme, card', [(0, '#ffffff'), (1, '#1b1e24')])
def test_colors_are_told_apart_and_stand_out_of_the_card(theme, card):
    """CIE76 distances: 2.3 is just noticed; a dozen is another colour at a glance. WCAG 2.2 asks
    for a contrast of 3 of what is no text."""
    colors = [pair[theme] for pair in charts.COLORS]
    for vision in VISION.values():
        seen = [lab(np.clip(vision @ linear(color), 0, 1)) for color in colors]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 25
    for color in colors:
        ratio = np.divide(*(linear(each) @ (.2126, .7152, .0722) + .05 for each in (color, card)))
        assert max(ratio, 1 / ratio) >= 3


def test_sixty_four_encodings_differ_in_more_than_dashes():
    assert len({(Style(n).color, Style(n).marker) for n in range(64)}) == 64
    assert len({(Style(n).color, Style(n).dash) for n in range(32)}) == 32


def test_points_lie_where_their_numbers_are():
    chart = line_chart('a', 'A', [Line('one', Style(0), [1, 2, 3], [10, 20, 40], [5, 15, 35],
                                       [15, 25, 45])], Axis('x'), Axis('y'))
    marks = chart.lines[0]['marks']
    xs, ys = [m['x'] for m in marks], [m['y'] for m in marks]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=.11)
    assert (ys[1] - ys[2]) == pytest.approx(2 * (ys[0] - ys[1]), abs=.2)
    # Ticks are on the same scale as points.
    at = {tick.text: tick.at for tick in chart.yticks}
    assert at['20'] == ys[1] and at['40'] == ys[2]
    assert marks[0]['bar'][0] > ys[0] > marks[0]['bar'][1]
    assert marks[0]['text'] == 'one: 10 (5 to 15) at 1'
    assert all(charts.LEFT <= x <= charts.WIDTH - charts.RIGHT for x in xs)
    assert all(charts.TOP <= y <= charts.HEIGHT - charts.BOTTOM for y in ys)


@pytest.mark.parametrize('values, shown', [
    ([math.nan, None, 5.0], 1), ([math.inf, 2.0], 1), ([5.0, 5.0], 2), ([0.0], 1), ([-3.0], 1)])
def test_what_is_no_number_is_left_out_and_values_without_extent_have_a_scale(values, shown):
    line = Line('one', Style(0), list(range(len(values))), values)
    chart = line_chart('a', 'A', [line], Axis('x'), Axis('y'))
    marks, = (each['marks'] for each in chart.lines)
    assert len(marks) == shown and all(math.isfinite(mark['y']) for mark in marks)
    assert len(chart.yticks) >= 2
    assert line_chart('a', 'A', [Line('one', Style(0), [1], [None])], Axis('x'), Axis('y')) is None


def test_words_of_ticks_do_not_run_into_each_other():
    """Sizes that lie close together have words only where there is room."""
    axis = Axis('x', '{:.2f} times'.format, ticks=(1, 1.05, 1.1, 1.5, 2))
    chart = line_chart('a', 'A', [Line('one', Style(0), axis.ticks, [1] * 5)], axis, Axis('y'))
    assert [tick.text[:4] for tick in chart.xticks] == ['1.00', '', '', '1.50', '2.00']


def test_long_trainings_have_about_a_hundred_points_and_the_last():
    results = study({'none': {1.0: [1.]}})
    results['runs'][0]['curve'] = [dict(epoch=n, loss=1 / n, metric=None) for n in range(1, 353)]
    chart, = study_charts.curve_charts(with_summary(results))
    epochs = [int(row[0].text) for row in chart.table.rows]
    assert epochs == [*range(3, 352, 3), 352] and len(chart.lines[0]['marks']) == len(epochs)


def lines_of_all_kinds():
    """Charts whose scales, ticks and bars are not the usual ones."""
    one, two, x, y = Style(0), Style(1), Axis('x'), Axis('y')
    percent = Axis('y', lambda value: f'{value:.3g}', limits=(0, 100))
    yield line_chart('a', 'Logarithmic', [
        Line('one', one, [10, 1000, 0], [1, 2, 3]), Line('two', two, [100], [1])],
        Axis('x', logarithmic=True), y)
    yield line_chart('a', 'Ticks that would read the same', [
        Line('one', one, [1.0738e6, 1.08e6], [80.01, 80.04])],
        Axis('x', lambda value: f'{value / 1e6:.3g} M'), percent)
    yield line_chart('a', 'Endless intervals', [
        Line('one', one, [1, 2], [90, 95], [-500, 94], [680, 96])], x, percent)
    yield line_chart('a', 'Bars that share an x', [
        Line(str(n), Style(n), [1, 2], [5, 6], [4, 5], [6, 7]) for n in range(5)], x, y, dodge=True)


def charts_of_a_study():
    """Of two seeds and three, of costs that are not all known, of a run that diverged."""
    encodings = [encoding('none', 10, macs=None), encoding('peg', 5000, macs=None)]
    encodings[1]['costs'] = [dict(factor=1.0, seconds=None, macs=None, peak_bytes=2 ** 20)]
    results = study({'none': {.5: [50., 60.], 1.0: [50., 60.]},
                     'peg': {.5: [1.] * 3, 1.0: [1., 2., 3.]}}, encodings=encodings)
    results['runs'].append(run('none', 3, {}, status='diverged'))
    for each in results['runs']:
        lost = each['status'] == 'diverged'
        each.update(train_cpu_seconds=None, peak_bytes=None, curve=[
            dict(iteration=10, loss=7. + each['seed'], metric=None),
            dict(iteration=20, loss=math.nan if lost else 5., metric=50.)])
    told = with_summary(results)
    return [study_charts.size_chart(told), study_charts.retention_chart(told),
            *study_charts.cost_charts(told), *study_charts.curve_charts(told)]


def as_text(chart):
    """Ticks, marks and table of a chart, a line each."""
    rows = [chart.text, *(f'{tick.at} {tick.text}' for tick in chart.xticks + chart.yticks)]
    for line in chart.lines:
        rows.append(f'{line["label"]}, {line["style"]}, {line["band"] or "no band"}')
        rows += map(str, line['marks'])
    rows += [' | '.join(cell.text for cell in row) for row in getattr(chart.table, 'rows', [])]
    return '\n'.join(rows) + '\n'


def test_every_mark_of_charts():
    """Whoever makes the file anew looks at what changed."""
    charts = [*lines_of_all_kinds(), *charts_of_a_study()]
    assert '\n'.join(map(as_text, charts)) == GOLDEN.read_text()


def test_one_size_has_no_chart_of_sizes():
    told = with_summary(study({'none': {1.0: [50.0]}}))
    assert study_charts.size_chart(told) is study_charts.retention_chart(told) is None
