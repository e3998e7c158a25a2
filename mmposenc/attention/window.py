"""Window attention of Swin (shifted) and ViTDet, with any relative encoding."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional.extents import MaskLike, cells_of, check_mask, parts_of_images, run_by_image
from ..functional.grids import Grid, GridLike, as_grid, check_tokens
from ..functional.tracing import is_compiling, uncompiled
from ..functional.windows import ABSENT, Counts, WindowLayout, Windows, window_layout
from .building import build_relative_encoding
from .multihead import MultiheadAttention, check_x_qk, join_heads, split_heads

if TYPE_CHECKING:
    from ..encodings.base import RelativeConfig


class WindowAttention(MultiheadAttention):
    """Self-attention in windows (Swin Transformer, ICCV 2021, Sec. 3.2) with a relative encoding,
    whose grid is the window.

    Args:
        embed_dims: channels of the tokens; a multiple of ``num_heads``.
        num_heads: attention heads.
        window_size: side of the windows, or (Wh, Ww).
        rel_pos_encoding: a :class:`RelativeEncoding` or its config, to which ``head_dims``,
            ``num_heads`` and the size (``window_size``, ``max_size``, ``max_tokens``) are added.
            None: no encoding; Swin has ``dict(type='mmposenc.RelativePositionBias')``.
        attention: further arguments of :class:`MultiheadAttention`.

    Parameters have the names of :class:`MultiheadAttention`. With ``cosine=True`` encodings use the
    scaled queries and keys.

    Raises:
        ValueError: ``embed_dims`` is not a multiple of ``num_heads``, or the encoding has prefix
            tokens.
    """

    def __init__(self, embed_dims: int, num_heads: int, window_size: int | tuple[int, int], *,
                 rel_pos_encoding: RelativeConfig | None = None, **attention: Any) -> None:
        super().__init__(embed_dims, num_heads, **attention)
        self.window_size = _checked_window_size(window_size, self.num_prefix_tokens)
        self.rel_pos_encoding = build_relative_encoding(
            rel_pos_encoding, self.head_dims, num_heads, 0, window_size=self.window_size,
            grid_shape=self.window_size)

    def forward(self, x: Tensor, regions: Tensor | None = None, *,  # type: ignore[override]
                need_weights: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Attend in each window.

        Args:
            x: (B * windows, Wh * Ww, embed_dims), windows of an image one after the other.
            regions: (n, Wh * Ww) whole numbers, row i % n for window i: tokens attend only to
                tokens with their own number. None: to all tokens of the window.
            need_weights: also return the weights (B * windows, heads, L, L), for figures.

        Returns:
            A tensor of the shape of x, with ``need_weights`` a pair (output, weights).

        Raises:
            ValueError: x does not consist of windows, or regions do not fit.
        """
        length = self.window_size[0] * self.window_size[1]
        if x.dim() != 3 or x.shape[1:] != (length, self.embed_dims):
            raise ValueError(f'x has shape {tuple(x.shape)}; (windows, {self.window_size[0]} * '
                             f'{self.window_size[1]} = {length}, {self.embed_dims}) is required')
        if regions is not None and (regions.dim() != 2 or regions.shape[1] != length or
                                    x.shape[0] % regions.shape[0]):
            raise ValueError(f'regions has shape {tuple(regions.shape)}, which does not fit x of '
                             f'shape {tuple(x.shape)}: (n, {length}) is required, n a divisor of '
                             f'the windows')
        return self._attend_and_project(self._projected_and_normed(x), self.window_size,
                                        tokens=x, regions=regions, need_weights=need_weights)


