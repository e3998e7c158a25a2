"""benchmarks/flex_sm90.py without Triton: that it says so, and how it reads what ptxas prints."""
import importlib.util

import pytest
from scripts import load_script

LOG = """ptxas info    : Compiling entry function 'triton_tem_fused_flex_attention_5' for 'sm_90a'
    424 bytes stack frame, 436 bytes spill stores, 424 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 424 bytes cumulative stack size
"""


@pytest.fixture(scope='module')
def script():
    return load_script('benchmarks', 'flex_sm90')


def test_without_triton_it_says_what_to_install(script, monkeypatch):
    monkeypatch.setattr('sys.argv', ['flex_sm90.py'])
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(SystemExit, match='needs Triton, .*pip install triton==3.7.1'):
        script.main()


def test_a_cell_says_what_a_kernel_takes(script):
    assert script.said(LOG, 45056) == '44 KiB, 255, 860 B'
    assert script.said(LOG, 232449) == 'failed: 232449 bytes of shared memory, 232448 are there'
    assert script.said('', 0) == 'failed: ptxas said nothing of registers'
    error = ValueError('a|b\nc')
    assert f'failed: {script.reason(error)}' == 'failed: ValueError: a/b'
