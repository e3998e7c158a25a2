"""The table of docs/compared.md is what is checked before a comparison."""
import csv

import pytest
from scripts import load_tool


@pytest.mark.slow
def test_rows_are_up_to_date():
    """One of each kind of rows; `python tools/fits_table.py --check` looks at all."""
    table = load_tool('fits_table')
    models = list(table.small_models())
    with table.TABLE.open() as file:
        rows = list(csv.reader(file))
    for name in ('none', 'learned', 'contextpool', 'irpe-k', 'query-relative-2d'):
        assert table.row(models, name) in rows
    assert [row[:2] for row in rows[1:]] == [
        [f'`{name}`', label] for name, (label, _) in table.NAMES.items()]
