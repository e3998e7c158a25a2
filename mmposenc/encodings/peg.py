"""Positional encoding generator: a convolution over the grid of tokens."""
from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional.grids import Grid, check_tokens
from ..functional.masking import (
    are_known_equal,
    join_prefix,
    map_to_tokens,
    masked_batch_norm,
    split_prefix,
    tokens_to_map,
)
from ..functional.tracing import are_plain, autocast_dtype
from .base import TokenEncoding
from .checks import check_at_least, check_choices

#: The class of convolution for each number of axes.
_CONV: dict[int, type[nn.Conv1d | nn.Conv2d | nn.Conv3d]] = {
    1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class PEG(TokenEncoding):
    """y = x + conv(x), the conditional encoding of CPVT (Chu et al., ICLR 2023, Sec. 3.2).

    Zero padding at the image border makes the encoding absolute. Batch padding has no effect: with
    ``padding_mask`` the padded inputs of every layer are zero, BatchNorm uses valid tokens only,
    and padded tokens are returned unchanged.

    Args:
        embed_dims: channels C of the tokens.
        dims: axes of the grid: 1 for a sequence, ``hw_shape=(length,)``, 2 for a map, (H, W), 3 for
            a video, (frames, H, W). Backbones use maps.
        conv: 'depthwise' (C*k*k parameters), 'separable' (depthwise, then 1x1: C*k*k + C*C) or
            'dense' (C*C*k*k).
        kernel_size: odd k, in tokens.
        num_layers: number of consecutive convolutions in the residual branch.
        norm_act: BatchNorm and ReLU after each convolution. ``norm_act=True, bias=False`` is the
            variant for detection in the paper's first version.
        bias: give the convolutions a bias.
        frozen: keep the random initial weights (the 'fixed' ablation of the paper).
        padding: 'zeros', or 'none' for the ablation without padding, in which each layer removes
            k - 1 rows and columns and there is no residual.
        apply_to: as for :class:`.LearnedPositionEmbedding`.

    Raises:
        ValueError: for an unknown choice, an even kernel, or 'none' together with 'qk'.

    Differs from the released PosCNN: tokens are viewed as a channels_last map without a copy, a
    single convolution includes the residual in the centre of its kernel (the same sum), and padding
    is masked.
    """

    variants = {'peg': ('PEG', {}),
                'peg-bn': ('PEG with BatchNorm', dict(norm_act=True, bias=False))}
    default_positions: tuple[int, ...] | str = (0,)
    #: Whether the tokens are added to the output of the convolutions.
    residual = True

    def __init__(self, embed_dims: int, *, dims: int = 2, conv: str = 'depthwise',
                 kernel_size: int = 3, num_layers: int = 1, norm_act: bool = False,
                 bias: bool = True, frozen: bool = False, padding: str = 'zeros',
                 apply_to: str = 'qkv') -> None:
        super().__init__()
        _check_options(embed_dims, conv, kernel_size, num_layers, padding, apply_to)
        check_choices(dims=(dims, tuple(_CONV)))
        self.embed_dims, self.dims = embed_dims, dims
        self.conv = conv
        self.kernel_size = kernel_size
        self.num_layers = num_layers
        self.norm_act = norm_act
        self.padding = padding
        self.keeps_grid = padding == 'zeros'
        self.apply_to = apply_to
        pad = kernel_size // 2 if padding == 'zeros' else 0
        layers: list[nn.Module] = []
        for _ in range(num_layers):
            groups = 1 if conv == 'dense' else embed_dims
            layers.append(_CONV[dims](embed_dims, embed_dims, kernel_size, padding=pad,
                                      groups=groups, bias=bias))
            if conv == 'separable':
                layers.append(_CONV[dims](embed_dims, embed_dims, 1, bias=bias))
            if norm_act:
                layers += [nn.BatchNorm2d(embed_dims), nn.ReLU()]
        # Named 'proj' as in the release, so that its weights load without renaming.
        self.proj = nn.Sequential(*layers)
        self.reset_parameters()
        if frozen:
            self.requires_grad_(False)

    def reset_parameters(self) -> None:
        """Initialize as the release: normal with variance 2 / fan_out, zero bias."""
        for layer in self.proj:
            if isinstance(layer, _CONV[self.dims]):
                fan_out = math.prod(layer.kernel_size) * layer.out_channels
                nn.init.normal_(layer.weight, 0, math.sqrt(2.0 / (fan_out // layer.groups)))
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
            elif isinstance(layer, nn.BatchNorm2d):
                layer.reset_parameters()

    def start_at_zero(self) -> None:
        """Set the last convolution to zero, so that nothing is added to the tokens.

        Raises:
            ValueError: with ``padding='none'``, which has no residual; with ``norm_act``, since
                ReLU has no gradient at zero; with ``frozen``.
        """
        if self.padding == 'none' or self.norm_act or not self.proj[-1].weight.requires_grad:
            raise ValueError(f"zero_init=True with padding={self.padding!r}, norm_act="
                             f"{self.norm_act}, or frozen=True: a PEG that starts at zero and "
                             f"trains has padding='zeros', norm_act=False and frozen=False")
        for parameter in self.proj[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor, hw_shape: tuple[int, ...], *, num_prefix_tokens: int = 0,
                padding_mask: Tensor | None = None) -> Tensor:
        """Encode tokens.

        Args:
            x: (B, P + H*W, C), P prefix tokens first.
            hw_shape: (H, W) in tokens; ``dims`` numbers.
            num_prefix_tokens: P; returned unchanged.
            padding_mask: ``(B, *hw_shape)`` bool, True = padding.

        Returns:
            (B, P + H*W, C); with padding='none' as many as ``out_hw_shape`` has cells.

        Raises:
            ValueError: if the tokens do not fit the grid, or it is too small for padding='none'.
        """
        sides = self._checked_sides(x, hw_shape, num_prefix_tokens)
        self.out_hw_shape(sides)
        prefix, tokens = split_prefix(x, num_prefix_tokens)
        feature_map = tokens_to_map(tokens, sides)
        if padding_mask is None:
            out = self._with_residual(feature_map, None)
        else:
            mask = padding_mask[:, None]  # (B, 1, *hw_shape)
            out = self._with_residual(feature_map.masked_fill(mask, 0), padding_mask)
            if self.padding == 'zeros':
                out = torch.where(mask, feature_map, out)
        return join_prefix(prefix, map_to_tokens(out))

    def _checked_sides(self, x: Tensor, hw_shape: tuple[int, ...], num_prefix_tokens: int) -> Any:
        """Return the sides of the grid, after a check that it has ``dims`` axes and as many cells
        as x has tokens."""
        shape = hw_shape.shape if isinstance(hw_shape, Grid) else hw_shape
        if isinstance(shape, int) or len(shape) != self.dims:
            wanted = ('(length,)', '(height, width)', '(frames, height, width)')[self.dims - 1]
            raise ValueError(f'hw_shape={shape} must be {wanted}')
        grid = check_tokens(x, shape, num_prefix_tokens, any_axes=True)
        return (grid.frames, grid.height, grid.width)[3 - self.dims:]

    def out_hw_shape(self, hw_shape: tuple[int, ...]) -> Any:
        """The grid of the output: without padding each layer removes k - 1 rows and columns."""
        if self.padding == 'zeros':
            return hw_shape
        lost = self.num_layers * (self.kernel_size - 1)
        sides = tuple(side - lost for side in hw_shape)
        if any(side < 1 for side in sides):
            raise ValueError(
                f"hw_shape={tuple(hw_shape)} is too small: padding='none' with "
                f'kernel_size={self.kernel_size} and num_layers={self.num_layers} needs at least '
                f'{(lost + 1,) * self.dims}')
        return sides

    def out_padding_mask(self, padding_mask: Tensor | None) -> Tensor | None:
        """The padding mask of the output: without padding, a cell is valid if its whole window is
        valid."""
        if padding_mask is None or self.padding == 'zeros':
            return padding_mask
        lost = self.num_layers * (self.kernel_size - 1)
        # Padding is at the right and bottom, so a window is valid if its last cell is.
        shrunk = padding_mask[(slice(None), *(slice(lost, None),) * self.dims)]
        if bool(shrunk.flatten(1).all(1).any()):
            raise ValueError(f"padding_mask leaves an image no valid cell: padding='none' takes "
                             f'{lost} rows and columns away')
        return shrunk

    def _with_residual(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        """Compute x + layers(x), or layers(x) if there is no residual; padded cells of x must be
        zero."""
        if self._can_fold_residual(x):
            conv: Any = self.proj[0]
            return _CONVOLVE[self.dims](
                x, conv.weight + self._identity_kernel(conv.weight), conv.bias,
                padding=conv.padding, groups=conv.groups)
        out = x
        for index, layer in enumerate(self.proj):
            if isinstance(layer, nn.BatchNorm2d | nn.SyncBatchNorm):
                out = _norm_cells(layer, out, _cropped_mask(padding_mask, out))
                continue
            spatial = isinstance(layer, _CONV[self.dims]) and max(layer.kernel_size) > 1
            mask = _cropped_mask(padding_mask, out)
            if spatial and index and mask is not None:
                out = out.masked_fill(mask[:, None], 0)
            out = layer(out)
        return x + out if self.padding == 'zeros' and self.residual else out

    def _can_fold_residual(self, x: Tensor) -> bool:
        # In half precision w + 1 would lose digits of w, so there the residual is added separately.
        # (torch raises an error if it is asked for autocast on the meta device.)
        return (len(self.proj) == 1 and self.padding == 'zeros' and self.residual
                and are_plain(self.proj)
                and x.dtype in (torch.float32, torch.float64)
                and (x.is_meta or autocast_dtype(x.device.type) is None))

    def _identity_kernel(self, weight: Tensor) -> Tensor:
        """The kernel with which a convolution is the identity: (C, 1, k, k) or (C, C, k, k)."""
        tap = torch.zeros_like(weight)
        centre: Any = (..., *(self.kernel_size // 2,) * self.dims)
        if self.conv == 'dense':
            tap[centre] = torch.eye(self.embed_dims, dtype=weight.dtype, device=weight.device)
        else:
            tap[centre] = 1
        return tap

    def extra_repr(self) -> str:
        dims = '' if self.dims == 2 else f'dims={self.dims}, '
        return (f'{self.embed_dims}, {dims}conv={self.conv!r}, kernel_size={self.kernel_size}, '
                f'padding={self.padding!r}, apply_to={self.apply_to!r}')


def _norm_cells(norm: nn.Module, x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Apply BatchNorm to a grid of 1, 2 or 3 axes as if it were maps: a sequence has one column,
    and each frame is a map."""
    if x.dim() == 4:
        return masked_batch_norm(norm, x, padding_mask)
    if x.dim() == 3:
        mask = None if padding_mask is None else padding_mask[..., None]
        return masked_batch_norm(norm, x[..., None], mask)[..., 0]
    mask = None if padding_mask is None else padding_mask.flatten(0, 1)
    maps = masked_batch_norm(norm, x.transpose(1, 2).flatten(0, 1), mask)
    return maps.unflatten(0, (x.shape[0], x.shape[2])).transpose(1, 2)


def _cropped_mask(padding_mask: Tensor | None, x: Tensor) -> Tensor | None:
    """Crop a padding mask to a map that unpadded convolutions have made smaller."""
    if padding_mask is None:
        return None
    if are_known_equal(padding_mask.shape[1:], x.shape[2:]):
        # The same tensor is returned, because the sizes of the images are stored on it.
        return padding_mask
    lost = [old - new for old, new in zip(padding_mask.shape[1:], x.shape[2:], strict=True)]
    return padding_mask[(slice(None), *(slice(count, None) for count in lost))]


def _check_options(embed_dims: int, conv: str, kernel_size: int, num_layers: int, padding: str,
                   apply_to: str) -> None:
    check_at_least(1, embed_dims=embed_dims, num_layers=num_layers)
    check_choices(conv=(conv, ('depthwise', 'separable', 'dense')),
                  padding=(padding, ('zeros', 'none')), apply_to=(apply_to, ('qkv', 'qk')))
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f'kernel_size={kernel_size} must be odd and positive, so that a token '
                         f'is the centre of its window')
    if apply_to == 'qk' and padding == 'none':
        raise ValueError("apply_to='qk' with padding='none': keys would be fewer than values; "
                         "use padding='zeros'")
