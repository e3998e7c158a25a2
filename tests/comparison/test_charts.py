"""Charts: where points lie, what they say, and colours that can be told apart."""
import csv
import io
import itertools
import math

import numpy as np
import pytest
from madeup_studies import drawn, encoding, run, study

from mmposenc.lab.compare.page import charts, study_charts
from mmposenc.lab.compare.page.charts import Axis, Line, Style, line_chart
from mmposenc.lab.compare.page.exports import results_csv
from mmposenc.lab.compare.statistics.summary import summarize

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
    at = {tick['text']: tick['at'] for tick in chart.yticks}
    assert at['20'] == ys[1] and at['40'] == ys[2]
    assert marks[0]['bar'][0] > ys[0] > marks[0]['bar'][1]
    assert marks[0]['text'] == 'one: 10 (5 to 15) at 1'
    assert all(charts.LEFT <= x <= charts.WIDTH - charts.RIGHT for x in xs)
    assert all(charts.TOP <= y <= charts.HEIGHT - charts.BOTTOM for y in ys)


def test_logarithmic_axis():
    chart = line_chart('a', 'A', [Line('one', Style(0), [10, 1000, 0], [1, 2, 3]),
                                  Line('two', Style(1), [100], [1])],
                       Axis('x', logarithmic=True), Axis('y'))
    (low, high), (middle,) = ([m['x'] for m in line['marks']] for line in chart.lines)
    assert middle == pytest.approx((low + high) / 2, abs=.11)
    assert [tick['text'] for tick in chart.xticks] == ['10', '100', '1000']


def test_ticks_read_differently_and_stay_in_the_picture():
    chart = line_chart('a', 'A', [Line('one', Style(0), [1.0738e6, 1.08e6], [1.8001, 1.8004])],
                       Axis('x', lambda value: f'{value / 1e6:.3g} M'),
                       Axis('y', lambda value: f'{value:.3g}'))
    for ticks in (chart.xticks, chart.yticks):
        words = [tick['text'] for tick in ticks]
        assert len(set(words)) == len(words) > 1
    last = chart.xticks[-1]
    assert last['middle'] + charts.LETTER * len(last['text']) / 2 <= charts.WIDTH


@pytest.mark.parametrize('values, shown', [
    ([math.nan, None, 5.0], 1), ([math.inf, 2.0], 1), ([5.0, 5.0], 2), ([0.0], 1), ([-3.0], 1)])
def test_what_is_no_number_is_left_out_and_values_without_extent_have_a_scale(values, shown):
    line = Line('one', Style(0), list(range(len(values))), values)
    chart = line_chart('a', 'A', [line], Axis('x'), Axis('y'))
    marks, = (each['marks'] for each in chart.lines)
    assert len(marks) == shown and all(math.isfinite(mark['y']) for mark in marks)
    assert len(chart.yticks) >= 2
    assert line_chart('a', 'A', [Line('one', Style(0), [1], [None])], Axis('x'), Axis('y')) is None


def test_scale_follows_points_and_not_endless_intervals_or_lost_runs():
    lines = [Line('one', Style(0), [1, 2], [90, 95], [-500, 94], [680, 96]),
             Line('lost', Style(1), [1, 2], [90, 1e9], lost=True)]
    low, high = charts.extent(lines[:1], Axis('y', limits=(0, 100)))
    assert 80 < low < 90 and high == 100
    chart = line_chart('a', 'A', lines, Axis('x'), Axis('y'))
    assert abs(chart.lines[0]['marks'][0]['y'] - chart.lines[0]['marks'][1]['y']) > 30


def test_bars_that_share_an_x_are_apart():
    lines = [Line(str(n), Style(n), [1, 2], [5, 6], [4, 5], [6, 7]) for n in range(5)]
    chart = line_chart('a', 'A', lines, Axis('x'), Axis('y'), dodge=True)
    first = [line['marks'][0]['x'] for line in chart.lines]
    assert np.diff(first) == pytest.approx([charts.DODGE / 4] * 4, abs=.11)


def test_thinning_keeps_both_ends():
    assert charts.thinned(3) == [0, 1, 2]
    kept = charts.thinned(10_001)
    assert len(kept) == 200 and (kept[0], kept[-1]) == (0, 10_000) and kept == sorted(set(kept))


def test_charts_of_a_study_have_bars_from_three_seeds_on():
    values = {'none': {.5: [50., 60.], 1.0: [50., 60.]}, 'peg': {.5: [1.] * 3, 1.0: [1., 2., 3.]}}
    told = summarize(study(values))
    for chart in (study_charts.size_chart(told), study_charts.cost_charts(told)[0]):
        two, three = chart.lines
        assert all(mark['bar'] is None for mark in two['marks'])
        assert all(mark['bar'] for mark in three['marks'])
    first = [line['marks'][0]['text'] for line in study_charts.size_chart(told).lines]
    assert first[0].startswith('none: 55.0') and first[1].startswith('peg: 1.0')
    assert study_charts.size_chart(summarize(study({'none': {1.0: [1.]}}))) is None


def test_cost_charts_are_of_what_is_known():
    encodings = [encoding('none', 10, macs=None), encoding('peg', 5000, macs=None)]
    for each in encodings:
        each['costs'] = [dict(factor=1.0, seconds=None, macs=None, peak_bytes=2 ** 20)]
    told = summarize(study(drawn({'none': {1.0: 80.}, 'peg': {1.0: 90.}}), encodings=encodings))
    for each in told['runs']:
        each.update(train_cpu_seconds=None, peak_bytes=None)
    found = study_charts.cost_charts(told)
    assert [chart.title for chart in found] == ['Against parameters',
                                                'Against peak memory of inference, MiB']
    assert found[0].x.logarithmic and not found[1].x.logarithmic
    assert [cell.text for cell in found[1].table.rows[0]][2] == '1'


def test_curves_are_means_and_what_diverged_is_a_line_of_its_own():
    runs = [run('none', seed, {1.0: 80.}, curve=[
        dict(iteration=n, loss=n + seed, metric=None) for n in (10, 20)]) for seed in (0, 2)]
    runs.append(run('none', 3, {}, status='diverged', curve=[
        dict(iteration=10, loss=7., metric=None), dict(iteration=20, loss=math.nan, metric=None)]))
    loss, = study_charts.curve_charts(summarize(study({'none': {1.0: [80.]}}, runs=runs)))
    mean, lost = loss.lines
    assert [mark['text'] for mark in mean['marks']] == ['none: 11 (10 to 12) at 10',
                                                       'none: 21 (20 to 22) at 20']
    assert mean['band'] and lost['lost'] and lost['label'] == 'none, seed 3, diverged'
    assert len(lost['marks']) == 1 and loss.x.label == 'iteration'


def test_what_is_kept_of_the_trained_sizes_value() -> None:
    results = summarize(study({
        'none': {1.0: [50.0, 40.0], 4.0: [25.0, 10.0]},
        'peg': {1.0: [80.0, 0.0], 4.0: [88.0, 1.0]}}))
    chart = study_charts.retention_chart(results)
    rows = [[cell.text for cell in row] for row in chart.table.rows]
    assert rows[0][1].startswith('1.000 ') and rows[0][2].startswith('0.375 ')
    assert rows[1] == ['peg', '1.000', '1.100']
    found = list(csv.DictReader(io.StringIO(results_csv(results))))
    assert [row['retention'] for row in found] == [
        '1.0', '0.5', '1.0', '0.25', '1.0', '1.1', '', '']
    assert study_charts.retention_chart(summarize(study({'none': {1.0: [50.0]}}))) is None
