"""Benchmarks with --device cuda, at the smallest sizes: everything they make lies there. On the
stand-in events and the allocator are made of paper."""
import os
import sys
from contextlib import ExitStack
from unittest import mock

import pytest
import torch
from device import Device
from scripts import load_script

PAPER = os.environ.get('MMPOSENC_ACCELERATOR') != 'cuda'


class Event:
    """Each is 1 ms after the one before."""

    now = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        Event.now += 1.0
        self.at = Event.now

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return other.at - self.at


@pytest.fixture
def gpu():
    with ExitStack() as stack:
        found = stack.enter_context(Device())
        if PAPER:
            memory = found.memory
            stack.enter_context(mock.patch.multiple(
                torch.cuda, Event=Event, synchronize=lambda: None, empty_cache=lambda: None,
                is_available=lambda: True, get_device_name=lambda: 'paper',
                memory_allocated=lambda: memory.now, max_memory_allocated=lambda: memory.peak,
                reset_peak_memory_stats=lambda: setattr(memory, 'peak', memory.now)))
            torch.__future__.set_overwrite_module_params_on_conversion(True)
            stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, False)
        yield found


COMMANDS = {
    'forms': ('relative', 'forms'), 'targets': ('relative', 'targets', '--memory'),
    'cost': ('relative', 'cost', '--memory'), 'dropout': ('relative', 'dropout', '--memory'),
    'small': ('relative', 'small'), 'plain': ('relative', 'plain'),
    'thresholds': ('relative', 'thresholds'), 'windows': ('windows',),
    'context_pool': ('context_pool', '--linear', '--block'), 'detr': ('detr', '--dropout', '0.1')}


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
@pytest.mark.parametrize('name', COMMANDS)
def test_a_table_is_made_on_the_device(gpu, name, dtype, monkeypatch, capsys):
    script = load_script('benchmarks', COMMANDS[name][0])
    monkeypatch.setattr(sys, 'argv', ['x.py', *COMMANDS[name][1:], '--tiny', '--device', 'cuda',
                                      '--dtype', dtype])
    script.main()
    out = capsys.readouterr().out
    wrong = [line for line in out.splitlines() if 'failed' in line
             and 'cannot compute terms' not in line  # forms that an encoding has not
             and not (PAPER and '| definition, compiled |' in line)]
    assert not wrong, '\n'.join(wrong)
    assert out.startswith('[' if '--memory' in COMMANDS[name] else 'paper' if PAPER else '')
