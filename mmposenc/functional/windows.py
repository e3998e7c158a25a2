"""Shifted windows of a grid (Swin, ICCV 2021): cutting a map, joining it, and which tokens may
meet."""
from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .grids import stored, whole_cells
from .masking import are_known_equal
from .second_order import AutogradContext
from .tracing import is_compiling, is_exporting, is_transforming

#: The number of rows and of columns of windows. They are counted outside of compiled code, in which
#: a quotient of symbolic sizes takes minutes.
Counts = tuple[int, int]


def window_counts(hw_shape: tuple[int, int], window: tuple[int, int]) -> Counts:
    """The number of rows and of columns of windows that a grid fills, the last ones perhaps only in
    part."""
    return whole_cells(hw_shape[0], window[0]), whole_cells(hw_shape[1], window[1])


#: The number of the region of tokens that are no keys.
ABSENT = -1


class WindowLayout(NamedTuple):
    """The sides (Wh, Ww) of the windows of a grid, and the numbers of their rows and columns."""

    window: tuple[int, int]
    counts: Counts


def window_layout(hw_shape: tuple[int, int], window_size: tuple[int, int] | None,
                  window_count: Counts | None = None) -> WindowLayout:
    """The windows of a grid: windows of a given size, or a given number of windows of equal size,
    of which the last ones may be filled in part or not at all."""
    if window_count is None:
        assert window_size is not None
        return WindowLayout(window_size, window_counts(hw_shape, window_size))
    return WindowLayout(window_counts(hw_shape, window_count), window_count)


