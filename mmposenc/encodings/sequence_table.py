"""Base class and terms of learned tables for positions in the flattened sequence."""
from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn

from ..attention.terms import DenseBias, TableByQuery, Term
from ..attention.vector_terms import SkewedTable
from ..functional.buckets import BucketParams, Buckets
from ..functional.grids import Grid
from .base import RelativeEncoding
from .checks import check_at_least


class SequenceTable(RelativeEncoding):
    """Vectors for the positions, or for the offsets, in a sequence of at most ``max_tokens``.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_tokens: longest sequence, prefix tokens included.
        shared_heads: one table for all heads, or one for each head.
        num_prefix_tokens: tokens in front of the grid; they are part of the sequence.

    Raises:
        ValueError: for bad sizes.
    """

    def __init__(self, head_dims: int, num_heads: int, *, max_tokens: int,
                 shared_heads: bool = True, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        check_at_least(1, max_tokens=max_tokens)
        self.max_tokens = max_tokens
        self.table = self._empty_table(self.num_rows(max_tokens), head_dims,
                                       shared_heads=shared_heads)
        self.reset_parameters()

    @staticmethod
    @abstractmethod
    def num_rows(max_tokens: int) -> int:
        """Number of vectors for sequences of up to ``max_tokens``."""

    def reset_parameters(self) -> None:
        """Draw the vectors from a normal distribution with standard deviation head_dims ** -0.5."""
        nn.init.normal_(self.table, std=self.table.shape[-1] ** -0.5)

    def sequence_length(self, grid: Grid, name: str) -> int:
        """The number of tokens of a grid, prefix tokens included.

        Raises:
            ValueError: if there are more than ``max_tokens``; it has the ``name`` of the grid.
        """
        length = self.num_prefix_tokens + grid.num_cells
        if length > self.max_tokens:
            raise ValueError(
                f'{name}=({grid.height}, {grid.width}) and num_prefix_tokens='
                f'{self.num_prefix_tokens} make {length} tokens; the table has max_tokens='
                f'{self.max_tokens}; give max_tokens={length}')
        return length


def sequence_terms(table: Tensor, bias: Tensor | None, query: Grid, key: Grid, prefix: int
                   ) -> list[Term]:
    """The terms of a table ([heads], 2 L - 1, head_dims) and a bias (heads, 2 L - 1) or None, which
    are read by the offset j - i in the flattened grid after its prefix tokens."""
    if key == query:
        return [SkewedTable(table, bias)]
    limit = float(table.shape[-2] // 2)
    buckets = Buckets('sequence', BucketParams(1.0, limit, 2.0, 'clip'), query, key, prefix, True)
    terms: list[Term] = [TableByQuery(table.transpose(-2, -1), buckets)]
    if bias is not None:
        terms.append(DenseBias(bias[:, buckets.stored_ids(bias.device)][None]))
    return terms
