"""The base class of encodings that rotate."""
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor

from ..attention.terms import Term
from ..functional.grids import Grid, GridLike
from .base import RelativeEncoding


class Rotation(RelativeEncoding):
    """A relative encoding that rotates queries and keys before their product; a subclass may also
    have terms, or rotate values."""

    only_rotates = True

    @property
    def rotation(self) -> Rotation | None:
        """The encoding itself."""
        return self

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> Sequence[Term]:
        """No terms, where the encoding only rotates."""
        return []

    @abstractmethod
    def rotate(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> tuple[Tensor, Tensor]:
        """Rotate queries (B, heads, Lq, head_dims) and keys (B, heads, Lk, head_dims) before their
        product; shapes stay."""

    def turn_values(self, v: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Rotate values (B, heads, Lk, head_dims) before they are summed."""
        return v

    def turn_back(self, out: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Apply the inverse of :meth:`turn_values` at the query's position to the attention output
        (B, heads, Lq, head_dims), which includes the terms on values."""
        return out
