"""iRPE: contextual and bias relative position encoding with 2-D buckets."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.buckets import (
    METHODS,
    BucketParams,
    add_prefix_bucket,
    bucket_params,
    grid_buckets,
    index_function,
    num_buckets,
    offset_buckets,
)
from ..functional.grids import Grid, GridLike, as_grid, key_grid
from ..functional.lookup import bucket_sums, gather_buckets
from ..functional.offsets import axis_offsets
from .base import RelativeEncoding
from .irpe_forms import attend_chunked, attend_indexed

MODES = ('contextual', 'bias')
#: (query, key) pairs from which row chunks are faster: of a bias, than a mask on fused attention
#: for inference and in training; of contextual terms, than an index of all pairs without and with a
#: term on values.
CHUNKED_INFERENCE_FROM = 300 * 300
CHUNKED_FROM = 128 * 128
CHUNKED_TERMS_FROM = 600 * 600
CHUNKED_VALUES_FROM = 400 * 400


class IRPE(RelativeEncoding):
    """Image relative position encoding (Wu et al., ICCV 2021, eqs. 6-20).

    Each pair of tokens falls into a bucket by the offset between their cells. In contextual mode a
    bucket holds a vector, which meets the query ('k'), the key ('q') or is added to the value
    ('v'); in bias mode it holds a number that is added to the logit.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        method: 'product', 'cross', 'euclidean' or 'quantization'.
        mode: 'contextual' or 'bias'.
        rpe_on: 'k', 'q', 'v' or a combination such as 'qkv'. As in the paper, 'k' gives the keys a
            position, which the queries meet.
        shared_heads: one table for all heads.
        ratio: alpha, beta, gamma are 1, 2, 8 times it; 1.9 unless the three are given.
        index: 'piecewise' or 'clip'.
        num_prefix_tokens: class and distillation tokens; they share one more bucket, whichever of
            query and key they are.
        alpha, beta, gamma: instead of ``ratio``.
        quantization: 'squared' as released or 'rank' as in the paper, for method 'quantization'.

    Tables start at zero. They are listed by ``position_tables()``: no weight decay, and nothing
    that initializes a whole model should overwrite them (:meth:`reset_parameters` restores them).
    Unlike the release, buckets are not stored and any grids of queries and keys work, and no
    (L, L, head_dims) tensor is ever built.

    Raises:
        ValueError: for an unknown option, sizes below 1, or bias mode on values.
    """

    cellwise = True

    def __init__(self, head_dims: int, num_heads: int, method: str = 'product',
                 mode: str = 'contextual', rpe_on: str = 'k', shared_heads: bool = True,
                 ratio: float | None = None, index: str = 'piecewise', num_prefix_tokens: int = 0,
                 *, alpha: float | None = None, beta: float | None = None,
                 gamma: float | None = None, quantization: str = 'squared') -> None:
        super().__init__()
        _check_options(head_dims, num_heads, method, mode, rpe_on, num_prefix_tokens)
        if ratio is None and alpha is None and beta is None and gamma is None:
            ratio = 1.9
        self.head_dims = head_dims
        self.num_heads = num_heads
        self.method = method
        self.mode = mode
        self.rpe_on = ''.join(sorted(rpe_on))
        self.shared_heads = shared_heads
        self.num_prefix_tokens = num_prefix_tokens
        self.params: BucketParams = bucket_params(ratio, alpha, beta, gamma, index, quantization)
        self.num_buckets = num_buckets(method, self.params)
        self.has_logits = 'q' in self.rpe_on or 'k' in self.rpe_on
        self.has_values = 'v' in self.rpe_on
        self.contextual = mode == 'contextual'
        self.forms = ('chunked', 'indexed') if self.contextual else ('chunked',)
        #: One table, or one for rows and one for columns.
        self.axes: tuple[str, ...] = ('_rows', '_cols') if method == 'cross' else ('',)
        for side in self.rpe_on:
            for axis in self.axes:
                self.register_parameter(f'table_{side}{axis}', nn.Parameter(self._new_table(side)))

    def _new_table(self, side: str) -> Tensor:
        heads = 1 if self.shared_heads else self.num_heads
        buckets = self.num_buckets + (self.num_prefix_tokens > 0)
        if not self.contextual:
            return torch.zeros(heads, buckets)
        if side == 'v':
            return torch.zeros(heads, buckets, self.head_dims)
        return torch.zeros(heads, self.head_dims, buckets)

    def reset_parameters(self) -> None:
        """Set the tables to zero, where they start."""
        for table in self.parameters():
            nn.init.zeros_(table)

    def tables(self, side: str) -> list[Tensor]:
        """Tables of 'q', 'k' or 'v': one, or rows and columns.

        Shapes: (heads or 1, head_dims, buckets) for contextual 'q' and 'k', (heads or 1, buckets,
        head_dims) for 'v', (heads or 1, buckets) in bias mode. With prefix tokens the last bucket
        is theirs.
        """
        return [getattr(self, f'table_{side}{axis}') for axis in self.axes]

    def bucket_ids(self, q_grid: GridLike, k_grid: GridLike | None = None,
                   device: torch.device | str | None = None) -> list[Tensor]:
        """Buckets (Lq, Lk) of all pairs, prefix tokens included; two for 'cross'."""
        ids = grid_buckets(self.method, q_grid, k_grid, self.params, device)
        return [add_prefix_bucket(each, self.num_prefix_tokens, self.num_buckets)
                for each in (ids if isinstance(ids, tuple) else (ids,))]

    def logits(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor | None:
        """Logit terms, q_i . T[b(i, j)] and k_j * scale . T[b(j, i)]; see the contract.

        The release scales the keys like the queries where they meet a table.
        """
        query, key = self._grids(q_grid, k_grid)
        term: Tensor | None = None
        if 'k' in self.rpe_on:
            ids = self.bucket_ids(query, key, q.device)
            term = self._term(q, 'k', ids)
        if 'q' in self.rpe_on:
            # b(j, i): the key is where the offset starts.
            ids = self.bucket_ids(key, query, q.device)
            on_q = self._term(k * self.head_dims ** -0.5, 'q', ids).transpose(-2, -1)
            term = on_q if term is None else term + on_q
        return term

    def _term(self, x: Tensor, side: str, ids: list[Tensor]) -> Tensor:
        """sum over tables of (x @ table)[..., ids], or of table[..., ids] in bias mode."""
        out: Tensor | None = None
        for table, each in zip(self.tables(side), ids, strict=True):
            lookup = x @ table if self.contextual else table[None, :, None].expand(
                1, -1, each.shape[0], -1)
            term = gather_buckets(lookup, each)
            out = term if out is None else out + term
        assert out is not None
        return out

    def values(self, attn: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor | None:
        """sum_j attn_ij T[b(i, j)], by adding the weights up in buckets first."""
        if not self.has_values:
            return None
        query, key = self._grids(q_grid, k_grid)
        out: Tensor | None = None
        for table, ids in zip(self.tables('v'), self.bucket_ids(query, key, attn.device),
                              strict=True):
            term = bucket_sums(attn, ids, table.shape[-2]) @ table
            out = term if out is None else out + term
        return out

    def choose_form(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
                    ) -> str:
        """By what benchmarks/relative.py measured on a CPU; elsewhere, and where the attention is
        compiled (which fuses the look-up itself), the definition."""
        if q.device.type != 'cpu' or torch.compiler.is_compiling():
            return 'definition'
        trains = torch.is_grad_enabled() and (
            q.requires_grad or k.requires_grad or any(t.requires_grad for t in self.parameters()))
        pairs = q.shape[2] * k.shape[2]
        if self.contextual:
            least = CHUNKED_VALUES_FROM if self.has_values else CHUNKED_TERMS_FROM
            return 'chunked' if pairs >= least else 'indexed'
        least = CHUNKED_FROM if trains else CHUNKED_INFERENCE_FROM
        return 'chunked' if pairs >= least else 'definition'

    def attend(self, q: Tensor, k: Tensor, v: Tensor, q_grid: GridLike,
               k_grid: GridLike | None = None, key_padding_mask: Tensor | None = None, *,
               form: str, scale: float = 1.0) -> Tensor:
        """The attention in a form of :attr:`forms`; see the contract."""
        query, key = self._grids(q_grid, k_grid)
        run = attend_indexed if form == 'indexed' else attend_chunked
        return run(self, q, k, v, query, key, key_padding_mask, scale)

    def offset_bias(self, q_grid: GridLike, k_grid: GridLike | None = None,
                    device: torch.device | str | None = None
                    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """Bias mode as a function of the offset.

        Returns:
            biases (heads or 1, Dr, Dc) of the distinct row and column offsets, that of prefix
            tokens (heads or 1,) or None, and which offset each pair of rows (Hq, Hk) and of columns
            (Wq, Wk) has.

        Raises:
            ValueError: in contextual mode.
        """
        if self.contextual:
            raise ValueError("mode='contextual' has no bias; use mode='bias'")
        query, key = self._grids(q_grid, k_grid)
        rows, row_index = axis_offsets(query.height, key.height, query.stride_h, key.stride_h,
                                       device)
        cols, col_index = axis_offsets(query.width, key.width, query.stride_w, key.stride_w, device)
        bias: Tensor | None = None
        for side in self.rpe_on:
            # On queries the offset starts at the key.
            sign = -1 if side == 'q' else 1
            if self.method == 'cross':
                by_row, by_col = self.tables(side)
                middle = int(self.params.beta)
                row_ids, col_ids = (index_function(sign * x, self.params) + middle
                                    for x in (rows, cols))
                term = by_row[:, row_ids, None] + by_col[:, None, col_ids]
            else:
                ids = offset_buckets(self.method, sign * rows, sign * cols, self.params)
                term = self.tables(side)[0][:, ids]
            bias = term if bias is None else bias + term
        assert bias is not None
        prefix = None
        if self.num_prefix_tokens:
            prefix = torch.stack([t[:, -1] for s in self.rpe_on for t in self.tables(s)]).sum(0)
        return bias, prefix, row_index, col_index

    def _grids(self, q_grid: GridLike, k_grid: GridLike | None) -> tuple[Grid, Grid]:
        query = as_grid(q_grid, 'q_grid')
        return query, key_grid(query, k_grid)

    def extra_repr(self) -> str:
        """Options, for printing a model."""
        return (f'{self.method}, {self.mode}, rpe_on={self.rpe_on}, buckets={self.num_buckets}, '
                f'shared_heads={self.shared_heads}, num_prefix_tokens={self.num_prefix_tokens}')


def _check_options(head_dims: int, num_heads: int, method: str, mode: str, rpe_on: str,
                   num_prefix_tokens: int) -> None:
    if head_dims < 1 or num_heads < 1:
        raise ValueError(f'head_dims={head_dims} and num_heads={num_heads} must be at least 1')
    if method not in METHODS:
        raise ValueError(f'method={method!r} must be one of {", ".join(METHODS)}')
    if mode not in MODES:
        raise ValueError(f'mode={mode!r} must be one of {", ".join(MODES)}')
    if not rpe_on or set(rpe_on) - set('qkv') or len(set(rpe_on)) != len(rpe_on):
        raise ValueError(f"rpe_on={rpe_on!r} must be one or more of the letters q, k, v, each once")
    if mode == 'bias' and 'v' in rpe_on:
        raise ValueError(f"rpe_on={rpe_on!r} with mode='bias': a bias can be added to the logits "
                         f"('q', 'k') but not to the values; use mode='contextual'")
    if num_prefix_tokens < 0:
        raise ValueError(f'num_prefix_tokens={num_prefix_tokens} must be >= 0')
