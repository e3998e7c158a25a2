"""Reads the golden files: outputs of the official releases on small random models."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

GOLDEN_DIR = Path(__file__).resolve().parents[2] / 'shared' / 'golden'
DATA_DIR = GOLDEN_DIR.parent / 'data'
#: Every golden comparison uses these, float32 against float32.
TOLERANCE = {'atol': 2e-5, 'rtol': 1e-4}


def golden_names(pattern: str) -> list[str]:
    """Stems of the golden files that match, or one stem that skips when the folder is absent."""
    found = sorted(path.stem for path in GOLDEN_DIR.glob(f'{pattern}.npz'))
    return found or [pattern]


def load_golden(stem: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Arrays of a golden file: (release parameters without 'param.', everything else)."""
    path = GOLDEN_DIR / f'{stem}.npz'
    if not path.is_file():
        pytest.skip(f'golden file {stem}.npz is not here')
    with np.load(path) as arrays:
        tensors = {name: torch.from_numpy(np.array(arrays[name])) for name in arrays.files}
    params = {name[6:]: value for name, value in tensors.items() if name.startswith('param.')}
    rest = {name: value for name, value in tensors.items() if not name.startswith('param.')}
    return params, rest
