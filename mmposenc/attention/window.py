"""Window attention of Swin (shifted) and ViTDet, with any relative encoding."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..functional.grids import GridLike, as_grid, check_tokens
from ..functional.masking import check_mask
from ..functional.windows import Counts, Windows
from .linear import check_x_qk
from .multihead import MultiheadAttention, build_relative_encoding

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
        self.window_size = _checked(window_size, self.num_prefix_tokens)
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
        return self._attend(self._project(x), self.window_size, tokens=x, regions=regions,
                            need_weights=need_weights)


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
        windows = Windows(grid.hw, self.window_size, self._shift(grid.hw), padding_mask,
                          counts)
        regions = windows.regions(self.mask_window_padding, x.device, x.shape[0])
        return windows.join(self.w_msa(windows.cut(x), regions))

    def _shift(self, hw_shape: tuple[int, int]) -> tuple[int, int]:
        if self.pad_small_map:
            return self.shift_size
        fits = any(side <= window for side, window in zip(hw_shape, self.window_size, strict=True))
        return (0, 0) if fits else self.shift_size


class PlainWindowAttention(MultiheadAttention):
    """Attention of a plain transformer in windows without shifts (ViTDet, Li et al., ECCV 2022,
    Sec. 3), used instead of :class:`MultiheadAttention`.

    Args:
        embed_dims, num_heads: as in :class:`MultiheadAttention`.
        window_size: side of the windows, or (Wh, Ww); the grid of the relative encoding.
        mask_window_padding: tokens do not attend to the zeros that fill the last windows. False:
            they do, as in the releases of ViTDet and SAM. 'both': they do not on maps of which rows
            and columns are filled up, as in Twins of mmseg and mmpretrain.
        options: further arguments of :class:`MultiheadAttention`.

    Parameters have the names of :class:`MultiheadAttention`.

    Raises:
        ValueError: as in MultiheadAttention, or there are prefix tokens, which are in no window.
    """

    def __init__(self, embed_dims: int, num_heads: int, window_size: int | tuple[int, int], *,
                 mask_window_padding: bool | str = False, **options: Any) -> None:
        window = _checked(window_size, options.get('num_prefix_tokens', 0))
        super().__init__(embed_dims, num_heads, **{**options, 'grid_shape': window})
        self.window_size, self.mask_window_padding = window, mask_window_padding

    def forward(self, x: Tensor, hw_shape: GridLike,  # type: ignore[override]
                key_padding_mask: Tensor | None = None, need_weights: bool = False, *,
                x_qk: Tensor | None = None, counts: Counts | None = None
                ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend in the windows of a map.

        Args:
            x, hw_shape, key_padding_mask, x_qk: as in :class:`MultiheadAttention`; valid tokens
                have the results of the image without padding, padded tokens are zero.
            need_weights: also return the weights (B * windows, heads, Wh * Ww, Wh * Ww).
            counts: numbers of rows and columns of windows, if known.

        Returns:
            (B, L, embed_dims), with ``need_weights`` a pair (output, weights).

        Raises:
            ValueError: as in MultiheadAttention.
        """
        grid = check_tokens(x, hw_shape)
        check_x_qk(x, x_qk)
        mask = key_padding_mask
        if mask is not None:
            check_mask(mask, (x.shape[0], x.shape[1]), 'key_padding_mask')
            mask = mask.view(x.shape[0], *grid.hw)
        windows = Windows(grid.hw, self.window_size, padding_mask=mask, counts=counts)
        regions = windows.regions(self.mask_window_padding, x.device, x.shape[0])
        x = windows.cut(x)
        x_qk = None if x_qk is None else windows.cut(x_qk)
        attended = self._attend(
            self._project(x, x_qk), self.window_size, tokens=x if x_qk is None else x_qk,
            need_weights=need_weights, regions=regions)
        if isinstance(attended, tuple):
            return windows.join(attended[0]), attended[1]
        return windows.join(attended)


def _checked(window_size: int | tuple[int, int], num_prefix_tokens: int) -> tuple[int, int]:
    """(Wh, Ww), after a check that all tokens lie in a window."""
    if num_prefix_tokens:
        raise ValueError(f'num_prefix_tokens={num_prefix_tokens} with window_size={window_size!r} '
                         f'must be 0: class tokens and registers lie in no window')
    side = (window_size, window_size) if isinstance(window_size, int) else window_size
    return as_grid(side, 'window_size').hw
