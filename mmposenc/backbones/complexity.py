"""Counts the multiply-accumulates of a model without computing its outputs."""
from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import nn


def multiply_accumulates(run: Callable[[], object]) -> int:
    """Count the multiply-accumulates of matrix products and convolutions by torch's counter.

    Fused attention runs as two products, so that it counts the same on every device.

    Args:
        run: runs a model once, whose parameters take no gradients: torch's counter fails on some
            that do.

    Returns:
        The number; norms, activations, sums and softmax count zero.
    """
    # Imported here, because torch before 2.3 has no sdpa_kernel.
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    # Only a CPU uses this operator, and torch has no formula for its operations.
    pointwise = getattr(torch.ops.mkldnn, '_linear_pointwise', None)
    counter = FlopCounterMode(display=False, custom_mapping=(
        {} if pointwise is None else {pointwise: _linear_flops}))
    counter.mod_tracker = _NoModuleTracker()  # type: ignore[assignment]
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        run()
    return counter.get_total_flops() // 2


class _NoModuleTracker:
    """Replaces torch's tracker of modules. That one sets hooks on every module, and modules with
    hooks would be computed in another way here, one by one."""

    parents = frozenset(('Global',))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _linear_flops(x_shape: Sequence[int], *_: object, out_shape: Sequence[int], **__: object
                  ) -> int:
    return 2 * math.prod(out_shape) * x_shape[-1]


def count_macs(model: nn.Module, hw_shape: tuple[int, int], *, in_channels: int = 3) -> int:
    """Count multiply-accumulates of matrix products and convolutions for one image (the "FLOPs" of
    the papers' tables).

    Relative encodings are counted by their definition, whatever the implementation; iRPE's 'cross'
    counts as one table of all pairs of a row and a column bucket.

    Args:
        model: a model that takes (1, in_channels, H, W). Its weights are not used; it may be on the
            meta device.
        hw_shape: (H, W) of the image in pixels.
        in_channels: channels of the image.

    Returns:
        The number; norms, activations, sums and softmax count zero.
    """
    counted = copy.deepcopy(model).to('meta').eval().requires_grad_(False)
    image = torch.empty(1, in_channels, *hw_shape, device='meta')
    return multiply_accumulates(lambda: counted(image))
