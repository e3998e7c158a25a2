"""Tables of benchmarks/relative.py at the smallest sizes."""
import argparse
import csv
import sys

import pytest
from scripts import load_script

from mmposenc import encodings
from mmposenc.functional import Grid


@pytest.fixture(scope='module')
def forms():
    return load_script('benchmarks', 'relative')


ARGS = argparse.Namespace(device='cpu', dtype='float32', repeats=1)


@pytest.mark.parametrize('name', ['SASARPE', 'IRPE product qkv'])
def test_forms_are_the_packages_and_agree(forms, name, capsys):
    """Keys on a grid of their own, too; a form that is not an encoding's is a row that says so."""
    for size in (forms.Size(1, 2, 3, 4, 8, 1), forms.Size(2, 1, 4, 6, 8, 0, Grid(2, 3, 2.0, 2.0))):
        forms.measure(name, size, ARGS)
        rows = {cells[2]: cells[3:] for cells in (
            [cell.strip() for cell in line.strip('|\n').split('|')]
            for line in capsys.readouterr().out.splitlines())}
        assert list(rows) == ['SDPA', *forms.FORMS]
        for form in ('definition', 'auto', 'pieces'):
            assert float(rows[form][-1]) < 1e-4 and float(rows[form][0]) > 0
        assert 'cannot compute terms' in rows['fused'][-1]
        assert rows['flex'][-1].startswith('failed: ')  # a CPU has no backward pass of it


def test_the_table_of_targets_runs(forms, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', [forms.__file__, 'targets', '--tiny'])
    forms.main()
    out = capsys.readouterr().out
    assert out.splitlines()[2].startswith('|') and 'failed' not in out and '`python ' in out


def test_every_encoding_has_a_cost(forms):
    """``RotaryEmbedding2D`` is another name of ``RotaryEmbedding``."""
    configs = {**forms.examples.RELATIVE, **forms.examples.TOKEN}
    found = {configs[name]['type'] for name in forms.cost_names() if name in configs}
    assert found == set(encodings.ENCODINGS) - {'RotaryEmbedding'}


def test_costs_of_what_is_added_to_attention(forms, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', [forms.__file__, 'cost', '--tiny', '--only', 'PEG', 'SASA',
                                      'BoxRPB', 'PositionRelation'])
    forms.main()
    rows = {row['encoding']: row for row in csv.DictReader(capsys.readouterr().out.splitlines())}
    assert list(rows) == ['SASARPE', 'PEG', 'PositionRelation', 'BoxRPB']
    assert rows['BoxRPB']['13: of iRPE k'] == ''
    assert all(float(each) > 1 for each in rows['PEG']['13'].partition(' ')[0].split('/'))
