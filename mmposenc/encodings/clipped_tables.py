"""Base class of the encodings with learned vectors for clipped offsets (Shaw, Huang)."""
from __future__ import annotations

from torch import nn

from ..functional.buckets import BucketParams, Buckets
from ..functional.grids import Grid
from .base import RelativeEncoding
from .checks import check_at_least, check_choices


class ClippedTables(RelativeEncoding):
    """One learned vector for each clipped offset, key minus query. 'product' clips the row and the
    column offset on the grid; 'sequence' clips the offset in the flattened sequence.
    """

    def __init__(self, head_dims: int, num_heads: int, max_offset: int, method: str,
                 shared_heads: bool, num_prefix_tokens: int) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        check_at_least(0, max_offset=max_offset)
        check_choices(method=(method, ('product', 'sequence')))
        self.max_offset, self.method = max_offset, method
        self.shared_heads = shared_heads
        self.cellwise = method == 'product'
        width = 2 * max_offset + 1
        #: Number of vectors; with 'product' the last one is for pairs with a prefix token.
        self.num_vectors = width if method == 'sequence' else width ** 2 + (num_prefix_tokens > 0)

    def _new_table(self) -> nn.Parameter:
        """Create an uninitialised table (n, head_dims), or one for each head."""
        return self._empty_table(self.num_vectors, self.head_dims, shared_heads=self.shared_heads)

    def reset_parameters(self) -> None:
        """Draw the tables from a truncated normal distribution with standard deviation 0.02."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def _buckets(self, q_grid: Grid, k_grid: Grid) -> Buckets:
        """The clip index of iRPE, for offsets key minus query."""
        params = BucketParams(1.0, float(self.max_offset), 2.0, 'clip')
        return Buckets(self.method, params, q_grid, k_grid, self.num_prefix_tokens, reverse=True)
