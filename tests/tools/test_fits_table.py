"""The table of docs/compared.md is what is checked before a comparison."""
from scripts import load_tool


def test_what_is_made_is_up_to_date():
    load_tool('fits_table').main(['--check'])
