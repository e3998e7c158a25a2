"""CSV, Markdown and the rows of tables."""
import csv
import io

import pytest
from madeup_studies import METRIC, encoding, run, study

from mmposenc.lab.compare.page import exports, tables
from mmposenc.lab.compare.statistics.formats import (
    count_text,
    names_in_words,
    p_text,
    seconds_text,
    size_text,
    value_text,
)
from mmposenc.lab.compare.statistics.summary import summarize

VALUES = {'none': {1.0: [80.0, 82.0, 81.0], 2.0: [60.0, 61.0, 62.0]},
          'peg': {1.0: [95.0, 96.5, 96.5], 2.0: [30.0, 31.5, 33.0]}}


def told(**more):
    return summarize(study(VALUES, **more))


def texts(table):
    return [[cell.text for cell in row] for row in table.rows]


@pytest.mark.parametrize('value, metric, more, expected', [
    (96.84, METRIC, {}, '96.8'), (96.84, METRIC, dict(unit=True), '96.8 %'),
    (-1.25, METRIC, dict(sign=True), '−1.2'), (1.26, METRIC, dict(sign=True), '+1.3'),
    (.34567, {**METRIC, 'unit': ''}, dict(unit=True), '0.346'), (None, METRIC, {}, '–'),
])
def test_values(value, metric, more, expected):
    assert value_text(value, metric, **more) == expected


@pytest.mark.parametrize('format, values, expected', [
    (p_text, (None, .0002, .0123, .84, 1.), ('–', '<\xa0.001', '.012', '.84', '1.00')),
    (count_text, (None, 61450, 1.03e9, 12), ('–', '61.5 k', '1.03 G', '12')),
    (seconds_text, (.0083, 12.3, 250, 840, 7500), ('8.3 ms', '12.3 s', '250 s', '14 min',
                                                   '2 h 5 min')),
    (size_text, (dict(factor=1.5, hw=[48, 32]), dict(factor=1.5, hw=None)),
     ('1.5 times (48 × 32)', '1.5 times')),
    (names_in_words, (['a'], ['a', 'b'], list('abcdefghi'), ['none', 'RoPE, axial', 'PEG']),
     ('a', 'a and b', 'a, b, c, d, e, f and 3 more', 'none; RoPE, axial; and PEG'))])
def test_numbers_as_people_read_them(format, values, expected):
    assert tuple(map(format, values)) == expected


def test_overview():
    table = tables.overview(told())
    # Student's t of two degrees of freedom is 4.303, and the first error 1 / sqrt(3).
    assert [row[:5] for row in texts(table)] == [
        ['none', '81.0 ± 2.5', '61.0 ± 2.5', '3', '60,000'],
        ['peg', '96.0 ± 2.2', '31.5 ± 3.7', '3', '60,000']]
    assert [[cell.mark for cell in row[1:3]] for row in table.rows] == [['', 'best'], ['best', '']]
    assert table.rows[0][1].sort == 81.0


def test_differences():
    table = tables.differences(told(), 1.0)
    assert 'the trained size' in table.caption
    assert len(table.columns) == len(table.rows[0]) == 10
    assert texts(table)[0] == ['none', '81.0 (1.0)', '–', '–', '–', 'the base',
                               '−15.0 (−17.1 to −12.9)', '3', '<\xa0.001', 'worse']
    assert texts(table)[1] == ['peg', '96.0 (0.9)', '+15.0 (+12.9 to +17.1)', '3', '<\xa0.001',
                               'better', '–', '–', '–', 'the best']
    # Where the base is the best there is nothing else to compare with.
    assert len(tables.differences(told(), 2.0).columns) == 6


def test_parts_are_means_of_finished_runs():
    results = study(VALUES)
    for each in results['runs']:
        each['tests'][0].update(by_class={'cat': 10.0 + each['seed'], 'dog': None},
                                by_size={'small': .5} if each['encoding'] == 'peg' else {})
    results['runs'][0]['status'] = 'diverged'
    table = tables.parts(summarize(results), 'by_class', 'Class')
    assert table.columns == ('Class', 'none', 'peg', 'Range')
    assert texts(table) == [['cat', '11.5', '11.0', '0.5'], ['dog', '–', '–', '–']]
    assert [cell.mark for cell in table.rows[0]] == ['', 'best', '', '']
    sizes = tables.parts(summarize(results), 'by_size', 'Object size')
    assert texts(sizes) == [['small', '–', '0.5', '0.0']]
    assert sizes.rows[0][2].mark == ''  # nothing is best of one
    assert tables.parts(told(), 'by_class', 'Class') is None


def test_csv_has_a_row_for_each_run_and_size():
    results = study(VALUES)
    results['runs'][0].update(status='failed', tests=[], note='a "note",\nof two lines')
    results['runs'][1]['tests'][0]['by_size'] = dict(small=.25)
    rows = list(csv.DictReader(io.StringIO(exports.results_csv(results))))
    assert len(rows) == 1 + 5 * 2
    assert rows[0]['note'] == 'a "note",\nof two lines'
    assert rows[0]['value'] == rows[0]['factor'] == ''
    assert rows[1]['value_small'] == '0.25' and rows[2]['value_small'] == ''
    expected = dict(encoding='peg', seed='2', status='finished', factor='2.0', height='64',
                    value='33.0', macs='4000000.0', parameters='60000', metric='accuracy/top1')
    assert {key: rows[-1][key] for key in expected} == expected
    assert list(rows[0])[:len(exports.CSV_COLUMNS)] == list(exports.CSV_COLUMNS)


def test_cells_that_a_spreadsheet_would_run_are_text_and_numbers_stay_numbers():
    """Of names, labels and notes alike."""
    starts = '=+-@\t\r\n'
    results = study({f'{start}1': {1.0: [-80.0]} for start in starts}, encodings=[
        encoding(f'{start}1', label=f'{start}cmd|x') for start in starts])
    for each in results['runs']:
        each['note'] = f'{each["encoding"]}()'
    rows = list(csv.DictReader(io.StringIO(exports.results_csv(results), newline='')))
    assert [(row['encoding'], row['label'], row['note']) for row in rows] == [
        (f"'{start}1", f"'{start}cmd|x", f"'{start}1()") for start in starts.replace('\r', '\n')]
    assert {row['value'] for row in rows} == {'-80.0'}


def test_markdown_goes_into_a_page_as_it_is():
    table = tables.Table('A *caption*', ('Name', 'x|y'), [
        (tables.Cell('<b>`a`|b\nc'), tables.number(1.0, '1.0', 'best'))])
    assert exports.markdown(table) == ('A \\*caption\\*:\n\n| Name | x\\|y |\n| --- | ---: |\n'
                                      '| \\<b\\>\\`a\\`\\|b c | **1.0** |\n')


def test_markdown_of_a_study_and_of_nothing():
    text = exports.results_md(told(encodings=[
        encoding('none'), encoding('peg', label='PEG | <i>')]))
    lines = [line for line in text.splitlines() if line.startswith('|')]
    # Overview, two sizes and the runs: heads and rules, and a row for each.
    assert len(lines) == 3 * (2 + 2) + 2 + 6
    results = study({'none': {1.0: [80.]}}, runs=[run('none', 0, {}, status='waiting')])
    assert '| none | – | 0 |' in exports.results_md(summarize(results))
    assert len(exports.results_csv(results).splitlines()) == 2
