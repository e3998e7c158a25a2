"""The page of a study, its tables, results.csv, and numbers as they are read."""
import base64
import copy
import csv
import io
import math
import re
import xml.etree.ElementTree as ET
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from helpers.made_up_studies import METRIC, drawn, encoding, run, study
from scipy import stats

from mmposenc.lab.compare.page import charts, report, tables
from mmposenc.lab.compare.page.report import write_report
from mmposenc.lab.compare.statistics import formats
from mmposenc.lab.compare.statistics.summary import with_summary

HOSTILE = '<script>window.hacked = 1</script> $x$'
GOLDEN = Path(__file__).parent / 'golden'


def full():
    """Everything that a page can hold."""
    names = ('none', 'peg', HOSTILE)
    values = drawn({name: {factor: 80. + 5 * n - 9 * abs(factor - 1) for factor in (.5, 1.0, 2.0)}
                    for n, name in enumerate(names)})
    results = study(values, encodings=[encoding('none'), encoding('peg', 61_000, 'PEG'),
                                       encoding(HOSTILE, 62_000)])
    results.runs.append(run('peg', 3, {}, status='diverged', note=f'loss is nan {HOSTILE}'))
    results.runs.append(run('peg', 4, {}, status='failed', note='broken'))
    return results


def one_of_each():
    """One encoding, one seed, one size."""
    return study({'peg': {1.0: [80.0]}})


def all_diverged():
    return study({'none': {1.0: [1.]}, 'peg': {1.0: [1.]}}, runs=[
        run(name, seed, {}, status='diverged', note='loss is inf')
        for name in ('none', 'peg') for seed in (0, 1)])


def waiting():
    """Nothing has run, and nothing is known of the costs."""
    bare = dict(name='none', label='none', changes={}, parameters=None, costs=[])
    return study({'none': {1.0: [1.]}}, encodings=[bare], runs=[
        run('none', 0, {}, status='waiting', train_seconds=None,
            train_cpu_seconds=None, peak_bytes=None)], environment={}, length={}, command='')


STUDIES = (full, one_of_each, all_diverged, waiting)


@pytest.fixture(scope='module')
def pages(tmp_path_factory):
    """Name of a study -> its report.html."""
    made = {}
    for build in STUDIES:
        folder = tmp_path_factory.mktemp(build.__name__)
        write_report(with_summary(build()), folder)
        made[build.__name__] = folder / 'report.html'
    return made


