"""Shifted windows of a grid: cutting, joining, and which tokens may meet (Swin, ICCV 2021)."""
from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .grids import whole_cells
from .masking import known_equal
from .tracing import is_compiling, is_exporting

#: Rows and columns of windows. Counted outside of compiled code, in which a quotient of sizes that
#: are symbols takes minutes.
Counts = tuple[int, int]


def window_counts(hw_shape: tuple[int, int], window: tuple[int, int]) -> Counts:
    """Rows and columns of windows that a grid fills, the last ones perhaps in part."""
    return whole_cells(hw_shape[0], window[0]), whole_cells(hw_shape[1], window[1])


def partition_windows(x: Tensor, window: tuple[int, int], shift: tuple[int, int] = (0, 0),
                      counts: Counts | None = None) -> Tensor:
    """Cut a map (B, H, W, C) into windows (B * windows, Wh * Ww, C), image by image, row by row.

    The map is filled up with zeros to the right and below, then rolled up and left by ``shift``.
    """
    batch, height, width, channels = x.shape
    down, across = counts or window_counts((height, width), window)
    rows, cols = down * window[0], across * window[1]
    x = _fill_up(x, rows, cols)
    if is_exporting():
        x = x.flatten(1, 2).index_select(1, _order((down, across), window, shift, x.device))
        return x.flatten(0, 1).view(-1, window[0] * window[1], channels)
    if any(shift):
        x = x.roll((-shift[0], -shift[1]), (1, 2))
    x = x.view(batch, down, window[0], across, window[1], channels).transpose(2, 3).contiguous()
    return x.view(batch * down * across, window[0] * window[1], channels)


