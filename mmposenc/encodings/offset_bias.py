"""Base of the encodings that add a number a head which depends on the offset alone."""
from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from ..functional.attention.terms import OffsetBias, Term
from ..functional.grids import Grid
from ..functional.offsets import grid_offsets
from .base import RelativeEncoding


class OffsetBiasEncoding(RelativeEncoding):
    """logit[i, j] = bias[head, row offset, column offset].

    Pairs with a prefix token have a learned number a head each: ``prefix_bias`` (heads, 3) for
    prefix to cell, cell to prefix and prefix to prefix, as BEiT.
    """

    def _set_heads(self, num_heads: int, num_prefix_tokens: int) -> None:
        """Set sizes, and make ``prefix_bias``, uninitialized, if there are prefix tokens."""
        self.num_heads, self.num_prefix_tokens = num_heads, num_prefix_tokens
        if num_prefix_tokens:
            self.prefix_bias = torch.nn.Parameter(torch.empty(num_heads, 3))

    @abstractmethod
    def offset_table(self, rows: Tensor, cols: Tensor, query: Grid) -> Tensor:
        """Bias (heads or 1, Dr, Dc) of row offsets (Dr,) and column offsets (Dc,), query minus key
        in cells of the query grid ``query``."""

    def terms(self, q_grid: Grid, k_grid: Grid) -> list[Term]:
        """One :class:`OffsetBias`; see :class:`RelativeEncoding`."""
        device = next((p.device for p in self.parameters()), None)
        rows, _, cols, _ = grid_offsets(q_grid, k_grid, device)
        return [OffsetBias(self.offset_table(rows, cols, q_grid), q_grid, k_grid,
                           getattr(self, 'prefix_bias', None), self.num_prefix_tokens)]
