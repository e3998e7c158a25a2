"""A function of many rows, computed some rows at a time."""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .tracing import is_exporting, is_transforming


def by_rows(function: Callable[[Tensor], Tensor], rows: Tensor, step: int, *, dim: int = 0,
            out_dim: int = 0) -> Tensor:
    """Compute ``function(rows)``. If there are more rows than ``step``, this is done for some rows
    at a time, and again in the backward pass.

    An exported program computes all rows at once, because the number of parts would otherwise be
    fixed in it. So do ``torch.func.grad`` and the like, which do not support checkpoints.

    Args:
        function: takes rows along ``dim``, and returns one row for each along ``out_dim``.
    """
    if is_exporting() or is_transforming() or step >= rows.shape[dim]:
        return function(rows)
    return torch.cat([checkpoint(function, some, use_reentrant=False, preserve_rng_state=False)
                      for some in torch.split(rows, max(1, step), dim)], out_dim)