def _order(counts: Counts, window: tuple[int, int], shift: tuple[int, int],
           device: torch.device, back: bool = False) -> Tensor:
    """Numbers of the cells of a map of whole windows, window by window; with ``back`` the places of
    the cells in that order. For export: with an axis of windows, whether there is only one would be
    part of the graph."""
    (down, across), (height, width) = counts, window
    number = torch.arange(down * height * across * width, device=device)
    # Tensors: ONNX has no remainder of a division by a size.
    rows, cols, across = (torch.full((), size, device=device)  # type: ignore[assignment]
                          for size in (down * height, across * width, across))
    if back:
        row, col = (number // cols + rows - shift[0]) % rows, (number + cols - shift[1]) % cols
        window_number = row // height * across + col // width
        return (window_number * height + row % height) * width + col % width
    cell, number = number % (height * width), number // (height * width)
    row = number // across * height + cell // width + shift[0]
    return row % rows * cols + (number % across * width + cell % width + shift[1]) % cols


def _fill_up(x: Tensor, rows: int, cols: int) -> Tensor:
    """A map (B, H, W, C) with zeros to the right and below: (B, rows, cols, C)."""
    height, width = x.shape[1:3]
    if known_equal((rows, cols), (height, width)):
        return x
    if not is_compiling():
        return F.pad(x, (0, 0, 0, cols - width, 0, rows - height))
    # Nothing to fill up would be a graph of its own, so there is always one row and column more.
    return _cut_off(F.pad(x, (0, 0, 0, cols - width + 1, 0, rows - height + 1)), rows, cols)


def _cut_off(x: Tensor, height: int, width: int) -> Tensor:
    """The upper left of a map (B, H, W, C): (B, height, width, C)."""
    if not is_compiling():
        return x[:, :height, :width]
    x = F.pad(x, (0, 0, 0, 1, 0, 1))  # as above: a slice of all is a graph of its own
    return F.pad(x, (0, 0, 0, width - x.shape[2], 0, height - x.shape[1]))


def join_windows(windows: Tensor, hw_shape: tuple[int, int], window: tuple[int, int],
                 shift: tuple[int, int] = (0, 0), counts: Counts | None = None) -> Tensor:
    """Undo :func:`partition_windows`: a map (B, H, W, C)."""
    down, across = counts or window_counts(hw_shape, window)
    channels = windows.shape[-1]
    if is_exporting():
        rows, cols = down * window[0], across * window[1]
        x = windows.flatten(0, 1).view(-1, rows * cols, channels).index_select(
            1, _order((down, across), window, shift, windows.device, back=True))
        return _cut_off(x.view(-1, rows, cols, channels), *hw_shape)
    x = windows.view(-1, down, across, *window, channels)
    x = x.transpose(2, 3).contiguous().view(-1, down * window[0], across * window[1], channels)
    if any(shift):
        x = x.roll(shift, (1, 2))
    return _cut_off(x, *hw_shape)


def window_regions(hw_shape: tuple[int, int], window: tuple[int, int], shift: tuple[int, int],
                   absent: Tensor | None = None, device: torch.device | None = None,
                   counts: Counts | None = None, images: int = 1) -> Tensor | None:
    """Region of each token; tokens of a window attend to each other only inside one region.

    Rolling brings the top rows (left columns) into the windows of the bottom rows (right columns):
    those are regions of their own. So are tokens that none may attend to, which then have at least
    each other: no softmax is over nothing.

    Args:
        hw_shape: (H, W), not filled up.
        absent: (B, Hp, Wp) bool on the grid filled up to whole windows, True = not a key.
        images: B; an exported model has the regions of all, as their windows only may be one,
            which would be part of the graph.

    Returns:
        (windows or B * windows, Wh * Ww) long, or None if every window is one region.
    """
    if absent is None and not any(shift):
        return None
    down, across = counts or window_counts(hw_shape, window)
    rows, cols = down * window[0], across * window[1]
    # Not rolled yet: cell r is in the windows of the bottom rows and from the top if r < shift.
    top = torch.arange(rows, device=device) < shift[0]
    left = torch.arange(cols, device=device) < shift[1]
    regions = (top[:, None] * 2 + left.long())[None, :, :, None]
    if is_exporting():
        regions = regions.expand(images, -1, -1, -1)
    if absent is not None:
        regions = torch.where(absent[..., None], -1, regions)
    return partition_windows(regions, window, shift, (down, across)).squeeze(-1)


def absent_keys(padding_mask: Tensor | None, hw_shape: tuple[int, int], window: tuple[int, int],
                mask_window_padding: bool, device: torch.device | None = None,
                counts: Counts | None = None) -> Tensor | None:
    """Tokens that are no keys, on the grid filled up to whole windows: (B, Hp, Wp), or None.

    With ``mask_window_padding`` these are all padded tokens. Without it, an image in a padded batch
    keeps those padded tokens that fill up its own last windows, so that it comes out as it does
    alone: as zeros that are attended to, like in the releases.
    """
    down, across = counts or window_counts(hw_shape, window)
    rows, cols = down * window[0], across * window[1]
    if not mask_window_padding:
        if padding_mask is None:
            return None
        valid = _fill_up(~padding_mask[..., None], rows, cols)[..., 0]
        cut = valid.view(-1, down, window[0], across, window[1])
        occupied = cut.any(4).any(2)
        return ~occupied.repeat_interleave(window[0], 1).repeat_interleave(window[1], 2)
    if padding_mask is None:
        if known_equal((rows, cols), hw_shape):
            return None
        padding_mask = torch.zeros(1, *hw_shape, dtype=torch.bool, device=device)
    return ~_fill_up(~padding_mask[..., None], rows, cols)[..., 0]


class Windows(NamedTuple):
    """How the tokens (B, H * W, C) of a map are cut into windows, and joined again.

    Attributes:
        hw_shape: (H, W).
        window: (Wh, Ww).
        shift: cells by which windows are shifted down and right.
        padding_mask: (B, H, W) bool, True = padding, which goes in and comes out as zeros.
        counts: rows and columns of windows, where they are counted already.
    """

    hw_shape: tuple[int, int]
    window: tuple[int, int]
    shift: tuple[int, int] = (0, 0)
    padding_mask: Tensor | None = None
    counts: Counts | None = None

    def cut(self, x: Tensor) -> Tensor:
        """(B, H * W, C) -> (B * windows, Wh * Ww, C)."""
        x = self._without_padding(x).reshape(x.shape[0], *self.hw_shape, x.shape[-1])
        return partition_windows(x, self.window, self.shift, self.counts)

    def join(self, windows: Tensor) -> Tensor:
        """(B * windows, Wh * Ww, C) -> (B, H * W, C)."""
        out = join_windows(windows, self.hw_shape, self.window, self.shift, self.counts)
        return self._without_padding(out.flatten(1, 2))

    def regions(self, mask_window_padding: bool, device: torch.device, images: int = 1
                ) -> Tensor | None:
        """Which tokens may meet, as :func:`window_regions`; with ``mask_window_padding`` the zeros
        that fill up the last windows meet no others."""
        absent = absent_keys(self.padding_mask, self.hw_shape, self.window, mask_window_padding,
                             device, self.counts)
        return window_regions(self.hw_shape, self.window, self.shift, absent, device, self.counts,
                              images)

    def _without_padding(self, x: Tensor) -> Tensor:
        if self.padding_mask is None:
            return x
        return x.masked_fill(self.padding_mask.flatten(1)[..., None], 0.0)