class ShiftWindowAttention(nn.Module):
    """Swin's attention in windows of a map, shifted or not (Swin Transformer, ICCV 2021, Sec. 3.2).

    Args:
        embed_dims, num_heads, window_size: as in :class:`WindowAttention`.
        shift_size: number of cells by which windows are shifted down and right, less than the
            window.
        pad_small_map: shift also if one window spans the smaller side of the map, as in mmdet and
            mmseg. False: such maps are not shifted, as in classification.
        mask_window_padding: tokens do not attend to the zeros that fill the last windows. False:
            they do, as in the releases.
        attention: further arguments of :class:`WindowAttention`.

    The parameters are in ``w_msa``, a :class:`WindowAttention`. Results equal mmpretrain's
    ShiftWindowMSA (with ``cosine`` and ``qkv_bias='qv'``: its WindowMSAV2) and mmdet's.
    Differences: maps smaller than a window in both settings, windows that are not square, and a
    padding mask.
    """

    def __init__(self, embed_dims: int, num_heads: int, window_size: int | tuple[int, int],
                 shift_size: int | tuple[int, int] = 0, *, pad_small_map: bool = False,
                 mask_window_padding: bool = False, **attention: Any) -> None:
        super().__init__()
        self.w_msa = WindowAttention(embed_dims, num_heads, window_size, **attention)
        self.window_size = self.w_msa.window_size
        shift = (shift_size, shift_size) if isinstance(shift_size, int) else tuple(shift_size)
        if len(shift) != 2 or any(not 0 <= step < side
                                  for step, side in zip(shift, self.window_size, strict=True)):
            raise ValueError(f'shift_size={shift_size!r} must be at least 0 and less than '
                             f'window_size={self.window_size}')
        self.shift_size = (shift[0], shift[1])
        self.pad_small_map = pad_small_map
        self.mask_window_padding = mask_window_padding

    def forward(self, x: Tensor, hw_shape: GridLike, padding_mask: Tensor | None = None,
                counts: Counts | None = None) -> Tensor:
        """Attend.

        Args:
            x: (B, H * W, embed_dims).
            hw_shape: (H, W), any size.
            padding_mask: (B, H, W) bool, True = padding, at the right and bottom. Valid tokens have
                the results of the image alone; padded tokens are zero. (With
                ``pad_small_map=False`` the shift depends on the size of the map, so this holds if
                the map and the image are both larger than a window, or both not.)
            counts: numbers of rows and columns of windows, if known.

        Returns:
            (B, H * W, embed_dims).

        Raises:
            ValueError: x does not have H * W tokens, or the mask has a wrong shape or dtype.
        """
        grid = check_tokens(x, hw_shape)
        if padding_mask is not None:
            check_mask(padding_mask, (x.shape[0], *grid.hw), 'padding_mask')
        windows = Windows(grid.hw, self.window_size, self._shift_of_map(grid.hw), padding_mask,
                          counts)
        regions = windows.regions(self.mask_window_padding, x.device, x.shape[0])
        inside = windows.cut(x)  # (B, H * W, C) -> (B * windows, Wh * Ww, C)
        return windows.join(self.w_msa(inside, regions))  # (B, H * W, C)

    def _shift_of_map(self, hw_shape: tuple[int, int]) -> tuple[int, int]:
        if self.pad_small_map:
            return self.shift_size
        fits = any(side <= window for side, window in zip(hw_shape, self.window_size, strict=True))
        return (0, 0) if fits else self.shift_size


