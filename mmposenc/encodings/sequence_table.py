"""Base of the encodings with one learned table for a flattened sequence."""
from __future__ import annotations

from abc import abstractmethod

import torch
from torch import nn

from ..functional.grids import Grid
from .base import RelativeEncoding
from .checks import check_sizes


class SequenceTable(RelativeEncoding):
    """Vectors of the places, or of the offsets, in a sequence of at most ``max_tokens``.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_tokens: longest sequence, prefix tokens included.
        shared_heads: one table for all heads, or one a head.
        num_prefix_tokens: tokens in front of the grid; they are part of the sequence.

    Raises:
        ValueError: for bad sizes.
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
        self.table = nn.Parameter(torch.empty(*lead, self.num_rows(max_tokens), head_dims))
        self.reset_parameters()

    @staticmethod
    @abstractmethod
    def num_rows(max_tokens: int) -> int:
        """Vectors that sequences of up to so many tokens need."""

    def reset_parameters(self) -> None:
        """Normal, standard deviation head_dims ** -0.5."""
        nn.init.normal_(self.table, std=self.table.shape[-1] ** -0.5)

    def sequence_length(self, grid: Grid, name: str) -> int:
        """Tokens of a grid and those in front of it.

        Raises:
            ValueError: with the name of the grid, if they are more than the table holds.
        """
        length = self.num_prefix_tokens + grid.num_cells
        if length > self.max_tokens:
            raise ValueError(
                f'{name}=({grid.height}, {grid.width}) and num_prefix_tokens='
                f'{self.num_prefix_tokens} make {length} tokens; the table has max_tokens='
                f'{self.max_tokens}')
        return length
