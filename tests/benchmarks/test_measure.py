"""How benchmarks measure: paired medians, peaks, and what cannot run. A GPU's part against a clock
and an allocator made of paper."""
import argparse
import time

import pytest
import torch._dynamo  # its settings are put back after each test where it is imported before
from helpers.scripts import load_script

measure = load_script('benchmarks', 'measure')


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


def test_the_peak_of_a_cpu_is_what_a_call_adds():
    held = torch.ones(2 ** 24)  # 64 MiB, there before
    found = measure.peak_memory(lambda: held * 2, 'cpu') / 2 ** 20
    assert 60 < found < 70