class Windows(NamedTuple):
    """How the tokens (B, H * W, C) of a map are cut into windows, and joined again.

    The map is filled up with zeros to the right and below, then rolled up and left by ``shift``.

    Attributes:
        hw_shape: (H, W), not filled up.
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
        """Cut a batch into windows, image by image and row by row: (B, H * W, C) -> (B * windows,
        Wh * Ww, C)."""
        x = self._with_padding_zeroed(x)
        if self._is_one_copy():
            rows = _moved(x.flatten(0, 1), *self._moves(x.shape[0], x.device))
            return rows.view(-1, self.window[0] * self.window[1], x.shape[-1])
        x = x.reshape(x.shape[0], *self.hw_shape, x.shape[-1])
        return self._split_into_windows(_fill_up(x, *self._sides()))

    def join(self, windows: Tensor) -> Tensor:
        """Join windows to a batch: (B * windows, Wh * Ww, C) -> (B, H * W, C)."""
        if not self._is_one_copy():
            return self._with_padding_zeroed(self._join(windows))
        batch = windows.shape[0] // self.num_windows
        cutting, joining = self._moves(batch, windows.device)
        rows = _moved(windows.flatten(0, 1), joining, cutting)
        cells = self.hw_shape[0] * self.hw_shape[1]
        return self._with_padding_zeroed(rows.view(batch, cells, windows.shape[-1]))

    def _is_one_copy(self) -> bool:
        """Whether to read every row where it is: filling up, rolling and cutting copy it each."""
        if is_compiling() or is_transforming() or is_exporting() or torch.jit.is_tracing():
            return False
        return any(self.shift) or self._sides() != self.hw_shape

    def _moves(self, batch: int, device: torch.device) -> tuple[_Move, _Move]:
        """How rows of the tokens of all images are cut into windows, and joined. The numbers are
        stored between calls."""
        def make() -> list[Tensor]:
            # On the CPU: an accelerator would have to be waited for, to know how many rows fill up.
            cells = torch.arange(1, 1 + batch * self.hw_shape[0] * self.hw_shape[1], device='cpu')
            filled = _fill_up(cells.view(batch, *self.hw_shape, 1), *self._sides())
            cut = self._split_into_windows(filled)  # 0 where rows fill up.
            rows = torch.arange(cut.numel(), device='cpu').view_as(cut)
            numbers = ((cut.flatten() - 1).clamp_min_(0), (cut.flatten() == 0).nonzero()[:, 0],
                       self._join(rows).flatten())
            return [each.to(device) for each in numbers]

        in_windows, empty, in_map = stored((batch, self._replace(padding_mask=None)), make, device)
        return _Move(in_windows, empty), _Move(in_map, empty[:0])

    def _join(self, windows: Tensor) -> Tensor:
        """The maps (B, H * W, C) of windows, by a roll of the joined maps."""
        (down, across), (rows, cols), channels = self._counts(), self._sides(), windows.shape[-1]
        if is_exporting():
            x = windows.flatten(0, 1).view(-1, rows * cols, channels).index_select(
                1, self._order(windows.device, back=True)).view(-1, rows, cols, channels)
        else:
            x = windows.view(-1, down, across, *self.window, channels)
            x = x.transpose(2, 3).contiguous().view(-1, rows, cols, channels)
            x = x.roll(self.shift, (1, 2)) if any(self.shift) else x
        return _cut_off(x, *self.hw_shape).flatten(1, 2)

    def repeat_for_windows(self, x: Tensor) -> Tensor:
        """Repeat what belongs to an image for each of its windows: (B, ...) -> (B * windows, ...).
        """
        if is_exporting():
            return x.index_select(0, self._image_of_each_window(x))
        return x[:, None].expand(-1, self.num_windows, *x.shape[1:]).flatten(0, 1)

    def mean_over_windows(self, x: Tensor, counted: Tensor | None = None) -> Tensor:
        """The mean over an image's windows, (B * windows, P, C) -> (B, P, C). If only some count,
        there is a bool for each window of one image or of all."""
        if is_exporting():
            weights = x.new_ones(x.shape[0], 1, 1) if counted is None else (
                counted[:, None, None].to(x.dtype))
            sums = x.new_zeros(x.shape[0] // self.num_windows, *x.shape[1:])
            images = self._image_of_each_window(sums)
            return (sums.index_add(0, images, x * weights)
                    / sums[:, :1, :1].index_add(0, images, weights).clamp_min(1))
        x = x.view(-1, self.num_windows, *x.shape[1:])
        if counted is None:
            return x.mean(1)
        weights = counted.view(-1, self.num_windows, 1, 1).to(x.dtype)
        return (x * weights).sum(1) / weights.sum(1).clamp_min(1)

    def _image_of_each_window(self, x: Tensor) -> Tensor:
        """The number of the image, among those of x, to which each window belongs. It is computed
        without an axis of windows, because an exported graph would then depend on whether there is
        only one."""
        return torch.arange(x.shape[0] * self.num_windows, device=x.device) // self.num_windows

    def regions(self, mask_window_padding: bool | str, device: torch.device | None = None,
                images: int = 1) -> Tensor | None:
        """Region of each token; tokens of a window attend to each other only inside one region.

        Rolling brings the top rows (left columns) into the windows of the bottom rows (right
        columns): those are regions of their own. So are tokens that none may attend to, which then
        have at least each other: no softmax is over nothing.

        Args:
            mask_window_padding: the zeros that fill up the last windows meet no others; 'both':
                only where rows and columns are filled up.
            images: the number B of images. An exported model gets the regions of all of them:
                whether the windows of a single image are only one would become a condition of the
                graph.

        Returns:
            (windows or B * windows, Wh * Ww) long, or None if every window is one region.
        """
        if self.padding_mask is not None:
            return self._regions(mask_window_padding, device, images)
        return stored((self, mask_window_padding),
                      lambda: self._regions(mask_window_padding, device, images), device)

    def _regions(self, mask_window_padding: bool | str, device: torch.device | None,
                 images: int) -> Tensor | None:
        absent = self._absent_keys(mask_window_padding, device)
        if absent is None and not any(self.shift):
            return None
        # The map is not rolled yet: the cells of row r < shift lie in the windows of the bottom
        # rows, and come from the top.
        top, left = (torch.arange(side, device=device) < shift
                     for side, shift in zip(self._sides(), self.shift, strict=True))
        regions = (top[:, None] * 2 + left.long())[None, :, :, None]
        if is_exporting():
            regions = regions.expand(images, -1, -1, -1)
        if absent is not None:
            regions = torch.where(absent[..., None], ABSENT, regions)
        return self._split_into_windows(regions).squeeze(-1)

    @property
    def num_windows(self) -> int:
        """The number of windows of an image."""
        down, across = self._counts()
        return down * across

    def _counts(self) -> Counts:
        return self.counts or window_counts(self.hw_shape, self.window)

    def _sides(self) -> tuple[int, int]:
        """The rows and columns of the map after it is filled up to whole windows."""
        down, across = self._counts()
        return down * self.window[0], across * self.window[1]

    def _split_into_windows(self, x: Tensor) -> Tensor:
        """Cut a map (B, Hp, Wp, C) of whole windows: (B * windows, Wh * Ww, C)."""
        (down, across), (height, width) = self._counts(), self.window
        batch, channels = x.shape[0], x.shape[-1]
        if is_exporting():
            x = x.flatten(1, 2).index_select(1, self._order(x.device))
            return x.flatten(0, 1).view(-1, height * width, channels)
        x = x.roll((-self.shift[0], -self.shift[1]), (1, 2)) if any(self.shift) else x
        x = x.view(batch, down, height, across, width, channels).transpose(2, 3).contiguous()
        return x.view(batch * down * across, height * width, channels)

    def _order(self, device: torch.device, back: bool = False) -> Tensor:
        """The numbers of the cells of a map of whole windows, window by window; with ``back``, the
        place of each cell in that order. It is computed without an axis of windows, because an
        exported graph would then depend on whether there is only one."""
        (down, across), (height, width), shift = self._counts(), self.window, self.shift
        number = torch.arange(down * height * across * width, device=device)
        # Tensors, because ONNX has no remainder of a division by a size.
        rows, cols, across, height, width = (  # type: ignore[assignment]
            torch.full((), size, device=device)
            for size in (down * height, across * width, across, height, width))
        if back:
            row, col = (number // cols + rows - shift[0]) % rows, (number + cols - shift[1]) % cols
            window_number = row // height * across + col // width
            return (window_number * height + row % height) * width + col % width
        cell, number = number % (height * width), number // (height * width)
        row = number // across * height + cell // width + shift[0]
        return row % rows * cols + (number % across * width + cell % width + shift[1]) % cols

    def _absent_keys(self, mask_window_padding: bool | str, device: torch.device | None
                     ) -> Tensor | None:
        """Tokens that are no keys, on the grid filled up to whole windows: (B, Hp, Wp), or None.

        With ``mask_window_padding`` these are all padded tokens. Without it, an image in a padded
        batch keeps those padded tokens that fill up its own last windows, so that it comes out as
        it does without padding: as zeros that are attended to, as in the releases.
        """
        mask, (rows, cols) = self.padding_mask, self._sides()
        if mask is None:
            if not mask_window_padding or are_known_equal((rows, cols), self.hw_shape):
                return None
            mask = torch.zeros(1, *self.hw_shape, dtype=torch.bool, device=device)
        valid = _fill_up(~mask[..., None], rows, cols)[..., 0]
        # Decided by the option and not by sizes, which would become a condition of the graph.
        if mask_window_padding == 'both':
            return ~(valid | valid[:, -1:, :1] | valid[:, :1, -1:])
        if mask_window_padding:
            return ~valid
        (down, across), (height, width) = self._counts(), self.window
        occupied = valid.view(-1, down, height, across, width).any(4).any(2)
        return ~occupied.repeat_interleave(height, 1).repeat_interleave(width, 2)

    def _with_padding_zeroed(self, x: Tensor) -> Tensor:
        if self.padding_mask is None:
            return x
        return x.masked_fill(self.padding_mask.flatten(1)[..., None], 0.0)


class _Move(NamedTuple):
    """The row of x that each row of the result is, and the rows of the result that are zeros."""

    places: Tensor
    empty: Tensor


class _Moved(torch.autograd.Function):
    """Rows (n, C) of x that are moved, each once. torch adds up gradients of such reading row by
    row, although there is nothing to add: here the move ``back`` is made with them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, places: Tensor, empty: Tensor, *back: Tensor) -> Tensor:
        out = x.index_select(0, places)
        return out.index_fill_(0, empty, 0) if empty.numel() else out

    @staticmethod
    def setup_context(ctx: AutogradContext, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    def backward(ctx: AutogradContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        numbers = ctx.saved_tensors
        return _moved(grad, _Move(*numbers[2:]), _Move(*numbers[:2])), None, None, None, None

    @staticmethod
    def jvp(ctx: AutogradContext, tangent: Tensor, *nothing: None) -> Tensor:
        numbers = ctx.saved_tensors
        return _moved(tangent, _Move(*numbers[:2]), _Move(*numbers[2:]))


def _moved(x: Tensor, move: _Move, back: _Move) -> Tensor:
    """What :class:`_Moved` returns, with its type."""
    moved: Tensor = _Moved.apply(x, *move, *back)  # type: ignore[no-untyped-call]
    return moved


def _fill_up(x: Tensor, rows: int, cols: int) -> Tensor:
    """Fill a map (B, H, W, C) with zeros to the right and below: (B, rows, cols, C)."""
    height, width = x.shape[1:3]
    if are_known_equal((rows, cols), (height, width)):
        return x
    if not is_compiling():
        return F.pad(x, (0, 0, 0, cols - width, 0, rows - height))
    # Always one row and column more than needed: with nothing to fill up, a graph of its own would
    # be made.
    return _cut_off(F.pad(x, (0, 0, 0, cols - width + 1, 0, rows - height + 1)), rows, cols)


def _cut_off(x: Tensor, height: int, width: int) -> Tensor:
    """The upper left part (B, height, width, C) of a map (B, H, W, C)."""
    if not is_compiling():
        return x[:, :height, :width]
    # Padded first, because a slice that takes everything would be a graph of its own.
    x = F.pad(x, (0, 0, 0, 1, 0, 1))
    return F.pad(x, (0, 0, 0, width - x.shape[2], 0, height - x.shape[1]))
