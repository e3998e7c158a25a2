"""Context pooling over blocks of tokens, without an (L, L) tensor.

g_ij = r_i(row of j) * c_i(column of j): a block of weights is the outer product of its two axes,
so exponentials are taken along the axes only, and it is never kept. Everything but two matrix
products with all channels is done on the axes:

- the weights' sum D_i = sum_j w_j g_ij is r_i^T w c_i, with w laid out as a map;
- with r divided by D, S_ij = dy_i . (w_j x_j) and m_i = dy_i . y_i, the gradient of sigma_i is
  r_i'^T S_i c_i + r_i^T S_i c_i' - m_i (r_i'^T w c_i + r_i^T w c_i'), and m_i is r_i^T S_i c_i:
  S is read once, by a product with r_i and its derivative r_i';
- the gradient of w_j is x_j . G_j - sum_i m_i r_i c_i, where G = g^T (dy / D) is wanted for the
  gradient of x anyway.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..second_order import AutogradContext, first_order_only
from ..tracing import full_precision
from .kernels import axis_weights
from .partition import Block, Group, Options, block_elements, blocks_of_batch, cells_at_stride


def pool_in_blocks(x: Tensor, weights: Tensor, sigma: Tensor, hw_shape: tuple[int, int],
                   kernel: str, causal: bool, cut: float, stride: int, every: bool,
                   groups: Sequence[Group]) -> Tensor:
    """sum_j w_j g_ij x_j / sum_j w_j g_ij, where w_i > 0; else x_i.

    Args:
        x: (B, L, C), float32 or float64.
        weights: (B, L), from 0 to 1.
        sigma: (B, Lq), of the cells in every ``stride``-th row and column.
        hw_shape: (H, W).
        kernel, causal, cut: as for :func:`.kernels.axis_weights`.
        stride: step between queries.
        every: all weights are positive; whoever knows saves waiting for a device's numbers.
        groups: as for :func:`.partition.blocks_of_batch`.

    Returns:
        (B, Lq, C).
    """
    out: Tensor = _PoolInBlocks.apply(  # type: ignore[no-untyped-call]
        x.contiguous(), weights, sigma, Options(hw_shape, kernel, causal, cut, stride, every),
        groups)
    return out


class _PoolInBlocks(torch.autograd.Function):
    """The autograd function of :func:`pool_in_blocks`. It saves its inputs, and which queries form
    a block."""

    @staticmethod
    def forward(ctx: AutogradContext, x: Tensor, weights: Tensor, sigma: Tensor, options: Options,
                groups: Sequence[Group]) -> Tensor:
        ctx.save_for_backward(x, weights, sigma)
        ctx.options, ctx.blocks = options, list(blocks_of_batch(sigma, options, groups))
        work = _Work(x, weights, sigma, options)
        out = x.new_empty(*sigma.shape, x.shape[-1])
        for block in ctx.blocks:
            work.write_means(block, out)
        if options.every:
            return out
        return torch.where(weights[:, work.queries, None] > 0, out, x[:, work.queries])

    @staticmethod
    @first_order_only("context pooling by blocks has no second derivatives: use "
                      "ContextPool(implementation='reference')")
    def backward(ctx: AutogradContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weights, sigma = ctx.saved_tensors
        with full_precision(x):
            work = _Work(x, weights, sigma, ctx.options)
            every = ctx.options.every
            if every:
                taken = grad.contiguous()
            else:
                valid = weights[:, work.queries, None] > 0
                taken = torch.where(valid, grad, 0)
            grad_pooled = torch.zeros_like(x)  # the gradient of the products w_j x_j
            grad_sums = torch.zeros_like(weights)  # the gradient of w_j through the sums D_i
            grad_sigma = torch.zeros_like(sigma)
            for block in ctx.blocks:
                work.add_gradients(block, taken, grad_pooled, grad_sums, grad_sigma)
            grad_weights = torch.linalg.vecdot(x, grad_pooled) - grad_sums
            grad_x = grad_pooled.mul_(weights[..., None])
            if not every:
                grad_x.index_add_(1, work.queries, torch.where(valid, 0, grad))
        return grad_x, grad_weights, grad_sigma, None, None


class _Axes(NamedTuple):
    """The weights of a block's queries along the rows and the columns of its keys, and their
    derivatives.

    Queries are the last dimension: it is the long one, so that products of factors are vectors.
    """

    rows: Tensor  # (b, R, q)
    cols: Tensor  # (b, K, q)
    rows_slope: Tensor | None
    cols_slope: Tensor | None


class _Work:
    """Tensors and steps that the forward and the backward pass share."""

    def __init__(self, x: Tensor, weights: Tensor, sigma: Tensor, options: Options) -> None:
        height, width = options.hw_shape
        self.options, self.sigma = options, sigma
        self.maps = (x * weights[..., None]).view(len(x), height, width, -1)
        self.weights = weights.view(len(x), height, width)
        self.queries = cells_at_stride(options.hw_shape, options.stride, x.device)
        self.at = ((self.queries // width).to(x.dtype), (self.queries % width).to(x.dtype))
        self.room = block_elements(x)
        self._buffers: dict[str, Tensor] = {}

    def buffer(self, name: str, *shape: int) -> Tensor:
        """Memory that every block uses again, because fresh memory pages cost more than the
        arithmetic."""
        count = 1
        for side in shape:
            count *= side
        if name not in self._buffers or self._buffers[name].numel() < count:
            self._buffers[name] = self.maps.new_empty(count)
        return self._buffers[name][:count].view(shape)

    def axis_factors(self, block: Block, derivatives: bool) -> _Axes:
        """The factors of a block's weights; they are 0 for queries that reach no weight."""
        sigma = self.sigma[block.images]
        at = self.at
        if block.queries is not None:
            sigma, at = sigma[:, block.queries], (at[0][block.queries], at[1][block.queries])
        values = []
        for coordinate, keys, causal in ((at[0], block.rows, False),
                                         (at[1], block.cols, self.options.causal)):
            key = torch.arange(keys.start, keys.stop, device=sigma.device, dtype=sigma.dtype)
            values.append(axis_weights(self.options.kernel, coordinate - key[:, None],
                                       sigma[:, None], self.options.cut, causal, derivatives))
        (rows, rows_slope), (cols, cols_slope) = values
        total = torch.bmm(self.key_weights(block), rows).mul_(cols).sum(1, keepdim=True)
        inverse = torch.where(total > 0, 1 / total, 0)
        return _Axes(rows * inverse, cols, None if rows_slope is None else rows_slope * inverse,
                     cols_slope)

    def key_weights(self, block: Block) -> Tensor:
        """The weights w_j of a block's keys, (b, K, R)."""
        return self.weights[block.images, block.rows, block.cols].transpose(1, 2)

    def key_slices(self, axes: _Axes) -> Iterator[tuple[slice, slice]]:
        """Split a block into some of its images and some rows of their keys, whose weights fit into
        a buffer."""
        images, count, queries = axes.rows.shape
        width = axes.cols.shape[1]
        some = max(1, self.room // (queries * count * width))
        step = max(1, self.room // (min(some, images) * queries * width))
        step = -(-count // -(-count // step))
        for first in range(0, images, some):
            for row in range(0, count, step):
                yield slice(first, min(first + some, images)), slice(row, min(row + step, count))

    def weighted_cells(self, block: Block, some: slice, part: slice) -> Tensor:
        """The products w_j x_j for one of :meth:`key_slices`, (b, n, C)."""
        view = _keys_of(self.maps, block, some, part)
        if block.cols.stop - block.cols.start == self.maps.shape[2]:
            return view.flatten(1, 2)
        return self.buffer('keys', *view.shape).copy_(view).flatten(1, 2)

    def pair_factors(self, axes: _Axes, some: slice, part: slice) -> Tensor:
        """The factors g_ij (b, n, q) for one of :meth:`key_slices`."""
        rows, cols = axes.rows[some, part], axes.cols[some]
        out = self.buffer('pairs', *rows.shape[:2], *cols.shape[1:])
        return torch.mul(rows[:, :, None], cols[:, None], out=out).flatten(1, 2)

    def write_means(self, block: Block, out: Tensor) -> None:
        """Write the means of a block's queries."""
        axes = self.axis_factors(block, derivatives=False)
        images, _, queries = axes.rows.shape
        whole = block.queries is None
        total = (out[block.images] if whole
                 else self.buffer('total', images, queries, out.shape[-1]))
        for some, part in self.key_slices(axes):
            pairs = self.pair_factors(axes, some, part).transpose(1, 2)
            keys = self.weighted_cells(block, some, part)
            if part.start:
                total[some].baddbmm_(pairs, keys)
            else:
                torch.bmm(pairs, keys, out=total[some])
        if block.queries is not None:
            out[block.images.start].index_copy_(0, block.queries, total[0])

    def add_gradients(self, block: Block, grad: Tensor, grad_pooled: Tensor, grad_sums: Tensor,
                      grad_sigma: Tensor) -> None:
        """Add the part of a block's queries to the gradients."""
        axes = self.axis_factors(block, derivatives=True)
        assert axes.rows_slope is not None and axes.cols_slope is not None
        grad_queries = (grad[block.images] if block.queries is None
                        else grad[block.images.start].index_select(0, block.queries)[None])
        both = torch.stack((axes.rows, axes.rows_slope), 2)[..., None, :]  # (b, R, 2, 1, q)
        read = torch.zeros_like(axes.cols)[:, None].repeat(1, 2, 1, 1)
        for some, part in self.key_slices(axes):
            keys = self.weighted_cells(block, some, part)
            scores = self.buffer('pairs', *keys.shape[:2], grad_queries.shape[1])
            torch.bmm(keys, grad_queries[some].transpose(1, 2), out=scores)
            by_row = scores.view(len(keys), part.stop - part.start, 1, *read.shape[2:])
            total = read[some]
            for factors, each in zip(both[some, part].unbind(1), by_row.unbind(1), strict=True):
                total.addcmul_(factors, each)
            self._add_key_gradients(block, some, part, self.pair_factors(axes, some, part),
                                    grad_queries[some], grad_pooled)
        plain, sloped = read.unbind(1)
        mean = (plain * axes.cols).sum(1, keepdim=True)  # the product dy_i . y_i
        weights = self.key_weights(block)
        plain -= torch.bmm(weights, axes.rows).mul_(mean)
        sloped -= torch.bmm(weights, axes.rows_slope).mul_(mean)
        sizes = sloped.mul_(axes.cols).addcmul_(plain, axes.cols_slope).sum(1)
        grad_map = grad_sums.view(self.weights.shape)[block.images, block.rows, block.cols]
        grad_map += torch.bmm(axes.rows * mean, axes.cols.transpose(1, 2))
        if block.queries is None:
            grad_sigma[block.images] = sizes
        else:
            grad_sigma[block.images.start].index_copy_(0, block.queries, sizes[0])

    def _add_key_gradients(self, block: Block, some: slice, part: slice, pairs: Tensor,
                           grad_queries: Tensor, total: Tensor) -> None:
        """Add (g / D)^T dy to the rows of the keys that it belongs to."""
        view = _keys_of(total.view(self.maps.shape), block, some, part)
        if block.cols.stop - block.cols.start == self.maps.shape[2]:
            view.flatten(1, 2).baddbmm_(pairs, grad_queries)
            return
        out = self.buffer('keys', *view.shape).flatten(1, 2)
        view += torch.bmm(pairs, grad_queries, out=out).view(view.shape)


def _keys_of(maps: Tensor, block: Block, some: slice, part: slice) -> Tensor:
    """The part of maps (B, H, W, C) that some images and some rows of a block's keys cover."""
    images = slice(block.images.start + some.start, block.images.start + some.stop)
    rows = slice(block.rows.start + part.start, block.rows.start + part.stop)
    return maps[images, rows, block.cols]
