"""Base of the encodings that add a number a head which depends on the offset alone."""
from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from ..functional.grids import Grid, GridLike, as_grid, key_grid
from ..functional.offset_terms import add_prefix_bias, table_bias
from .base import RelativeEncoding
from .chunked_tables import attend_bias, is_worth_chunking


class OffsetBias(RelativeEncoding):
    """logit[i, j] = bias[head, row offset, column offset].

    Pairs with a prefix token have a learned number a head each: ``prefix_bias`` (heads, 3) for
    prefix to cell, cell to prefix and prefix to prefix, as BEiT; an encoding with prefix tokens
    must have that parameter.
    """

    contextual = False

    def _set_heads(self, num_heads: int, num_prefix_tokens: int) -> None:
        """Set sizes and forms, and make ``prefix_bias``, uninitialized, if there are prefix
        tokens."""
        self.num_heads, self.num_prefix_tokens = num_heads, num_prefix_tokens
        self.forms = () if num_prefix_tokens else ('chunked',)
        if num_prefix_tokens:
            self.prefix_bias = torch.nn.Parameter(torch.empty(num_heads, 3))

    @abstractmethod
    def _offset_bias(self, query: Grid, key: Grid) -> tuple[Tensor, Tensor, Tensor]:
        """Bias (heads, Dr, Dc) of the distinct offsets, and which of them pairs of rows (Hq, Hk)
        and of columns (Wq, Wk) have."""

    def _pair_bias(self, query: Grid, key: Grid) -> Tensor:
        """Bias (heads, Lq, Lk) of pairs of cells."""
        return table_bias(*self._offset_bias(query, key))

    def logits(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor:
        """The bias (1, heads, Lq, Lk); ``q`` and ``k`` are not read."""
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        bias = self._pair_bias(query, key)
        return add_prefix_bias(bias, getattr(self, 'prefix_bias', None), self.num_prefix_tokens)

    def choose_form(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
                    ) -> str:
        """'chunked' for many pairs on a CPU."""
        return 'chunked' if self.forms and is_worth_chunking(q, k) else 'definition'

    def attend(self, q: Tensor, k: Tensor, v: Tensor, q_grid: GridLike,
               k_grid: GridLike | None = None, key_padding_mask: Tensor | None = None, *,
               form: str, scale: float = 1.0) -> Tensor:
        """The whole attention; see :class:`RelativeEncoding`."""
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        return attend_bias(q, k, v, query, key, *self._offset_bias(query, key), key_padding_mask,
                           scale)
