"""How benchmarks measure: paired medians, peaks, and what cannot run. A GPU's part against a clock
and an allocator made of paper. Tables of benchmarks/relative.py at the smallest sizes."""
import argparse
import csv
import sys
import time

import pytest
import torch._dynamo  # its settings are put back after each test where it is imported before
from helpers import tiny_backbones, tiny_detr
from helpers.scripts import load_script

from mmposenc.encodings import ENCODINGS
from mmposenc.functional import Grid

measure, relative = (load_script('benchmarks', name) for name in ('measure', 'relative'))
ARGS = argparse.Namespace(device='cpu', dtype='float32', repeats=1)


def spend(seconds):
    def run():
        start = time.process_time()
        while time.process_time() - start < seconds:
            pass
    return run


def test_runs_are_called_in_turns_and_ratios_are_to_the_first():
    order = []

    def taking(name, seconds):
        return lambda: (order.append(name), spend(seconds)())
    found = measure.paired_times({'a': taking('a', 0.01), 'b': taking('b', 0.03)}, 5, 'cpu')
    assert ''.join(order) == 'ab' + 'ab' * 5  # warm-up, rounds
    assert found['a'].ratio == 1.0 and found['b'].ratio == pytest.approx(3.0, rel=0.2)
    assert found['b'].least <= found['b'].ratio <= found['b'].largest
    assert found['a'].ratio_and_spread() == '1.00 (1.00 to 1.00)'
    assert found['a'].seconds == pytest.approx(0.01, rel=0.2)


def test_what_fails_is_said_and_the_rest_measured():
    def fail():
        raise RuntimeError('"kernel" not implemented for |\'Half\'\nand more')
    found = measure.paired_times({'a': spend(0.001), 'b': fail}, 3, 'cpu')
    cell = f"{found['b'].seconds / 2 * 1e3:.2f}"
    assert cell == 'failed: RuntimeError: "kernel" not implemented for /\'Half\''
    assert f"{found['b'].ratio:.0f}" == f"{1 / found['b'].ratio:.0f}" == cell
    assert found['a'].ratio == 1.0
    # Without the first there are no ratios, but times.
    found = measure.paired_times({'b': fail, 'a': spend(0.001)}, 3, 'cpu')
    assert found['a'].seconds > 0 and f"{found['a'].ratio:.2f}" == cell
    assert f"{measure.peak_memory(fail, 'cpu') / 2 ** 20:.0f}" == cell


def parsed(*options):
    parser = argparse.ArgumentParser()
    measure.add_arguments(parser, repeats=7)
    return measure.parse(parser, list(options))


def test_no_row_is_silently_uncompiled_or_left_out(capsys):
    """At torch's limit of recompilations; where a case cannot be made."""
    parsed()
    assert torch._dynamo.config.fail_on_recompile_limit_hit
    with measure.row('case', 3):
        raise ValueError('no such form')
    assert capsys.readouterr().out == '| case | 3 | failed: ValueError: no such form |\n'


def test_kernels_are_counted_as_a_gpu_starts_them():
    """Attention is one, with a table too, and nothing is made of the grid."""
    launches = load_script('benchmarks', 'launches')
    forward, step = launches.counted(tiny_backbones.BUILD['vit'](rel_pos_encoding=dict(
        type='IRPE')), None, 32)
    assert forward['attention'] == step['attention'] == step['attention_backward'] == 4
    assert forward['gather'] == 4 and not {'arange', 'view', '_softmax'} & set(forward)
    rt_detr = tiny_detr.build(tiny_detr.rtdetr())
    forward, step = launches.counted(rt_detr, 0.0, 64, has_losses=False)
    assert not {'arange', 'sin', 'full_like'} & set(forward) and step.total() > forward.total()


def test_the_peak_of_a_cpu_is_what_a_call_adds():
    held = torch.ones(2 ** 24)  # 64 MiB, there before
    found = measure.peak_memory(lambda: held * 2, 'cpu') / 2 ** 20
    assert 60 < found < 70


@pytest.mark.parametrize('name', ['SASARPE', 'IRPE product qkv'])
def test_implementations_are_the_packages_and_agree(name, capsys):
    """Keys on a grid of their own, too; an implementation that is not for an encoding is a row
    that says so."""
    other_grid = relative.Size(2, 1, 4, 6, 8, 0, Grid(2, 3, 2.0, 2.0))
    for size in (relative.Size(1, 2, 3, 4, 8, 1), other_grid):
        relative.measure(name, size, ARGS)
        rows = {cells[2]: cells[3:] for cells in (
            [cell.strip() for cell in line.strip('|\n').split('|')]
            for line in capsys.readouterr().out.splitlines())}
        assert list(rows) == ['SDPA', *relative.IMPLEMENTATIONS]
        for how in ('reference', 'auto', 'chunked'):
            assert float(rows[how][-1]) < 1e-4 and float(rows[how][0]) > 0
        assert 'cannot compute terms' in rows['sdpa'][-1]


def test_the_table_of_targets_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', [relative.__file__, 'targets', '--tiny'])
    relative.main()
    out = capsys.readouterr().out
    assert out.splitlines()[2].startswith('|') and 'failed' not in out and '`python ' in out


def test_every_encoding_has_a_cost():
    configs = {**relative.examples.RELATIVE, **relative.examples.TOKEN}
    found = {ENCODINGS[configs[name]['type']] for name in relative.cost_names() if name in configs}
    assert found == set(ENCODINGS.values())


def test_costs_of_what_is_added_to_attention(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', [relative.__file__, 'cost', '--tiny', '--only', 'PEG', 'SASA'])
    relative.main()
    rows = {row['encoding']: row for row in csv.DictReader(capsys.readouterr().out.splitlines())}
    assert list(rows) == ['SASARPE', 'PEG']
    assert all(float(each) > 1 for each in rows['PEG']['13'].partition(' ')[0].split('/'))
