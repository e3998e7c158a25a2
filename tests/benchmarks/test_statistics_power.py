"""benchmarks/statistics_power.py: what it draws, and that its tables can be made."""
from __future__ import annotations

import csv

import numpy as np
import pytest
from scripts import ROOT, load_script


@pytest.fixture(scope='module')
def power():
    return load_script('benchmarks', 'statistics_power')


def test_a_clear_study_ends_early_and_an_open_one_does_not(power):
    noise = np.random.default_rng(0)
    clear = power.drawn(noise, np.full(4, .1), 10, (50,))
    reason, left, runs = power.until(clear, (3, 4, 6, 9, 10))
    assert (left, runs) == (['e0'], 12) and reason.startswith('Decided')
    reason, left, runs = power.until(power.drawn(noise, np.full(2, 9.), 10), (3, 4, 6, 9, 10))
    assert (left, runs) == (['e0', 'e1'], 20) and reason.startswith('The largest number')


@pytest.mark.slow
def test_its_tables(power):
    for name, table in power.TABLES.items():
        shown = (ROOT / 'docs' / 'tables' / f'{name}.csv').read_text().splitlines()
        if table is not power.errors:
            made = table(4).splitlines()
            assert made[0] == shown[0]
            assert {first for first, *_ in csv.reader(shown)} <= {
                first for first, *_ in csv.reader(made)}