def test_what_was_not_tested_is_no_advice(tmp_path):
    results = with_summary(study(drawn({'none': {1.0: 80.}, 'peg': {1.0: 96.}}, std=.1)))
    before = copy.deepcopy(results)
    write_report(results, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {'results.csv', 'report.html'}
    assert results == before and 'Take peg' in (tmp_path / 'report.html').read_text()
    write_report(with_summary(study({'none': {1.0: [80.]}, 'peg': {1.0: [96.]}})), tmp_path)
    assert 'Take peg' not in (tmp_path / 'report.html').read_text()
    nothing = with_summary(study({'none': {1.0: [.1]}, 'peg': {1.0: [.4]}}))
    assert nothing.recommendation['encoding'] is None
    assert nothing.recommendation['reason'].endswith('0.4 %: nothing was learned.')


def as_text(table):
    """A table with a line a row; what is marked has a star before it."""
    rows = [[f'{"*" * (cell.mark == "best")}{cell.text}' for cell in row] for row in table.rows]
    return '\n'.join([table.caption, *map(' | '.join, [table.columns, *rows]), ''])


def test_every_number_of_the_csv_and_of_the_tables(pages):
    """Made by ``write_report`` of ``full()`` and by :func:`as_text`; whoever makes them anew looks
    at what changed."""
    assert pages['full'].with_name('results.csv').read_text() == (
        GOLDEN / 'results.csv').read_text()
    results = with_summary(full())
    shown = [tables.overview_table(results),
             *(tables.differences_table(results, size) for size in (.5, 1, 2)),
             tables.runs_table(results)]
    assert '\n'.join(map(as_text, shown)) == (GOLDEN / 'tables.txt').read_text()


def svgs_of(page):
    """The charts of a page, by their titles."""
    found = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]+)" alt="([^"]+)">', page)
    return {text.partition('. ')[0]: ET.fromstring(base64.b64decode(data)) for data, text in found}


def test_the_page_loads_nothing_and_runs_nothing(pages):
    page = pages['full'].read_text()
    assert '<script' not in page and page.count('&lt;script&gt;window.hacked') > 10
    assert 'src="http' not in page and 'href="http' not in page and '@import' not in page
    assert "default-src 'none'; img-src data:" in page
    drawings = svgs_of(page)
    assert list(drawings) == [
        'Every seed at the trained size', 'Top-1 accuracy over image size']
    for drawing in drawings.values():
        assert HOSTILE in ''.join(drawing.itertext())  # as text, neither a tag nor a formula
        assert not [each for each in drawing.iter() if each.tag.endswith('script')]
    assert [name for name, path in pages.items() if not svgs_of(path.read_text())] == [
        'all_diverged', 'waiting']


def test_charts_show_the_numbers_of_the_study(monkeypatch):
    shown, axes_of = [], charts._axes

    @contextmanager
    def kept(*args):
        with axes_of(*args) as axes:
            shown.append(axes)
            yield axes
    monkeypatch.setattr(charts, '_axes', kept)
    results = with_summary(study({'none': {1.0: [50., 60.], 2.0: [40., 40.]},
                                  'peg': {1.0: [70., 71., 72.], 2.0: [60., 61., 62.]}}))
    texts = {title: [chart.text for chart in found]
             for title, found in charts.all_charts(results).items()}
    seeds, sizes = shown
    dots = [line.get_xdata() for line in seeds.lines if line.get_marker() == 'o']
    assert [list(each) for each in dots] == [[70, 71, 72], [50, 60]]
    half = stats.t.isf(.025, 2) / math.sqrt(3)
    for box, means, wide in zip(sizes.containers, ([55, 40], [71, 61]), (None, half),
                                strict=True):
        line, _, (bars,) = box.lines
        assert line.get_ydata().tolist() == means
        np.testing.assert_allclose(line.get_xdata().astype(float), [0, 1], atol=.01)
        drawn = [ends[:, 1].tolist() for ends in bars.get_segments() if len(ends)]
        expected = [[mean - wide, mean + wide] for mean in means if wide]  # of two seeds none
        np.testing.assert_allclose(np.array(drawn, float), expected)
    assert texts['sizes'] == [
        'At 1×: peg: 71.0 (68.5 to 73.5); no encoding: 55.0 (0.0 to 100.0). '
        'At 2×: peg: 61.0 (58.5 to 63.5); no encoding: 40.0 (40.0 to 40.0)']


@pytest.mark.parametrize('value, metric, more, expected', [
    (96.84, METRIC, {}, '96.8'), (96.84, METRIC, dict(unit=True), '96.8 %'),
    (-1.25, METRIC, dict(sign=True), '−1.2'), (1.26, METRIC, dict(sign=True), '+1.3'),
    (.34567, METRIC._replace(unit=''), dict(unit=True), '0.346'), (None, METRIC, {}, '–'),
])
def test_values(value, metric, more, expected):
    assert formats.value_text(value, metric, **more) == expected


@pytest.mark.parametrize('words, values, expected', [
    (formats.count_text, (61450, 1.03e9, 12), ('61.45 k', '1.03 G', '12')),
    (formats.seconds_text, (.0083, 12.3, 250, 840, 7500), ('8.3 ms', '12.3 s', '250 s', '14 min',
                                                   '2 h 5 min')),
    (formats.size_text, (dict(factor=1.5, hw=[48, 32]), dict(factor=1.5, hw=None),
                         dict(factor='24x40', hw=[32, 64])),
     ('1.5 times (48 × 32)', '1.5 times', '24 × 40')),
    (formats.names_in_words, (['a'], ['a', 'b'], list('abcdefghi'), ['none', 'RoPE, axial', 'PEG']),
     ('a', 'a and b', 'a, b, c, d, e, f and 3 more', 'none; RoPE, axial; and PEG'))])
def test_numbers_as_people_read_them(words, values, expected):
    assert tuple(map(words, values)) == expected


def test_cells_that_a_spreadsheet_would_run_are_text_and_numbers_stay_numbers():
    """Of names, labels and notes alike."""
    starts = '=+-@\t\r\n'
    results = study({f'{start}1': {1.0: [-80.0]} for start in starts}, encodings=[
        encoding(f'{start}1', label=f'{start}cmd|x') for start in starts])
    for each in results.runs:
        each['note'] = f'{each["encoding"]}()'
    rows = list(csv.DictReader(io.StringIO(report.results_csv(results), newline='')))
    assert [(row['encoding'], row['label'], row['note']) for row in rows] == [
        (f"'{start}1", f"'{start}cmd|x", f"'{start}1()") for start in starts.replace('\r', '\n')]
    assert {row['value'] for row in rows} == {'-80.0'}


def test_where_nothing_has_run_rows_are_empty():
    results = study({'none': {1.0: [80.]}}, runs=[run('none', 0, {}, status='waiting')])
    row, = tables.overview_table(with_summary(results)).rows
    assert [cell.text for cell in row[:3]] == ['no encoding', '–', '0']
    assert len(report.results_csv(results).splitlines()) == 2
