"""benchmarks/statistics_power.py: what it draws, and that its tables can be made."""
import csv

import pytest
from helpers.scripts import ROOT, load_script


@pytest.fixture(scope='module')
def power():
    return load_script('benchmarks', 'statistics_power')


@pytest.mark.slow
def test_its_tables(power):
    for name, table in power.TABLES.items():
        shown = (ROOT / 'docs' / 'tables' / f'{name}.csv').read_text().splitlines()
        if table is not power.errors:
            made = table(4).splitlines()
            assert made[0] == shown[0]
            assert {first for first, *_ in csv.reader(shown)} <= {
                first for first, *_ in csv.reader(made)}
