"""Products of queries with learned vectors for the position of the key in the sequence."""
from __future__ import annotations

from torch import Tensor

from ..attention.terms import Term
from ..attention.vector_terms import VectorsAddedToKeys
from ..functional.grids import Grid
from .sequence_table import SequenceTable


class QueryAbsolute1D(SequenceTable):
    """logit + q_i . table[j]: an absolute position embedding of the keys only ("Positional
    embeddings in self-attention", AI Summer).

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_tokens: longest sequence of keys, prefix tokens included.
        shared_heads: one table for all heads, or one for each head.
        num_prefix_tokens: tokens in front of the grid; they come first in the table.

    Parameters: ``table`` (max_tokens, head_dims); with ``shared_heads=False`` (num_heads, ...). It
    starts normal with standard deviation head_dims ** -0.5, as in the article.

    Tokens of an image in a padded batch are numbered without the padding.
    LearnedPositionEmbedding has a vector for each cell of the grid instead.

    Raises:
        ValueError: for bad sizes, and for a sequence longer than ``max_tokens``.
    """

    variants = {'query-absolute-1d': ('query-absolute 1-D', {})}

    @staticmethod
    def num_rows(max_tokens: int) -> int:
        """The number of rows of the table: one for each position."""
        return max_tokens

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """One :class:`VectorsAddedToKeys`; see :class:`RelativeEncoding`."""
        length = self.sequence_length(k_grid, 'k_grid')
        return [VectorsAddedToKeys(self.table.narrow(-2, 0, length))]
