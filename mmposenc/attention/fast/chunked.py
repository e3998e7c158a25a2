"""Attention over a few queries at a time, without an (Lq, Lk) tensor, for all terms.

A chunk's logits are written by its terms; the product of queries and keys is added by the call that
computes it. Training keeps the weights where they are small, and computes them again in the
backward pass where they are not. Dropout is drawn a chunk at a time, and again in the backward pass
from the same seed.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmposenc.functional.second_order import AutogradContext, first_order_only
from mmposenc.functional.tracing import full_precision

from ..terms import Problem
from . import thresholds
from .dropout import DropoutFactors
from .layout import Chunk, ChunkLimits, Layout, chunk_groups
from .products import add_product
from .sizes import is_trained, logits_bytes, on_cpu, pairs_of, refuse_uncomputed
from .table_writers import has_buckets_of_cells
from .writers import ChunkWork, LogitWriter, ValueWriter, Writer, has_writer
from .writers import writer as writer_of

#: Some images of a chunk, and which of their pairs may not meet: bool, broadcastable to (images,
#: heads, queries, keys).
Hide = Callable[[Chunk], Iterable[tuple[slice, Tensor]]]
EVERY_IMAGE = slice(None)


class Call(NamedTuple):
    """Everything about one attention that needs no gradient.

    scale: factor of the product of queries and keys only. keep: training keeps the weights.
    """

    writers: tuple[LogitWriter, ...]
    on_values: tuple[ValueWriter, ...]
    hides: tuple[Hide, ...]
    layout: Layout
    cut: ChunkLimits
    scale: float
    dropout: DropoutFactors | None
    keep: bool


def chunked(problem: Problem) -> Tensor:
    """softmax(q k^T * scale + terms) (v + terms on values), a few queries at a time.

    Raises:
        ValueError: for terms of the output without a writer.
    """
    refuse_uncomputed('chunked', [term for term in problem.terms if not has_writer(term)])
    dtype = problem.q.dtype
    with full_precision(problem.q):
        # float16 has no fast products on a CPU, so it is computed in float32; bfloat16 has fast
        # ones.
        work = torch.float32 if dtype == torch.float16 and on_cpu(problem) else dtype
        qkv = (problem.q.to(work), problem.k.to(work), problem.v.to(work))
        out = attend_in_chunks(_planned_call(problem, *qkv[:2]), qkv)
    return out.to(dtype)


def _planned_call(problem: Problem, q: Tensor, k: Tensor) -> Call:
    """Prepare a call: the layout of its tokens, the writers of its terms, and the sizes of its
    chunks."""
    pairs, trains = pairs_of(problem), is_trained(problem)
    with_values = any(term.on_values for term in problem.terms)
    long = pairs >= (thresholds.RUNS_WITH_VALUES_FROM if with_values else thresholds.RUNS_FROM)
    layout = Layout(problem.query, problem.key, problem.prefix, q.shape[2], k.shape[2],
                    filled=long and any(has_buckets_of_cells(term) for term in problem.terms))
    writers = [writer_of(term, q, k, layout, problem.scale) for term in problem.terms]
    hides: list[Hide] = []
    if problem.key_padding is not None:
        padding = layout.arrange(problem.key_padding[:, None, None], -1, True)
        hides.append(lambda chunk: [(EVERY_IMAGE, chunk.part_of(padding))])
    if problem.attn_mask is not None:
        hidden = layout.arrange(~problem.attn_mask, -1)
        hides.append(lambda chunk: [(EVERY_IMAGE, chunk.part_of(hidden))])
    if problem.regions is not None:
        hides.append(_function_hiding_regions(problem.regions, layout))
    keep = trains and logits_bytes(problem) <= thresholds.KEPT_BYTES
    several, one = (thresholds.CHUNK_BYTES, thresholds.ROWS_BYTES) if on_cpu(problem) else (
        thresholds.ACCELERATOR_CHUNK_BYTES, thresholds.ACCELERATOR_CHUNK_BYTES)
    if trains and pairs < thresholds.WINDOW_PAIRS:
        several //= 2
    return Call(tuple(w for w in writers if isinstance(w, LogitWriter)),
                tuple(w for w in writers if isinstance(w, ValueWriter)), tuple(hides), layout,
                ChunkLimits(several // q.element_size(), one // q.element_size(),
                            any(w.whole_rows for w in writers),
                            min((w.most_queries for w in writers if w.most_queries), default=None)),
                problem.scale,
                DropoutFactors(problem.dropout_p, q.device) if problem.dropout_p > 0.0 else None,
                keep)


def _function_hiding_regions(regions: Tensor, layout: Layout) -> Hide:
    """Hide the pairs of a chunk whose tokens lie in different regions; window b has the regions b %
    len(regions)."""
    if regions.device.type == 'cpu':
        several = (regions != regions[:, :1]).any(1).tolist()
    else:  # On an accelerator the host would have to wait to learn which regions are equal.
        several = [True] * len(regions)

    of_keys = layout.arrange(regions, -1)

    def pairs_across_regions(chunk: Chunk) -> Iterator[tuple[slice, Tensor]]:
        first, last = chunk.images.start, chunk.images.stop
        for split, neighbours in itertools.groupby(
                range(first, last), lambda window: several[window % len(several)]):
            if split:
                windows = list(neighbours)
                start, stop = windows[0], windows[-1] + 1
                # A range, because the host would wait for a list to be copied to a GPU.
                which = torch.arange(start, stop, device=regions.device) % len(several)
                queries, keys = (x[which] for x in (regions[:, chunk.queries], of_keys))
                yield (slice(start - first, stop - first),
                       (queries[:, :, None] != keys[:, None])[:, None])
    return pairs_across_regions


def attend_in_chunks(call: Call, qkv: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """softmax(q k^T * scale + terms) (v + terms on values).

    Args:
        call: what is to be done.
        qkv: q (B, heads, Lq, head_dims), k and v (B, heads, Lk, head_dims), in any strides, of the
            dtype that is computed in.

    Returns:
        (B, heads, Lq, head_dims), in the memory order of q.
    """
    writers: tuple[Writer, ...] = (*call.writers, *call.on_values)
    inputs = [x for writer in writers for x in writer.inputs]
    # No tensor that autograd knows stays in the call: it would outlive the backward pass.
    plan = call._replace(writers=tuple(w.bound_to(()) for w in call.writers),
                         on_values=tuple(w.bound_to(()) for w in call.on_values))
    counts = tuple(len(writer.inputs) for writer in writers)
    out: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
        plan, counts, *qkv, *inputs)
    return out


def without_autocast(direction: Callable[..., Any]) -> Callable[..., Any]:
    """Run the computation in the dtype of its tensors, also when the caller uses autocast."""
    def run(ctx: AutogradContext, *args: object) -> Any:
        with full_precision(next(x for x in args if isinstance(x, Tensor))):
            return direction(ctx, *args)
    return run


class _Attention(torch.autograd.Function):
    """The autograd function of :func:`attend_in_chunks`."""

    @staticmethod
    @without_autocast
    def forward(ctx: AutogradContext, call: Call, counts: tuple[int, ...], q: Tensor, k: Tensor,
                v: Tensor, *inputs: Tensor) -> Tensor:
        run = _ForwardOrBackward(call, counts, (q, k, v), inputs)
        out = torch.empty_like(q)
        stored = q.new_empty(q.shape[0] * q.shape[1], q.shape[2],
                             call.layout.num_keys) if call.keep else None
        for work, value in run.chunks_with_values():
            weights = run.compute_weights(work, stored)
            if run.dropout is not None:
                weights = run.dropout.draw(work.other).mul_(weights)
            part = _heads_view_or_empty(out, work.chunk)
            add_product(part, weights, value, beta=0.0)
            for writer in run.on_values:
                writer.add_to_output(work, weights, part)
            if run.dropout is not None:
                part *= run.dropout.scale
            _copy_back_heads(part, out, work.chunk)
        ctx.save_for_backward(q, k, v, *inputs, stored)
        ctx.call, ctx.counts = call, counts
        return out

    @staticmethod
    @first_order_only("attention in chunks has no second derivatives: build the attention or the "
                      "backbone with implementation='reference', and call it under "
                      "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)")
    @without_autocast
    def backward(ctx: AutogradContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *inputs, stored = ctx.saved_tensors
        run = _ForwardOrBackward(ctx.call, ctx.counts, (q, k, v), tuple(inputs), backward=True)
        for work, value in run.chunks_with_values():
            run.add_gradients(work, value, grad, stored)
        return (None, None, run.grad_q, run.grad_k, run.grad_v,
                *(None if not need else x.to(like.dtype) for x, like, need in zip(
                    run.grads, inputs, ctx.needs_input_grad[5:], strict=True)))


class _ForwardOrBackward:
    """One pass of one call, forward or backward: its tensors and buffers."""

    def __init__(self, call: Call, counts: tuple[int, ...], qkv: tuple[Tensor, Tensor, Tensor],
                 inputs: tuple[Tensor, ...], backward: bool = False) -> None:
        self.call, self.layout = call, call.layout
        self.q, self.k, self.v = qkv
        self.dropout = None if call.dropout is None else call.dropout.start()
        self.backward = backward
        self.grads: list[Tensor] = []
        if backward:
            # Need not be zeroed: every number of the gradients of q, k and v is written before it
            # is read.
            self.grad_q, self.grad_k, self.grad_v = (torch.empty_like(x) for x in qkv)
            self.grads = [torch.zeros_like(
                x, dtype=torch.promote_types(x.dtype, torch.float32),
                memory_format=torch.contiguous_format) for x in inputs]
        bound, first = [], 0
        for writer, count in zip((*call.writers, *call.on_values), counts, strict=True):
            part = slice(first, first + count)
            bound.append(writer.bound_to(inputs[part], tuple(self.grads[part])))
            first += count
        self.writers: list[LogitWriter] = bound[:len(call.writers)]  # type: ignore[assignment]
        self.on_values: list[ValueWriter] = bound[len(call.writers):]  # type: ignore[assignment]
        self._buffers: dict[str, Tensor] = {}

    def chunks_with_values(self) -> Iterator[tuple[ChunkWork, Tensor]]:
        """Yield every chunk, with the values of its keys."""
        nothing = self.q.new_empty(0)
        for whole, chunks in chunk_groups(self.q.shape[0], self.q.shape[1], self.layout,
                                          self.call.cut):
            keys = whole._replace(queries=slice(0, self.layout.len_k))
            # Contiguous: products of other strides are slow, and this is read for every chunk.
            q = self.q[whole.images, whole.heads].flatten(0, 1).contiguous()
            k, v = self._in_layout_order(whole, self.k), self._in_layout_order(whole, self.v)
            grad_q = grad_k = grad_v = nothing
            if self.backward:
                grad_q = _heads_view_or_empty(self.grad_q, whole)
                grad_k, grad_v = (self._key_grad_view_or_empty(keys, x)
                                  for x in (self.grad_k, self.grad_v))
            self._grad_value = grad_v
            group = ChunkWork(whole, q, k, nothing, grad_q, grad_k)
            for writer in self.writers:
                writer.before_chunks(group)
            for chunk in chunks:
                yield ChunkWork(chunk, q[:, chunk.queries], k, self._logits_buffer('other', chunk),
                                grad_q[:, chunk.queries] if self.backward else nothing, grad_k), v
            if self.backward:
                for writer in self.writers:
                    writer.after_chunks(group)
                _copy_back_heads(grad_q, self.grad_q, whole)
                _copy_back_heads(self.layout.restore(grad_k), self.grad_k, keys)
                _copy_back_heads(self.layout.restore(grad_v), self.grad_v, keys)

    def _in_layout_order(self, whole: Chunk, x: Tensor) -> Tensor:
        """Keys or values as (heads, keys, head_dims), in the order of the layout."""
        return self.layout.arrange(x[whole.images, whole.heads].flatten(0, 1).contiguous(), 1)

    def _key_grad_view_or_empty(self, keys: Chunk, x: Tensor) -> Tensor:
        """A tensor into which the gradients of keys or values are written, in the order of the
        layout."""
        if not self.layout.filled:
            return _heads_view_or_empty(x, keys)
        return x.new_empty(keys.size, self.layout.num_keys, x.shape[3])

    def _logits_buffer(self, name: str, chunk: Chunk) -> Tensor:
        """A buffer (heads, queries, keys), allocated once for all chunks of full size."""
        shape = (chunk.size, chunk.queries.stop - chunk.queries.start, self.layout.num_keys)
        size = shape[0] * shape[1] * shape[2]
        if name not in self._buffers or self._buffers[name].numel() < size:
            self._buffers[name] = self.q.new_empty(size)
        return self._buffers[name][:size].view(shape)

    def _stored_weights_view(self, chunk: Chunk, stored: Tensor) -> Tensor:
        """The part of the stored weights that belongs to a chunk."""
        first = chunk.images.start * self.q.shape[1] + chunk.heads.start
        return stored[first:first + chunk.size, chunk.queries]

    def compute_weights(self, work: ChunkWork, stored: Tensor | None) -> Tensor:
        """A tensor for the attention weights of a chunk: a part of the stored weights where they
        are stored, else the buffer."""
        target = None if stored is None else self._stored_weights_view(work.chunk, stored)
        direct = target is not None and target.is_contiguous()
        logits = (target if target is not None and direct
                  else self._logits_buffer('logits', work.chunk))
        for number, writer in enumerate(self.writers):
            writer.write(work, logits, number > 0)
        add_product(logits, work.q, work.k.transpose(1, 2), float(bool(self.writers)),
                    self.call.scale)
        if self.layout.fill:
            logits[..., self.layout.len_k:] = float('-inf')
        for hide in self.call.hides:
            for images, hidden in hide(work.chunk):
                work.chunk.by_image(logits)[images].masked_fill_(hidden, float('-inf'))
        torch.softmax(logits, -1, out=logits)
        if target is not None and not direct:
            target.copy_(logits)
        return logits

    def add_gradients(self, work: ChunkWork, value: Tensor, grad: Tensor,
                      stored: Tensor | None) -> None:
        """Add what a chunk gives to all gradients."""
        chunk = work.chunk
        g = grad[chunk.images, chunk.heads, chunk.queries].flatten(0, 1).contiguous()
        weights = (self.compute_weights(work, None) if stored is None
                   else self._stored_weights_view(chunk, stored))
        dropped, drawn = weights, None
        if self.dropout is not None:
            g = g * self.dropout.scale
            drawn = self.dropout.draw(self._logits_buffer('drawn', chunk))
        grad_logits = work.other
        for number, writer in enumerate(self.on_values):
            if number == 0:
                writer.write_weights_gradient(work, g, grad_logits)
            else:
                further = torch.empty_like(grad_logits)
                writer.write_weights_gradient(work, g, further)
                grad_logits += further
        add_product(grad_logits, g, value.transpose(1, 2), float(bool(self.on_values)))
        if drawn is not None:
            grad_logits *= drawn
            dropped = drawn.mul_(weights)
        # The first chunk overwrites what is in the sums over queries, and later ones add to them.
        beta = float(chunk.queries.start > 0)
        add_product(self._grad_value, dropped.transpose(1, 2), g, beta)
        for writer in self.on_values:
            writer.add_term_gradients(work, dropped, g)
        torch._softmax_backward_data(grad_logits, weights, -1, weights.dtype,
                                     grad_input=grad_logits)
        add_product(work.grad_q, grad_logits, work.k, 0.0, self.call.scale)
        add_product(work.grad_k, grad_logits.transpose(1, 2), work.q, beta, self.call.scale)
        for term in self.writers:
            term.add_term_gradients(work, grad_logits)


def _heads_view_or_empty(x: Tensor, chunk: Chunk) -> Tensor:
    """The chunk's place in x (B, heads, L, n) as (heads of all images, queries, n) to write to; a
    new tensor where that is no view."""
    part = x[chunk.images, chunk.heads, chunk.queries]
    return part.flatten(0, 1) if part.is_contiguous() else part.new_empty(
        chunk.size, *part.shape[2:])


def _copy_back_heads(part: Tensor, x: Tensor, chunk: Chunk) -> None:
    """Copy what :func:`_heads_view_or_empty` returned into x, unless it was a view of x."""
    if part.untyped_storage()._cdata != x.untyped_storage()._cdata:
        x[chunk.images, chunk.heads, chunk.queries] = chunk.by_image(part)
