"""Checks that weights are numbers."""
from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .rules import names_text


def check_numbers(state_dict: Mapping[str, Tensor], file: str) -> None:
    """Refuse tensors that would be copied and then be wrong: quantized ones, and ones that are not
    finite after a training that failed.

    Raises:
        ValueError: naming every tensor that does not hold finite floating-point numbers.
    """
    wrong = []
    for name, value in state_dict.items():
        if value.is_meta or value.layout != torch.strided or not value.is_floating_point():
            kind = 'no values' if value.is_meta else f'{value.layout}, {value.dtype}'
            wrong.append(f'{name} ({kind})'.replace('torch.', ''))
        elif not value.sum(dtype=torch.float64).isfinite():
            wrong.append(f'{name} (NaN or infinite)')
    if wrong:
        raise ValueError(f'{file}: finite floating-point numbers are required, others are in '
                         f'{names_text(wrong)}')
