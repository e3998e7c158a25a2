"""Products of queries with learned vectors of the key's place in the sequence."""
from __future__ import annotations

import torch
from torch import nn

from ..functional.attention.sequence_terms import KeyVectors
from ..functional.attention.terms import Term
from ..functional.grids import Grid
from .base import RelativeEncoding
from .checks import check_sizes


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

    def terms(self, q_grid: Grid, k_grid: Grid) -> list[Term]:
        """One :class:`KeyVectors`; see :class:`RelativeEncoding`."""
        length = self.num_prefix_tokens + k_grid.num_cells
        if length > self.max_tokens:
            raise ValueError(
                f'k_grid=({k_grid.height}, {k_grid.width}) and num_prefix_tokens='
                f'{self.num_prefix_tokens} make {length} tokens; the table has max_tokens='
                f'{self.max_tokens}')
        return [KeyVectors(self.table.narrow(-2, 0, length))]
