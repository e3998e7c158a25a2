"""Convolutions of the values that are added to attention: LePE of CSWin and CRPE of CoaT."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.terms import Term
from ..functional.grids import Grid
from ..functional.tracing import are_plain, layer_dtype
from .base import RelativeEncoding
from .checks import check_at_least

#: For each kernel size, how many of CoaT's eight heads have it.
_COAT = {3: 2, 5: 3, 7: 3}


@dataclass(frozen=True, eq=False)
class LocalValues(Term):
    """conv(v), or q_i * conv(v), added to the output: a depthwise convolution of the map of values
    with zero padding. It excludes padded values and those of other regions. A query gets the result
    at the key cell that contains it, or at the last key cell.

    Args:
        weight: (heads * head_dims, 1, n, n), n odd. bias: (heads * head_dims,).
        query, key: the grids.
        prefix: tokens in front of either grid, which take no part.
        by_query: multiply by the query before it is scaled and rotated.
        layers: channels and convolutions of the heads, in order, where these must be called
            (:func:`mmposenc.functional.tracing.are_plain`); else empty.
    """

    weight: Tensor | None
    bias: Tensor | None
    query: Grid
    key: Grid
    prefix: int = 0
    by_query: bool = False
    layers: tuple[tuple[int, nn.Module], ...] = ()

    on_values = True
    reads_weights = False

    def output(self, q: Tensor, v: Tensor, padding: Tensor | None = None,
               regions: Tensor | None = None) -> Tensor:
        """The term (B, heads, Lq, head_dims), from queries and values (B, heads, L, head_dims) and
        the masks of a :class:`~..attention.terms.Problem`."""
        cells = v[:, :, self.prefix:].transpose(1, 2)
        batch, _, heads, dims = cells.shape
        cells = cells.flatten(2)
        if padding is not None:
            cells = cells.masked_fill(padding[:, self.prefix:, None], 0.0)
        cells = cells.view(batch, *self.key.hw, heads * dims)
        if self.layers:
            convolved = self._call(cells, regions)
        elif regions is not None:
            convolved = self._within(cells, regions)
        else:
            assert self.weight is not None and self.bias is not None
            convolved = F.conv2d(
                cells.permute(0, 3, 1, 2), self.weight.to(v.dtype), self.bias.to(v.dtype),
                padding=self.weight.shape[-1] // 2, groups=len(self.weight)).permute(0, 2, 3, 1)
        if self.key != self.query:
            for axis, (queries, keys, stride) in enumerate(zip(
                    self.query.hw, self.key.hw, (self.key.stride_h, self.key.stride_w),
                    strict=True), 1):
                at = ((torch.arange(queries, device=v.device).float() + 0.5) / stride).long()
                convolved = convolved.index_select(axis, at.clamp(max=keys - 1))
        convolved = convolved.reshape(batch, self.query.num_cells, heads, dims).transpose(1, 2)
        if self.by_query:
            convolved = convolved * q[:, :, self.prefix:]
        return F.pad(convolved, (0, 0, self.prefix, 0))

    def _call(self, cells: Tensor, regions: Tensor | None) -> Tensor:
        """The output of the layers (B, H, W, C), for the whole map or for each region with zeros
        around it."""
        if regions is not None:
            numbers = regions.view(-1, *self.key.hw, 1).repeat(len(cells) // len(regions), 1, 1, 1)
            out = torch.zeros_like(cells)
            for region in regions.unique():
                inside = numbers == region
                out = torch.where(inside, self._call(cells * inside, None), out)
            return out
        maps = torch.split(cells.permute(0, 3, 1, 2), [each for each, _ in self.layers], 1)
        outs = [layer(part.to(layer_dtype(layer)))
                for (_, layer), part in zip(self.layers, maps, strict=True)]
        return torch.cat(outs, 1).permute(0, 2, 3, 1).to(cells.dtype)

    def _within(self, cells: Tensor, regions: Tensor) -> Tensor:
        """Convolve (B, H, W, C) so that each cell reads only cells of its own region."""
        assert self.weight is not None and self.bias is not None
        (height, width), side = self.key.hw, self.weight.shape[-1]
        reach = side // 2
        regions = regions[:, self.prefix:].reshape(-1, height, width)
        regions = regions.repeat(len(cells) // len(regions), 1, 1)
        around = F.pad(cells, (0, 0, *(reach,) * 4))
        # The regions beyond the map may have any number, because values there are zero.
        beside = F.pad(regions, (reach,) * 4)
        out = self.bias.to(cells.dtype).expand_as(cells)
        for row in range(side):
            for col in range(side):
                rows, cols = slice(row, row + height), slice(col, col + width)
                other = (beside[:, rows, cols] != regions)[..., None]
                read = around[:, rows, cols] * self.weight[:, 0, row, col].to(cells.dtype)
                out = out + read.masked_fill(other, 0.0)
        return out


class LePE(RelativeEncoding):
    """out_i + conv(v)_i: a depthwise convolution of the values (locally-enhanced positional
    encoding, CSWin Transformer, Dong et al., CVPR 2022, Eq. 7), in each window or over the whole
    grid, as the attention.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        kernel_size: odd side of the kernel.
        num_prefix_tokens: tokens in front of the grid, which take no part.

    Parameters: ``get_v``, a convolution named as in the release.

    Raises:
        ValueError: for bad sizes or an even kernel.

    Differs from the release: supports any grid, keys on a coarser grid (:class:`LocalValues`),
    padding, and shifted windows. Dropout of the attention weights does not affect it, nor does
    ``attn_mask``, unless it leaves a query no key at all.
    """

    variants = {'lepe': ('LePE (CSWin)', {})}
    cellwise = True

    def __init__(self, head_dims: int, num_heads: int, *, kernel_size: int = 3,
                 num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        self.get_v = _conv(head_dims * num_heads, kernel_size, 'kernel_size')

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """One :class:`LocalValues`; see :class:`RelativeEncoding`."""
        return [_term([(self.num_heads * self.head_dims, self.get_v)], q_grid, k_grid,
                      self.num_prefix_tokens, by_query=False)]


class CRPE(RelativeEncoding):
    """out_i + q_i * conv(v)_i: a depthwise convolution of the values, channel by channel times the
    query (convolutional relative position encoding, CoaT, Xu et al., ICCV 2021, Eq. 10-11). The
    query is not scaled.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        windows: one odd kernel size for all heads, or {size: number of heads} in the order of
            heads. None uses CoaT's shares: of eight heads 2 have 3 x 3, 3 have 5 x 5, 3 have 7 x 7.
        num_prefix_tokens: tokens in front of the grid, which take no part.

    Parameters: ``conv_list``, named as in the release, a convolution for each kernel size.

    Raises:
        ValueError: for bad sizes, an even kernel size, or windows for another number of heads.

    Differs from the release as :class:`LePE` does. The release combines it with factorized
    attention and shares it in each stage (``rel_pos_sharing='stage'``).
    """

    variants = {'crpe': ('CRPE (CoaT)', {})}
    cellwise = True

    def __init__(self, head_dims: int, num_heads: int, *,
                 windows: int | Mapping[int, int] | None = None,
                 num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        if windows is None:
            ends = [round(num_heads * share / 8) for share in (2, 5, 8)]
            windows = dict(zip(_COAT, (b - a for a, b in zip([0, *ends], ends, strict=False)),
                               strict=True))
        elif isinstance(windows, int):
            windows = {windows: num_heads}
        if sum(windows.values()) != num_heads or min(windows.values()) < 0:
            raise ValueError(f'windows={dict(windows)} must add up to num_heads={num_heads}')
        self.channels = tuple(head_dims * heads for heads in windows.values() if heads)
        self.conv_list = nn.ModuleList(_conv(head_dims * heads, side, 'windows')
                                       for side, heads in windows.items() if heads)

    def _convs(self) -> Iterable[nn.Conv2d]:
        return self.conv_list  # type: ignore[return-value]

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """One :class:`LocalValues`, with smaller kernels padded with zeros; see
        :class:`RelativeEncoding`."""
        return [_term(list(zip(self.channels, self._convs(), strict=True)), q_grid, k_grid,
                      self.num_prefix_tokens, by_query=True)]


def _term(layers: list[tuple[int, nn.Conv2d]], query: Grid, key: Grid, prefix: int, by_query: bool
          ) -> LocalValues:
    """Build the term of some convolutions, each with its number of channels."""
    convs = [conv for _, conv in layers]
    if not are_plain(*convs):
        return LocalValues(None, None, query, key, prefix, by_query, tuple(layers))
    side = max(conv.kernel_size[0] for conv in convs)
    weights = [F.pad(conv.weight, ((side - conv.kernel_size[0]) // 2,) * 4) for conv in convs]
    biases = [conv.bias for conv in convs if conv.bias is not None]
    return LocalValues(torch.cat(weights), torch.cat(biases), query, key, prefix, by_query)


def _conv(dims: int, side: int, name: str) -> nn.Conv2d:
    check_at_least(1, **{name: side})
    if side % 2 == 0:
        raise ValueError(f'{name}={side} must be odd')
    return nn.Conv2d(dims, dims, side, padding=side // 2, groups=dims)
