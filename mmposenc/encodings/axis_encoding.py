"""Base of the encodings whose logit term is a row term plus a column term."""
from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from ..functional.axis_attention import axis_attention
from ..functional.grids import Grid, GridLike, as_grid, key_grid
from ..functional.offset_terms import join_axis_terms, pad_prefix
from .base import RelativeEncoding

#: From this many pairs of query and key on, a form without an (Lq, Lk) tensor is the faster one.
_MANY_PAIRS = 150 * 150


class AxisEncoding(RelativeEncoding):
    """logit[i, j] = row_term[i, row of j] + column_term[i, column of j] (+ key_term[j]).

    Pairs with a prefix token have no row nor column term. Neither of the forms builds an (Lq, Lk)
    tensor; see :func:`mmposenc.functional.axis_attention.axis_attention`.
    """

    forms: tuple[str, ...] = ('chunked', 'channels')
    cellwise = True

    @abstractmethod
    def _terms(self, q: Tensor, query: Grid, key: Grid) -> tuple[Tensor, Tensor]:
        """Row and column terms of the cells' queries, as axis_terms returns them."""

    def _key_term(self, k: Tensor) -> Tensor | None:
        """A logit of each key (B or 1, heads, Lk)."""
        return None

    def _cell_terms(self, q: Tensor, query: Grid, key: Grid) -> tuple[Tensor, Tensor]:
        return self._terms(q[:, :, self.num_prefix_tokens:], query, key)

    def logits(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor:
        """The term (B, heads, Lq, Lk); shapes as :class:`RelativeEncoding`."""
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        rows, cols = self._cell_terms(q, query, key)
        term = pad_prefix(join_axis_terms(rows, cols), self.num_prefix_tokens)
        key_term = self._key_term(k)
        return term if key_term is None else term + key_term[:, :, None, :]

    def choose_form(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
                    ) -> str:
        """For many pairs 'chunked' on a CPU and 'channels' elsewhere."""
        if q.shape[2] * k.shape[2] < _MANY_PAIRS or torch.compiler.is_compiling():
            return 'definition'
        return 'chunked' if q.device.type == 'cpu' else 'channels'

    def attend(self, q: Tensor, k: Tensor, v: Tensor, q_grid: GridLike,
               k_grid: GridLike | None = None, key_padding_mask: Tensor | None = None, *,
               form: str, scale: float = 1.0) -> Tensor:
        """The whole attention; see :class:`RelativeEncoding`."""
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        q = q * scale
        rows, cols = self._cell_terms(q, query, key)
        return axis_attention(q, k, v, rows, cols, self._key_term(k), key_padding_mask,
                              self.num_prefix_tokens, form=form)


def axis_tables(lengths: tuple[int, int], dims: int, num_heads: int, shared_heads: bool
                ) -> tuple[nn.Parameter, nn.Parameter]:
    """Uninitialized tables of row and column offsets, (n, dims) or (num_heads, n, dims)."""
    lead = () if shared_heads else (num_heads,)
    row, col = (nn.Parameter(torch.empty(*lead, length, dims)) for length in lengths)
    return row, col


def as_limits(value: int | tuple[int, int], name: str) -> tuple[int, int]:
    """Check a longest offset, one for both axes or (rows, columns).

    Raises:
        ValueError: if it is no whole number >= 0, or two of them.
    """
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or any(not isinstance(x, int) or x < 0 for x in pair):
        raise ValueError(f'{name}={value!r} must be a whole number >= 0, or two: (rows, columns)')
    return pair[0], pair[1]


def check_sizes(head_dims: int, num_heads: int, num_prefix_tokens: int) -> None:
    """Raise ValueError for sizes that no encoding can have."""
    for name, value, least in (('head_dims', head_dims, 1), ('num_heads', num_heads, 1),
                               ('num_prefix_tokens', num_prefix_tokens, 0)):
        if value < least:
            raise ValueError(f'{name}={value} must be >= {least}')
