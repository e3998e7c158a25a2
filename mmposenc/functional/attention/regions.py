"""Tokens of a window that may meet: those of one region (Swin's shifted windows)."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .driver import Hide
from .layout import Piece


def apart(regions: Tensor) -> Tensor:
    """(windows, L) -> (windows, L, L) bool: not of one region."""
    return regions[:, :, None] != regions[:, None, :]


def hide_regions(regions: Tensor) -> Hide:
    """Pairs of a piece that may not meet; window b has the regions b % len(regions)."""
    if regions.device.type == 'cpu':
        split = (regions != regions[:, :1]).any(1).tolist()
    else:  # would have to wait for the numbers
        split = [True] * len(regions)

    def hide(piece: Piece) -> Tensor | None:
        own = [window % len(split) for window in range(piece.images.start, piece.images.stop)]
        if not any(split[window] for window in own):
            return None
        which = torch.arange(piece.images.start, piece.images.stop, device=regions.device)
        return apart(regions[which % len(split)])[:, None, piece.queries]
    return hide


def run_by_region(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, regions: Tensor,
                  scale: float) -> Tensor:
    """Fused attention of windows, those of one mask together: shifted windows know few of them.

    Args:
        q, k, v: (windows, heads, L, head_dims), windows of an image one after the other.
        bias: (1, heads or 1, L, L), the same for all windows, or None.
        regions: (windows of an image, or of all, L).

    Returns:
        (windows, heads, L, head_dims).
    """
    out = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)
    kinds, hidden = _kinds(regions)
    bias = None if bias is None else bias.to(q.dtype)
    masks = [~each[None, None] if bias is None else bias.masked_fill(each, float('-inf'))
             for each in hidden]
    for part, kind in _runs(kinds, q.shape[0]):
        out[part] = F.scaled_dot_product_attention(
            q[part], k[part], v[part], attn_mask=bias if kind < 0 else masks[kind], scale=scale)
    return out


def _kinds(regions: Tensor) -> tuple[list[int], Tensor]:
    """For each window of regions (windows, L) the pairs that must not meet, by number, -1 where all
    may; and the pairs (kinds, L, L)."""
    split = (regions != regions[:, :1]).any(1)
    distinct, which = torch.unique(regions[split], dim=0, return_inverse=True)
    kinds = torch.full_like(regions[:, 0], -1)
    kinds[split] = which
    return kinds.tolist(), apart(distinct)


def _runs(kinds: list[int], windows: int) -> list[tuple[slice, int]]:
    """Windows of one kind that a slice reaches: each in all images, or neighbours, whichever takes
    fewer slices. Images share the kinds."""
    starts = [window for window in range(windows) if window == 0 or
              kinds[window % len(kinds)] != kinds[(window - 1) % len(kinds)]]
    if len(kinds) < len(starts):
        return [(slice(first, None, len(kinds)), kind) for first, kind in enumerate(kinds)]
    return [(slice(first, stop), kinds[first % len(kinds)])
            for first, stop in zip(starts, [*starts[1:], windows], strict=True)]
