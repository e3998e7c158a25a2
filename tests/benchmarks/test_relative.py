"""Tables of benchmarks/relative.py at the smallest sizes."""
import argparse
import csv
import sys

import pytest
import torch._dynamo  # noqa: F401  (its settings are put back where it is imported before)
from helpers.scripts import load_script

from mmposenc.encodings import ENCODINGS
from mmposenc.functional import Grid

script = load_script('benchmarks', 'relative')
ARGS = argparse.Namespace(device='cpu', dtype='float32', repeats=1)


@pytest.mark.parametrize('name', ['SASARPE', 'IRPE product qkv'])
def test_implementations_are_the_packages_and_agree(name, capsys):
    """Keys on a grid of their own, too; an implementation that is not for an encoding is a row
    that says so."""
    other_grid = script.Size(2, 1, 4, 6, 8, 0, Grid(2, 3, 2.0, 2.0))
    for size in (script.Size(1, 2, 3, 4, 8, 1), other_grid):
        script.measure(name, size, ARGS)
        rows = {cells[2]: cells[3:] for cells in (
            [cell.strip() for cell in line.strip('|\n').split('|')]
            for line in capsys.readouterr().out.splitlines())}
        assert list(rows) == ['SDPA', *script.IMPLEMENTATIONS]
        for how in ('reference', 'auto', 'chunked'):
            assert float(rows[how][-1]) < 1e-4 and float(rows[how][0]) > 0
        assert 'cannot compute terms' in rows['sdpa'][-1]
        assert rows['flex'][-1].startswith('failed: ')  # a CPU has no backward pass of it


def test_the_table_of_targets_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', [script.__file__, 'targets', '--tiny'])
    script.main()
    out = capsys.readouterr().out
    assert out.splitlines()[2].startswith('|') and 'failed' not in out and '`python ' in out


def test_every_encoding_has_a_cost():
    configs = {**script.examples.RELATIVE, **script.examples.TOKEN}
    found = {ENCODINGS[configs[name]['type']] for name in script.cost_names() if name in configs}
    assert found == set(ENCODINGS.values())


def test_costs_of_what_is_added_to_attention(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', [script.__file__, 'cost', '--tiny', '--only', 'PEG', 'SASA'])
    script.main()
    rows = {row['encoding']: row for row in csv.DictReader(capsys.readouterr().out.splitlines())}
    assert list(rows) == ['SASARPE', 'PEG']
    assert all(float(each) > 1 for each in rows['PEG']['13'].partition(' ')[0].split('/'))
