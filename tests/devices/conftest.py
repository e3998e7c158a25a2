"""The meta device goes the ways of an accelerator."""
import importlib
import sys

import pytest

from mmposenc.attention import vector_terms
from mmposenc.attention.fast import thresholds
from mmposenc.attention.fast.choice import fastest_implementation
from mmposenc.functional import tracing

COMPUTE = importlib.import_module('mmposenc.attention.compute')


@pytest.fixture(autouse=True)
def numbers_are_read(monkeypatch):
    """Where an accelerator would be waited for, an error: but for ContextPool, which has to be."""
    for name, module in list(sys.modules.items()):
        if name.startswith('mmposenc.') and not name.endswith('pooling.adaptive') and (
                hasattr(module, 'may_branch_on')):
            monkeypatch.setattr(module, 'may_branch_on', lambda x: not tracing.is_compiling())


@pytest.fixture
def accelerated(large, monkeypatch):
    """Attention in the implementations of small grids, or of ``large`` ones."""
    monkeypatch.setattr(COMPUTE, 'chosen_implementation',
                        lambda problem, implementation: fastest_implementation(problem) if
                        implementation == 'auto' else implementation)
    if large:
        for name in ('ACCELERATOR_REFERENCE_BYTES', 'ACCELERATOR_REFERENCE_SHARE', 'RUNS_FROM',
                     'RUNS_WITH_VALUES_FROM', 'SHIFTS_FROM'):
            monkeypatch.setattr(thresholds, name, 0)
        monkeypatch.setattr(vector_terms, 'HALVES_FROM', 0)
