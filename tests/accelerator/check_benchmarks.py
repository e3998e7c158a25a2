"""Benchmarks with --device cuda, at the smallest sizes: everything they make lies there. On the
stand-in events and the allocator are made of paper."""
import os
import sys
from contextlib import ExitStack
from unittest import mock

import pytest
import torch
import torch._inductor.decomposition  # noqa: F401  (its annotations name what the stand-in patches)
from device import Device
from scripts import load_script

from mmposenc.attention.fast import flex

PAPER = os.environ.get('MMPOSENC_ACCELERATOR') != 'cuda'


class Event:
    """Each is 20 ms after the one before: one call is a sample."""

    now = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        Event.now += 20.0
        self.at = Event.now

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return other.at - self.at


def no_compiler(function, **options):
    def run(*args):
        raise RuntimeError('paper has no compiler')
    return run


@pytest.fixture
def gpu():
    with ExitStack() as stack:
        found = stack.enter_context(Device())
        if PAPER:
            memory = found.memory
            stack.enter_context(mock.patch.multiple(
                torch.cuda, Event=Event, synchronize=lambda: None, empty_cache=lambda: None,
                is_available=lambda: True, device_count=lambda: 1, get_device_name=lambda: 'paper',
                memory_allocated=lambda: memory.now, max_memory_allocated=lambda: memory.peak,
                reset_peak_memory_stats=lambda: setattr(memory, 'peak', memory.now)))
            stack.enter_context(mock.patch.object(torch, 'compile', no_compiler))
            stack.enter_context(mock.patch.object(flex.compiled, 'cache_clear', lambda: None,
                                                  create=True))
            torch.__future__.set_overwrite_module_params_on_conversion(True)
            stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, False)
        yield found


COMMANDS = {
    'detr': ('detr',), 'context_pool': ('context_pool', '--linear'),
    'forms': ('relative', 'forms', '--only', 'IRPE product k', 'SASARPE', 'IRPE product qkv'),
    'targets': ('relative', 'targets')}


@pytest.mark.parametrize('name', COMMANDS)
def test_a_table_is_made_on_the_device(gpu, name, monkeypatch, capsys):
    script = load_script('benchmarks', COMMANDS[name][0])
    if PAPER:
        monkeypatch.setattr(sys.modules['measure'], 'WARM_UP', 1)
    monkeypatch.setattr(sys, 'argv', ['x.py', *COMMANDS[name][1:], '--tiny', '--device', 'cuda',
                                      '--dtype', 'float32'])
    script.main()
    out = capsys.readouterr().out
    wrong = [line for line in out.splitlines() if 'failed' in line
             and 'cannot compute terms' not in line  # forms that an encoding has not
             and 'paper has no compiler' not in line]
    assert not wrong, '\n'.join(wrong)
    assert out.startswith('paper' if PAPER else '')
