"""The table of docs/compared.md is what is checked before a comparison."""
import pytest
from scripts import load_tool


@pytest.mark.slow
def test_rows_are_up_to_date():
    """One of each kind of rows; `python tools/fits_table.py --check` looks at all."""
    table = load_tool('fits_table')
    models, text = list(table.small_models()), table.PAGE.read_text()
    for name in ('none', 'learned', 'contextpool', 'irpe-k', 'query-relative-2d'):
        assert f'| {" | ".join(table.row(models, name))} |\n' in text
    for name, (label, _) in table.NAMES.items():
        assert f'\n| `{name}` | {label} | ' in text
