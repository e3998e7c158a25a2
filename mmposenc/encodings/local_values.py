"""Convolutions of the values beside attention: LePE of CSWin and CRPE of CoaT."""
from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from ..attention.terms import LocalValues, Term
from ..functional.grids import Grid
from .base import RelativeEncoding
from .checks import check_at_least

#: Heads of CoaT's eight by the side of their kernels.
_COAT = {3: 2, 5: 3, 7: 3}


class LePE(RelativeEncoding):
    """out_i + conv(v)_i: a depthwise convolution of the values (locally-enhanced positional
    encoding, CSWin Transformer, Dong et al., CVPR 2022, Eq. 7), inside each window or over the
    whole grid, as attention is.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        kernel_size: odd side of the kernel.
        num_prefix_tokens: tokens in front of the grid, which take no part.

    Parameters: ``get_v``, a convolution named as in the release.

    Raises:
        ValueError: for bad sizes or an even kernel.

    Differs from the release: any grid, keys on a coarser one
    (:class:`~mmposenc.attention.terms.LocalValues`), padding and the regions of shifted windows.
    Dropout of the weights and ``attn_mask`` leave it as it is.
    """

    cellwise = True

    def __init__(self, head_dims: int, num_heads: int, *, kernel_size: int = 3,
                 num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        self.get_v = _conv(head_dims * num_heads, kernel_size, 'kernel_size')

    def reset_parameters(self) -> None:
        """As ``nn.Conv2d``."""
        self.get_v.reset_parameters()

    def terms(self, q_grid: Grid, k_grid: Grid) -> list[Term]:
        """One :class:`LocalValues`; see :class:`RelativeEncoding`."""
        assert self.get_v.bias is not None
        return [LocalValues(self.get_v.weight, self.get_v.bias, q_grid, k_grid,
                            self.num_prefix_tokens)]


class CRPE(RelativeEncoding):
    """out_i + q_i * conv(v)_i: a depthwise convolution of the values, channel by channel times the
    query (convolutional relative position encoding, CoaT, Xu et al., ICCV 2021, Eq. 10-11). The
    query is not scaled.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        windows: one odd side for all heads, or {side: heads}, first heads first. None shares heads
            out as CoaT does its eight: 2 have 3 x 3, 3 have 5 x 5 and 3 have 7 x 7.
        num_prefix_tokens: tokens in front of the grid, which take no part.

    Parameters: ``conv_list``, named as in the release, a convolution for each side.

    Raises:
        ValueError: for bad sizes, an even side, or windows of another number of heads.

    Differs from the release as :class:`LePE` does. There it stands beside factorized attention, and
    the blocks of a stage have one (``rel_pos_sharing='stage'``).
    """

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
            raise ValueError(f'windows={dict(windows)} must share out num_heads={num_heads}')
        self.conv_list = nn.ModuleList(_conv(head_dims * heads, side, 'windows')
                                       for side, heads in windows.items() if heads)

    def _convs(self) -> Iterable[nn.Conv2d]:
        return self.conv_list  # type: ignore[return-value]

    def reset_parameters(self) -> None:
        """As ``nn.Conv2d``."""
        for conv in self._convs():
            conv.reset_parameters()

    def terms(self, q_grid: Grid, k_grid: Grid) -> list[Term]:
        """One :class:`LocalValues`, smaller kernels with zeros around them; see
        :class:`RelativeEncoding`."""
        side = max(conv.kernel_size[0] for conv in self._convs())
        weight = torch.cat([
            nn.functional.pad(conv.weight, ((side - conv.kernel_size[0]) // 2,) * 4)
            for conv in self._convs()])
        bias = torch.cat([conv.bias for conv in self._convs() if conv.bias is not None])
        return [LocalValues(weight, bias, q_grid, k_grid, self.num_prefix_tokens, by_query=True)]


def _conv(dims: int, side: int, name: str) -> nn.Conv2d:
    check_at_least(1, **{name: side})
    if side % 2 == 0:
        raise ValueError(f'{name}={side} must be odd')
    return nn.Conv2d(dims, dims, side, padding=side // 2, groups=dims)
