"""Numbers as they are read; what CSV makes of words. Whole tables are in test_report.py."""
import csv
import io

import pytest
from helpers.made_up_studies import METRIC, encoding, run, study

from mmposenc.lab.compare.page import exports, tables
from mmposenc.lab.compare.statistics import formats
from mmposenc.lab.compare.statistics.summary import with_summary


@pytest.mark.parametrize('value, metric, more, expected', [
    (96.84, METRIC, {}, '96.8'), (96.84, METRIC, dict(unit=True), '96.8 %'),
    (-1.25, METRIC, dict(sign=True), '−1.2'), (1.26, METRIC, dict(sign=True), '+1.3'),
    (.34567, {**METRIC, 'unit': ''}, dict(unit=True), '0.346'), (None, METRIC, {}, '–'),
])
def test_values(value, metric, more, expected):
    assert formats.value_text(value, metric, **more) == expected


@pytest.mark.parametrize('words, values, expected', [
    (formats.count_text, (61450, 1.03e9, 12), ('61.45 k', '1.03 G', '12')),
    (formats.seconds_text, (.0083, 12.3, 250, 840, 7500), ('8.3 ms', '12.3 s', '250 s', '14 min',
                                                   '2 h 5 min')),
    (formats.size_text, (dict(factor=1.5, hw=[48, 32]), dict(factor=1.5, hw=None)),
     ('1.5 times (48 × 32)', '1.5 times')),
    (formats.names_in_words, (['a'], ['a', 'b'], list('abcdefghi'), ['none', 'RoPE, axial', 'PEG']),
     ('a', 'a and b', 'a, b, c, d, e, f and 3 more', 'none; RoPE, axial; and PEG'))])
def test_numbers_as_people_read_them(words, values, expected):
    assert tuple(map(words, values)) == expected


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


def test_where_nothing_has_run_rows_are_empty():
    results = study({'none': {1.0: [80.]}}, runs=[run('none', 0, {}, status='waiting')])
    row, = tables.overview_table(with_summary(results)).rows
    assert [cell.text for cell in row[:3]] == ['no encoding', '–', '0']
    assert len(exports.results_csv(results).splitlines()) == 2
