"""iRPE: contextual and bias relative position encoding with 2-D buckets."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.terms import TableByKey, TableByQuery, TableOnValues, Term
from ..attention.vector_terms import AxisHalves, OffsetBias, halves_or_table, pick_entries
from ..functional.buckets import METHODS, Buckets, axis_buckets, bucket_params, num_buckets
from ..functional.grids import Grid, GridLike
from ..functional.pair_buckets import bucket_ids
from .base import RelativeEncoding
from .checks import check_choices


class IRPE(RelativeEncoding):
    """Image relative position encoding (Wu et al., ICCV 2021, eqs. 6-20).

    The offset between the cells of two tokens determines their bucket. In contextual mode a bucket
    has a vector, which is multiplied with the query ('k') or the key ('q') or added to the value
    ('v'). In bias mode it has a number that is added to the logit.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        method: 'product', 'cross', 'euclidean' or 'quantization'.
        mode: 'contextual' or 'bias'.
        rpe_on: 'k', 'q', 'v' or a combination such as 'qkv'. As in the paper, 'k' encodes the
            position of keys, so that its vectors are multiplied with queries.
        shared_heads: one table for all heads, "shared" in the paper (Table 2). The argument
            ``rel_pos_sharing`` of a backbone shares tables between blocks.
        ratio: sets alpha, beta, gamma to 1, 2, 8 times it; 1.9 unless the three are given.
        index: 'piecewise' or 'clip'.
        num_prefix_tokens: class and distillation tokens; all pairs with one of them share one
            additional bucket.
        alpha, beta, gamma: instead of ``ratio``.
        quantization: 'squared' as in the release or 'rank' as in the paper, for 'quantization'.

    Tables start at zero. They need no weight decay, and an initialization of the whole model should
    skip them or call :meth:`reset_parameters` afterwards (see ``relative_tables()``).

    Raises:
        ValueError: for an unknown option, sizes below 1, or bias mode on values.

    Differs from the release: any grids of queries and keys; buckets are not stored, and no
    (L, L, head_dims) tensor is built.
    """

    variants = {'irpe-k': ('iRPE on keys', dict(rpe_on='k')),
                'irpe-q': ('iRPE on queries', dict(rpe_on='q')),
                'irpe-v': ('iRPE on values', dict(rpe_on='v')),
                'irpe-qk': ('iRPE on queries and keys', dict(rpe_on='qk')),
                'irpe-qkv': ('iRPE on queries, keys and values', dict(rpe_on='qkv')),
                'irpe-bias': ('iRPE as a bias', dict(mode='bias'))}
    cellwise = True

    def __init__(self, head_dims: int, num_heads: int, method: str = 'product',
                 mode: str = 'contextual', rpe_on: str = 'k', shared_heads: bool = True,
                 ratio: float | None = None, index: str = 'piecewise', num_prefix_tokens: int = 0,
                 *, alpha: float | None = None, beta: float | None = None,
                 gamma: float | None = None, quantization: str = 'squared') -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        _check_options(method, mode, rpe_on)
        if ratio is None and alpha is None and beta is None and gamma is None:
            ratio = 1.9
        self.method = method
        self.mode = mode
        self.rpe_on = ''.join(sorted(rpe_on))
        self.shared_heads = shared_heads
        self.params = bucket_params(ratio, alpha, beta, gamma, index, quantization)
        self.num_buckets = num_buckets(method, self.params)
        #: The suffixes of the names of tables: one table, or one for rows and one for columns.
        self.axes: tuple[str, ...] = ('_rows', '_cols') if method == 'cross' else ('',)
        for side in self.rpe_on:
            for axis in self.axes:
                self.register_parameter(f'table_{side}{axis}', nn.Parameter(self._new_table(side)))

    def _new_table(self, side: str) -> Tensor:
        heads = 1 if self.shared_heads else self.num_heads
        buckets = self.num_buckets + (self.num_prefix_tokens > 0)
        if self.mode == 'bias':
            return torch.zeros(heads, buckets)
        if side == 'v':
            return torch.zeros(heads, buckets, self.head_dims)
        return torch.zeros(heads, self.head_dims, buckets)

    def reset_parameters(self) -> None:
        """Set the tables to zero, as the release does."""
        for table in self.parameters():
            nn.init.zeros_(table)

    def tables_of_side(self, side: str) -> list[Tensor]:
        """Tables of 'q', 'k' or 'v': one table, or those of rows and columns.

        Shapes: (heads or 1, head_dims, buckets) for contextual 'q' and 'k', (heads or 1, buckets,
        head_dims) for 'v', (heads or 1, buckets) in bias mode. With prefix tokens the last bucket
        is for pairs with one of them.
        """
        return [getattr(self, f'table_{side}{axis}') for axis in self.axes]

    def bucket_ids(self, q_grid: GridLike, k_grid: GridLike | None = None,
                   device: torch.device | str | None = None) -> list[Tensor]:
        """The bucket of every pair (Lq, Lk), prefix tokens included; for 'cross' two such tensors.
        """
        alpha, beta, gamma, index, quantization = self.params
        ids_of_axes = bucket_ids(self.method, q_grid, k_grid, alpha=alpha, beta=beta, gamma=gamma,
                           index=index, quantization=quantization, device=device)
        prefix = self.num_prefix_tokens
        return [F.pad(ids, (prefix, 0, prefix, 0), value=self.num_buckets)
                for ids in (ids_of_axes if isinstance(ids_of_axes, tuple) else (ids_of_axes,))]

    def _buckets(self, query: Grid, key: Grid, reverse: bool = False) -> Buckets:
        """The buckets of the method; 'cross' has those of 'product', whose table is a sum of two
        tables."""
        method = 'product' if self.method == 'cross' else self.method
        return Buckets(method, self.params, query, key, self.num_prefix_tokens, reverse)

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """q_i . T[b(i, j)], k_j * scale . T[b(j, i)] and sum_j a_ij T[b(i, j)], or numbers in bias
        mode; see :class:`RelativeEncoding`. As in the release, keys that are multiplied with a
        table are scaled like the queries."""
        if self.mode == 'bias':
            return [self._offset_bias(q_grid, k_grid)]
        terms: list[Term] = []
        if 'k' in self.rpe_on:
            def one_table() -> TableByQuery:
                return TableByQuery(self._joined('k', -1), self._buckets(q_grid, k_grid))

            terms.append(one_table() if self.method != 'cross' else halves_or_table(
                q_grid, k_grid, lambda: self._halves(q_grid, k_grid), one_table))
        if 'q' in self.rpe_on:
            # The table of queries is read at b(j, i), so the offset is key minus query here.
            table = self._joined('q', -1) * self.head_dims ** -0.5
            terms.append(TableByKey(table, self._buckets(q_grid, k_grid, reverse=True)))
        if 'v' in self.rpe_on:
            terms.append(TableOnValues(self._joined('v', -2), self._buckets(q_grid, k_grid)))
        return terms

    def _joined(self, side: str, dim: int) -> Tensor:
        """The whole table; for 'cross' it has the sum of two vectors for each pair of a row and a
        column bucket."""
        tables = self.tables_of_side(side)
        if len(tables) == 1:
            return tables[0]
        rows, cols = (table.transpose(dim, -1) for table in tables)
        n = self.num_buckets
        sums = (rows[..., :n, None] + cols[..., None, :n]).flatten(-2)
        return torch.cat((sums, rows[..., n:] + cols[..., n:]), -1).transpose(dim, -1)

    def _halves(self, query: Grid, key: Grid) -> AxisHalves:
        """The vectors of 'cross' on keys by axis: for all pairs of rows, and for all pairs of
        columns."""
        rows, cols = (table.transpose(-2, -1) for table in self.tables_of_side('k'))
        row_ids, col_ids = axis_buckets(query, key, self.params, rows.device)
        prefix = rows[:, -1] + cols[:, -1] if self.num_prefix_tokens else None
        return AxisHalves(pick_entries(rows, row_ids), pick_entries(cols, col_ids),
                          self.num_prefix_tokens, prefix_vector=prefix)

    def _offset_bias(self, query: Grid, key: Grid) -> OffsetBias:
        """The numbers of bias mode, as a table by offset."""
        parts, prefixes = [], []
        for side in self.rpe_on:
            # For 'q' the offset is key minus query.
            buckets, table = self._buckets(query, key, side == 'q'), self._joined(side, -1)
            parts.append(table[:, buckets.by_offset(table.device)[0]])
            prefixes.append(table[:, -1:].expand(-1, 3))
        prefix = sum(prefixes[1:], prefixes[0]) if self.num_prefix_tokens else None
        return OffsetBias(sum(parts[1:], parts[0]), query, key, prefix, self.num_prefix_tokens)

    def extra_repr(self) -> str:
        """The options that are shown when a model is printed."""
        return (f'{self.method}, {self.mode}, rpe_on={self.rpe_on}, buckets={self.num_buckets}, '
                f'shared_heads={self.shared_heads}, num_prefix_tokens={self.num_prefix_tokens}')


def _check_options(method: str, mode: str, rpe_on: str) -> None:
    check_choices(method=(method, METHODS), mode=(mode, ('contextual', 'bias')))
    if not rpe_on or set(rpe_on) - set('qkv') or len(set(rpe_on)) != len(rpe_on):
        raise ValueError(f"rpe_on={rpe_on!r} must be one or more of the letters q, k, v, each once")
    if mode == 'bias' and 'v' in rpe_on:
        raise ValueError(f"rpe_on={rpe_on!r} with mode='bias': a bias can be added to the logits "
                         f"('q', 'k') but not to the values; use mode='contextual'")