class PlainWindowAttention(MultiheadAttention):
    """Attention of a plain transformer in windows without shifts (ViTDet, Li et al., ECCV 2022,
    Sec. 3), used instead of :class:`MultiheadAttention`.

    Prefix tokens (class token, registers) are seen in every window. They are computed in each, and
    their mean over the windows goes on; with ``copied`` each window has its own.

    Args:
        embed_dims, num_heads: as in :class:`MultiheadAttention`.
        window_size: side of the windows, or (Wh, Ww); the grid of the relative encoding.
        window_count: instead of ``window_size``: rows and columns of windows on any grid.
        copied: x begins with the prefix tokens of each window, one window after the other (RF-DETR,
            Robinson et al. 2025); ``num_prefix_tokens`` counts all of them. Needs ``window_count``.
        whole_positions: the relative encoding, which must only rotate, has the positions of the
            whole grid, as without windows. False: those in the window.
        mask_window_padding: tokens do not attend to the zeros that fill the last windows, nor with
            ``whole_positions``. False: they do, as in the releases of ViTDet and SAM. 'both':
            they do not if both rows and columns of a map had to be filled up, as in Twins of mmseg
            and mmpretrain. With False and ``window_count``, windows without a cell count in the
            mean of prefix tokens that windows share.
        options: further arguments of :class:`MultiheadAttention`.

    Parameters have the names of :class:`MultiheadAttention`.

    Raises:
        ValueError: as in MultiheadAttention, or options of windows do not fit together.
    """

    def __init__(self, embed_dims: int, num_heads: int,
                 window_size: int | tuple[int, int] | None = None, *,
                 window_count: int | tuple[int, int] | None = None, copied: bool = False,
                 whole_positions: bool = False, mask_window_padding: bool | str = False,
                 **options: Any) -> None:
        size, count = window_size_or_count(window_size, window_count, copied)
        all_prefix, grid = options.get('num_prefix_tokens', 0), options.get('grid_shape')
        copies = count[0] * count[1] if copied and count is not None else 1
        if not whole_positions:
            window = size if count is None or grid is None else window_layout(
                as_grid(grid).hw, None, count).window
            options |= dict(grid_shape=window, num_prefix_tokens=all_prefix // copies)
        super().__init__(embed_dims, num_heads, **options)
        self.window_size, self.window_count, self.copied = size, count, copied
        self.num_prefix_tokens, self._all_prefix = all_prefix // copies, all_prefix
        self.whole_positions = whole_positions
        self.mask_window_padding = mask_window_padding or whole_positions
        encoding = self.rel_pos_encoding
        if whole_positions and encoding is not None and not encoding.only_rotates:
            raise ValueError(f'windows with positions of the whole grid need an encoding that only '
                             f'rotates, such as RotaryEmbedding, but rel_pos_encoding is '
                             f'{type(encoding).__name__}; give window_positions="window"')
        # With a count of windows, or with positions on the whole grid, the result for an image
        # depends on its own size.
        self._by_image = count is not None or (
            whole_positions and encoding is not None and not encoding.cellwise)

    def layout(self, hw_shape: tuple[int, int]) -> WindowLayout:
        """The sides and the number of the windows of a grid. It is computed outside of compiled
        code."""
        return window_layout(hw_shape, self.window_size, self.window_count)

    def windows(self, hw_shape: tuple[int, int], padding_mask: Tensor | None = None,
                layout: WindowLayout | None = None) -> Windows:
        """How a map is cut into windows; the mask is (B, H, W)."""
        window, counts = self.layout(hw_shape) if layout is None else layout
        return Windows(hw_shape, window, padding_mask=padding_mask, counts=counts)

    def forward(self, x: Tensor, hw_shape: GridLike,  # type: ignore[override]
                key_padding_mask: MaskLike | None = None, need_weights: bool = False, *,
                x_qk: Tensor | None = None, layout: WindowLayout | None = None
                ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend in the windows of a map.

        Args:
            x, hw_shape, key_padding_mask, x_qk: as in :class:`MultiheadAttention`; valid tokens
                have the results of the image without padding, padded tokens are zero. Prefix tokens
                are valid.
            need_weights: also return the weights (B * windows, heads, P + Wh * Ww, P + Wh * Ww).
            layout: the result of :meth:`layout`, if known.

        Returns:
            (B, L, embed_dims), with ``need_weights`` a pair (output, weights).

        Raises:
            ValueError: as in MultiheadAttention, or ``need_weights`` with a mask where windows or
                positions depend on the size of each image (``window_count``, ``whole_positions``).
        """
        grid = check_tokens(x, hw_shape, self._all_prefix)
        check_x_qk(x, x_qk)
        cells = None
        if key_padding_mask is not None:
            cells = cells_of(key_padding_mask)
            check_mask(cells, (x.shape[0], x.shape[1]), 'key_padding_mask')
            if self._by_image and need_weights:
                raise ValueError('need_weights=True with key_padding_mask: windows or positions '
                                 'depend on the size of each image here, so that the weights have '
                                 'no common shape; give each image alone, without its padding and '
                                 'without the mask')
            if self._by_image:
                return self._attend_by_image(x, grid, key_padding_mask, x_qk)
            cells = cells[:, self._all_prefix:].reshape(x.shape[0], *grid.hw)
        windows = self.windows(grid.hw, cells, layout)
        regions = windows.regions(self.mask_window_padding, x.device, x.shape[0])
        # The encoding has rotated queries and keys on the whole grid; it does nothing else.
        if self.whole_positions:
            qkv = self._rotated_qkv(x, x_qk, windows, grid)  # (B * windows, heads, P + Wh * Ww, D)
            window, tokens = None, None
        else:
            inside = self._cut_into_windows(x, windows)  # (B * windows, P + Wh * Ww, C)
            inside_qk = None if x_qk is None else self._cut_into_windows(x_qk, windows)
            qkv = self._projected_and_normed(inside, inside_qk)
            window, tokens = windows.window, inside if inside_qk is None else inside_qk
        # Prefix tokens belong to region 0, that of valid cells.
        attended = self._attend_and_project(  # (B * windows, P + Wh * Ww, C)
            qkv, window, tokens=tokens, need_weights=need_weights,
            regions=None if regions is None else F.pad(regions, (self.num_prefix_tokens, 0)))
        if isinstance(attended, tuple):
            return self._join_windows(attended[0], windows, regions), attended[1]
        return self._join_windows(attended, windows, regions)

    # Not compiled: each size of an image would become a graph of its own.
    @uncompiled
    def _attend_by_image(self, x: Tensor, grid: Grid, mask: MaskLike, x_qk: Tensor | None
                         ) -> Tensor:
        """The result of each image alone, without its padding."""
        if is_compiling():
            raise ValueError('windows by their number and positions of the whole grid depend on '
                             'the size of each image: padded batches are computed image by image, '
                             'which cannot be exported; leave the mask out, or give window_size')
        parts = parts_of_images((grid, grid), [mask], self._all_prefix)
        return run_by_image(self.forward, parts, x, x_qk)

    def _rotated_qkv(self, x: Tensor, x_qk: Tensor | None, windows: Windows, grid: Grid
                     ) -> tuple[Tensor, ...]:
        """Queries, keys and values of each window, rotated by their positions on the whole grid."""
        q, k, v = self._projected_and_normed(x, x_qk)
        if self.rel_pos_encoding is not None and self.rel_pos_encoding.rotation is not None:
            q, k = self.rel_pos_encoding.rotation.rotate(q, k, grid)
        return tuple(split_heads(self._cut_into_windows(join_heads(each), windows),
                                 self.num_heads)[0]
                     for each in (q, k, v))

    def _cut_into_windows(self, x: Tensor, windows: Windows) -> Tensor:
        """Cut a batch into windows: (B, L, C) -> (B * windows, P + Wh * Ww, C)."""
        cells, prefix = windows.cut(x[:, self._all_prefix:]), x[:, :self._all_prefix]
        if not self._all_prefix:
            return cells
        prefix = (prefix.reshape(-1, self.num_prefix_tokens, x.shape[-1]) if self.copied
                  else windows.repeat_for_windows(prefix))
        return torch.cat((prefix, cells), 1)

    def _join_windows(self, out: Tensor, windows: Windows, regions: Tensor | None) -> Tensor:
        """Join windows to a batch: (B * windows, P + Wh * Ww, C) -> (B, L, C)."""
        count = self.num_prefix_tokens
        cells = windows.join(out[:, count:])
        if not count:
            return cells
        prefix = out[:, :count]
        if self.copied:
            prefix = prefix.reshape(-1, windows.num_windows * count, out.shape[-1])
        else:
            prefix = windows.mean_over_windows(prefix, None if regions is None
                                               else (regions != ABSENT).any(1))
        return torch.cat((prefix, cells), 1)


def window_size_or_count(window_size: int | tuple[int, int] | None,
                         window_count: int | tuple[int, int] | None, copied_prefix: bool
                         ) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The size and the number of windows as pairs, of which one is None.

    Raises:
        ValueError: both are given, or none, or one is no such number, or ``copied_prefix`` needs
            the number.
    """
    if (window_size is None) == (window_count is None):
        raise ValueError(f'window_size={window_size!r} and window_count={window_count!r}: windows '
                         f'need one of the two')
    if copied_prefix and window_count is None:
        raise ValueError(f'window_size={window_size!r} with copied prefix tokens, whose number '
                         f'would depend on the image: give window_count')
    if window_count is not None:
        return None, _side_pair(window_count, 'window_count')
    assert window_size is not None
    return _side_pair(window_size, 'window_size'), None


def _side_pair(side: int | tuple[int, int], name: str) -> tuple[int, int]:
    return as_grid((side, side) if isinstance(side, int) else side, name).hw


def _checked_window_size(window_size: int | tuple[int, int], num_prefix_tokens: int
                         ) -> tuple[int, int]:
    """(Wh, Ww), after a check that all tokens lie in a window."""
    if num_prefix_tokens:
        raise ValueError(f'num_prefix_tokens={num_prefix_tokens} with window_size={window_size!r} '
                         f'must be 0: class tokens and registers lie in no window')
    return _side_pair(window_size, 'window_size')
