"""Fixtures of detectors that are compared with their releases."""
from functools import partial

import pytest
import torch
from helpers.released_detectors import drawn


@pytest.fixture
def float64():
    """mmdet's denoising makes tensors of the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def same_noise(monkeypatch):
    """Noise of denoising that the releases had, too."""
    monkeypatch.setattr(torch, 'rand_like', partial(drawn, [0.1, 0.9, 0.7, 0.3], 0.2))
    monkeypatch.setattr(torch, 'randint_like', partial(drawn, [1, 0, 0, 1], 1))
