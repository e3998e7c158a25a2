"""Holm's correction of p values, for the questions of evidence.py and what statistics_power.py
counts."""
from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def corrected(ps: ArrayLike) -> np.ndarray:
    """p values corrected for being one of several (Holm 1979), in the order they came.

    The smallest is multiplied by their number, the next by one less, and so on; none falls below
    one before it, and none exceeds 1. The chance of any false 'difference' is so at most the level.

    Args:
        ps: (..., several); each row is corrected by itself.
    """
    values = np.asarray(ps, dtype=float)
    order, count = np.argsort(values, -1), values.shape[-1]
    raised = np.take_along_axis(values, order, -1) * (count - np.arange(count))
    found = np.empty_like(values)
    np.put_along_axis(found, order, np.maximum.accumulate(np.minimum(raised, 1), -1), -1)
    return found
