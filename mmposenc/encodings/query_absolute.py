"""Products of queries with learned vectors of the key's place in the sequence."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional.grids import GridLike, key_grid
from .axis_encoding import check_sizes
from .base import RelativeEncoding


class QueryAbsolute1D(RelativeEncoding):
    """q_i . table[j]: the logit term of an absolute embedding of the keys alone ("Positional
    embeddings in self-attention", AI Summer).

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_tokens: longest sequence of keys, prefix tokens included.
        shared_heads: one table for all heads, or one a head.
        num_prefix_tokens: tokens in front of the grid; they come first in the table.

    Parameters: ``table`` (max_tokens, head_dims); with ``shared_heads=False`` (num_heads, ...). It
    starts normal with standard deviation head_dims ** -0.5, as in the article.

    A place in the sequence depends on the width of the grid, so here padding changes the result;
    LearnedPositionEmbedding has vectors by cell.

    Raises:
        ValueError: for bad sizes, and in use for a longer sequence.
    """

    forms = ('keys',)

    def __init__(self, head_dims: int, num_heads: int, *, max_tokens: int,
                 shared_heads: bool = True, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        check_sizes(head_dims, num_heads, num_prefix_tokens)
        if max_tokens < 1:
            raise ValueError(f'max_tokens={max_tokens} must be >= 1')
        self.max_tokens = max_tokens
        self.head_dims, self.num_heads = head_dims, num_heads
        self.num_prefix_tokens = num_prefix_tokens
        lead = () if shared_heads else (num_heads,)
        self.table = nn.Parameter(torch.empty(*lead, max_tokens, head_dims))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal, standard deviation head_dims ** -0.5."""
        nn.init.normal_(self.table, std=self.table.shape[-1] ** -0.5)

    def logits(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor:
        """The term (B, heads, Lq, Lk); shapes as :class:`RelativeEncoding`."""
        return q @ self._vectors(q_grid, k_grid).transpose(-2, -1)

    def choose_form(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
                    ) -> str:
        """'keys': adding the vectors to the keys is exact and costs nothing."""
        return 'keys'

    def attend(self, q: Tensor, k: Tensor, v: Tensor, q_grid: GridLike,
               k_grid: GridLike | None = None, key_padding_mask: Tensor | None = None, *,
               form: str, scale: float = 1.0) -> Tensor:
        """The whole attention, with keys k_j + table[j]; see :class:`RelativeEncoding`."""
        keep = None if key_padding_mask is None else ~key_padding_mask[:, None, None, :]
        return F.scaled_dot_product_attention(q, k + self._vectors(q_grid, k_grid), v,
                                              attn_mask=keep, scale=scale)

    def _vectors(self, q_grid: GridLike, k_grid: GridLike | None) -> Tensor:
        """Vectors ([heads], Lk, head_dims) of the keys."""
        key = key_grid(q_grid, k_grid)
        length = self.num_prefix_tokens + key.num_cells
        if length > self.max_tokens:
            raise ValueError(
                f'k_grid=({key.height}, {key.width}) and num_prefix_tokens='
                f'{self.num_prefix_tokens} make {length} tokens; the table has max_tokens='
                f'{self.max_tokens}')
        return self.table.narrow(-2, 0, length)
