"""Reads the golden files: outputs of the official releases on small random models."""
from pathlib import Path

import numpy as np
import torch

#: Its README says which release each file comes from.
GOLDEN_DIR = Path(__file__).resolve().parents[1] / 'golden'
#: How far a float32 result may be from the exact one, as a share of its largest value. Each value
#: is a sum of n products of rounded factors, d such sums in a row; 2^-24 each, adding like a
#: random walk, is 2^-24 sqrt(2 n d): 36 units for the 130 products and five sums of these models.
#: The gradients of their squares pass them all twice and add over images and pairs: 72.
RELEASE_ROUNDING = 72 * 2.0 ** -24


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


def assert_released(got: torch.Tensor, want: torch.Tensor) -> None:
    """A result equals the release's but for rounding, on every processor.

    In float64 all of the difference is the release's own rounding, float32 adds one of ours.
    Differences count against the tensor's largest value: rounding of a sum does not shrink with it.
    """
    roundings = 1 if got.dtype == torch.float64 else 2
    apart = (got.detach().double() - want.double()).abs().max() / want.abs().max()
    assert got.shape == want.shape
    assert apart <= roundings * RELEASE_ROUNDING, f'{apart:.1e} of the largest value apart'
