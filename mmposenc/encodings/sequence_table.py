"""Tables by places in the flattened sequence: the base of learned ones, and their terms."""
from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn

from ..attention.terms import DenseBias, SkewedTable, TableByQuery, Term
from ..functional.buckets import BucketParams, Buckets
from ..functional.grids import Grid
from .base import RelativeEncoding
from .checks import check_at_least


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
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        check_at_least(1, max_tokens=max_tokens)
        self.max_tokens = max_tokens
        self.table = self._empty_table(self.num_rows(max_tokens), head_dims,
                                       shared_heads=shared_heads)
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


def sequence_terms(table: Tensor, bias: Tensor | None, query: Grid, key: Grid, prefix: int
                   ) -> list[Term]:
    """A table ([heads], 2 L - 1, head_dims) and bias (heads, 2 L - 1) or None by the distance j - i
    of places in the flattened grid behind its prefix tokens. Keys on another grid take the place of
    the query cell nearest to their centre."""
    if key == query:
        return [SkewedTable(table, bias)]
    limit = float(table.shape[-2] // 2)
    buckets = Buckets('sequence', BucketParams(1.0, limit, 2.0, 'clip'), query, key, prefix, True)
    found: list[Term] = [TableByQuery(table.transpose(-2, -1), buckets)]
    if bias is not None:
        found.append(DenseBias(bias[:, buckets.ids(bias.device)][None]))
    return found
