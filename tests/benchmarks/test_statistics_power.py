"""benchmarks/statistics_power.py: its table can be made."""
import csv

import pytest
from helpers.scripts import ROOT, load_script


@pytest.mark.slow
def test_its_table():
    shown = (ROOT / 'docs' / 'tables' / 'errors-best.csv').read_text().splitlines()
    made = load_script('benchmarks', 'statistics_power').errors(4).splitlines()
    assert made[0] == shown[0]
    assert [first for first, *_ in csv.reader(made)] == [first for first, *_ in csv.reader(shown)]
