"""CoPE: positions that are counted by gates computed from queries and keys."""
from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..attention.terms import Term, pairs_of_one_region
from ..functional.grids import Grid, sequence_places
from ..functional.tracing import is_compiling
from .base import RelativeEncoding
from .checks import check_at_least


@dataclass(frozen=True, eq=False)
class GatedTableTerm(Term):
    """q_i . table[p_ij] with p_ij the sum of the gates sigmoid(q_i . k_l) over the keys l from j to
    the query (CoPE); the table is interpolated linearly between whole numbers.

    Args:
        table: ([heads], 2, n, head_dims), for keys up to the query and for later ones.
        before: (Lq, Lk) bool, the keys up to the query.
        regions: (n, L), as in a :class:`~..attention.terms.Problem`: only gates of keys of the
            query's region are added up.
    """

    table: Tensor
    before: Tensor
    regions: Tensor | None = None

    reads_queries = True
    reads_keys = True

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`. It takes 64 queries at a time, which fit in the cache:
        that is four times as fast."""
        allowed = None
        if self.regions is not None:  # Which pairs lie in one region, (B, 1, Lq, Lk).
            allowed = pairs_of_one_region(self.regions).repeat(
                q.shape[0] // len(self.regions), 1, 1)[:, None]
        if is_compiling():
            return self._logits_of_queries(q, self.before, allowed, k)
        parts = zip(torch.split(q, 64, -2), torch.split(self.before, 64),
                    itertools.repeat(None) if allowed is None else torch.split(allowed, 64, -2),
                    strict=False)
        return torch.cat([self._logits_of_queries(*some, k) for some in parts], -2)

    def within(self, regions: Tensor | None) -> Term:
        """The same term, in which gates outside of a token's region do not count."""
        return replace(self, regions=regions)

    def _logits_of_queries(self, q: Tensor, before: Tensor, allowed: Tensor | None,
                           k: Tensor) -> Tensor:
        dtype, n = torch.promote_types(q.dtype, torch.float32), self.table.shape[-2]
        gates = (q @ k.transpose(-2, -1)).to(dtype).sigmoid()
        gates = gates if allowed is None else gates * allowed
        past = gates * before
        along = past.cumsum(-1)
        past = along[..., -1:] - along + past  # The sum of the gates from key j to the query.
        count = torch.where(before, past, (gates * ~before).cumsum(-1)).clamp(0, n - 1)
        lower = count.detach().floor()
        # NaN, as in a training that diverges, is no index: its result is NaN by count - lower.
        index = lower.long().clamp(min=0) + (~before).long() * n
        lookup = (q @ self.table.flatten(-3, -2).transpose(-2, -1).to(q.dtype)).to(dtype)
        steps = F.pad(lookup.view(*lookup.shape[:-1], 2, n).diff(dim=-1), (0, 1)).flatten(-2)
        return lookup.gather(-1, index) + steps.gather(-1, index) * (count - lower)


class CoPE(RelativeEncoding):
    """logit + q_i . e[p_ij] with p_ij = sum_l sigmoid(q_i . k_l / sqrt(head_dims)) over the tokens
    l from j to i (Golovneva et al., 2024, Eq. 3-5). e is interpolated linearly between whole
    numbers; beyond the last vector it is the last.

    The attention of the paper is causal. On a grid, tokens are counted in raster order, prefix
    tokens first. For keys before the query the count runs from j to the query, as in the paper. For
    keys after it the count runs from the next token to j, with a second table. Keys on a coarser
    grid count at the cell of their centre. Padding and tokens of other regions (shifted windows)
    are not counted; those that an attention mask excludes are.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_positions: number of vectors for each direction.
        shared_heads: one table for all heads, as in the paper, or one for each head.
        num_prefix_tokens: tokens in front of the grid.

    Parameters: ``table`` ([num_heads], 2, max_positions, head_dims), for keys before and after the
    query; zeros at the start, as in the paper.

    Raises:
        ValueError: for sizes below 1, or fewer than 2 positions.
    """

    variants = {'cope': ('CoPE', {})}

    def __init__(self, head_dims: int, num_heads: int, *, max_positions: int = 64,
                 shared_heads: bool = True, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        check_at_least(2, max_positions=max_positions)
        self.table = self._empty_table(2, max_positions, head_dims, shared_heads=shared_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start with tables of zeros, which add nothing."""
        self.start_at_zero()

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """One :class:`GatedTableTerm`; see :class:`RelativeEncoding`."""
        device, prefix = self.table.device, self.num_prefix_tokens
        keys = sequence_places(q_grid, k_grid, prefix, device)
        queries = torch.arange(prefix + q_grid.num_cells, device=device)
        # Terms get scaled queries, but the paper multiplies the table with unscaled ones.
        return [GatedTableTerm(self.table * self.head_dims ** 0.5, keys <= queries[:, None])]
