"""Reads the golden files: outputs of the official releases on small random models."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

#: Its README says which release each file comes from.
GOLDEN_DIR = Path(__file__).parent / 'golden'
#: Every golden comparison uses these, float32 against float32.
TOLERANCE = {'atol': 2e-5, 'rtol': 1e-4}


def golden_names(pattern: str) -> list[str]:
    """Stems of the golden files that match; no match is an error, lest a test proves nothing."""
    found = sorted(path.stem for path in GOLDEN_DIR.glob(f'{pattern}.npz'))
    if not found:
        raise FileNotFoundError(f'no golden file {pattern}.npz in {GOLDEN_DIR}')
    return found


def load_golden(stem: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Arrays of a golden file: (release parameters without 'param.', everything else)."""
    with np.load(GOLDEN_DIR / f'{stem}.npz') as arrays:
        tensors = {name: torch.from_numpy(np.array(arrays[name])) for name in arrays.files}
    params = {name[6:]: value for name, value in tensors.items() if name.startswith('param.')}
    rest = {name: value for name, value in tensors.items() if not name.startswith('param.')}
    return params, rest
