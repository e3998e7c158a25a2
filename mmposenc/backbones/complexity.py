"""Multiply-accumulates of a model, counted without computing anything."""
from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ..encodings.base import RelativeEncoding
from ..encodings.irpe import IRPE
from ..functional.grids import GridLike


def count_macs(model: nn.Module, hw_shape: tuple[int, int], *, in_channels: int = 3,
               values_as_released: bool = False) -> int:
    """Multiply-accumulates of matrix products and convolutions for one image, the "FLOPs" of the
    papers' tables.

    Relative encodings are counted by their definition, whichever form a device would pick.

    Args:
        model: takes (1, in_channels, H, W); its weights are not read, and it may be on the meta
            device.
        hw_shape: (H, W) of the image in pixels.
        in_channels: channels of the image.
        values_as_released: count iRPE on values as in its release and paper: a vector for each
            pair of tokens, Lq * Lk * embed_dims in each attention. Here attention weights are
            summed up in buckets first, which needs Lq * buckets * embed_dims.

    Returns:
        Their number; norms, activations, sums and the softmax count nothing.
    """
    counted = copy.deepcopy(model).to('meta').eval()
    extra = [0]
    for module in counted.modules():
        if isinstance(module, RelativeEncoding):
            module.choose_form = _definition  # type: ignore[method-assign]
            if values_as_released and isinstance(module, IRPE) and module.has_values:
                _watch_values(module, extra)
    image = torch.empty(1, in_channels, *hw_shape, device='meta')
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        counted(image)
    return int(counter.get_total_flops()) // 2 + extra[0]


def _definition(*args: Any, **kwargs: Any) -> str:
    return 'definition'


def _watch_values(encoding: IRPE, extra: list[int]) -> None:
    """Add to ``extra`` what the released value terms take more than the bucket sums."""
    values = encoding.values

    def watched(attn: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor | None:
        batch, heads, queries, keys = attn.shape
        for table in encoding.tables('v'):
            buckets, dims = table.shape[-2:]
            extra[0] += batch * heads * queries * (keys - buckets) * dims
        return values(attn, q_grid, k_grid)

    encoding.values = watched  # type: ignore[method-assign]
