"""Attention over a few queries at a time, without an (Lq, Lk) tensor, for all terms.

A chunk's logits are written by its terms; the product of queries and keys is added by the call that
computes it. Training keeps the weights where they are small, and computes them again in the
backward pass where they are not. Dropout is drawn a chunk at a time, and again in the backward pass
from the same seed.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mmposenc.functional.second_order import AutogradContext, first_order_only
from mmposenc.functional.tracing import full_precision

from ..terms import Problem
from . import thresholds
from .dropout import DropoutFactors
from .layout import Chunk, Layout, chunk_groups
from .products import add_product
from .term_writers import writer_of
from .writers import ChunkWork, Writer

#: Sets the logits (images, heads, queries, keys) of a chunk to minus infinity where tokens may not
#: meet.
Hide = Callable[[Chunk, Tensor], None]


class Call(NamedTuple):
    """Everything about one attention that needs no gradient.

    writers: those of the terms of the logits. on_values: those of the terms of the output. scale:
    the factor of the product of queries and keys only. keep: training keeps the weights.
    """

    writers: tuple[Writer, ...]
    on_values: tuple[Writer, ...]
    hides: tuple[Hide, ...]
    layout: Layout
    scale: float
    dropout: DropoutFactors | None
    keep: bool


def chunked(problem: Problem) -> Tensor:
    """softmax(q k^T * scale + terms) (v + terms on values), a few queries at a time."""
    dtype = problem.q.dtype
    with full_precision(problem.q):
        # float16 has no fast products on a CPU, so it is computed in float32; bfloat16 has fast
        # ones.
        work = torch.float32 if dtype == torch.float16 and problem.on_cpu else dtype
        problem = problem._replace(
            q=problem.q.to(work), k=problem.k.to(work), v=problem.v.to(work))
        call = planned_call(problem)
        writers = (*call.writers, *call.on_values)
        # No tensor that autograd knows stays in the call: it would outlive the backward pass.
        out: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
            call._replace(writers=tuple(writer.bound_to(()) for writer in call.writers),
                          on_values=tuple(writer.bound_to(()) for writer in call.on_values)),
            tuple(len(writer.inputs) for writer in writers), problem.q, problem.k, problem.v,
            *(x for writer in writers for x in writer.inputs))
    return out.to(dtype)


def planned_call(problem: Problem) -> Call:
    """Prepare a call: the writers of its terms, its masks and the sizes of its chunks."""
    q, pairs, trains = problem.q, problem.pairs, problem.is_trained
    writers = [writer_of(term, problem) for term in problem.terms]
    hides = []
    if problem.key_padding is not None:
        hides.append(_hide_by(problem.key_padding[:, None, None]))
    if problem.attn_mask is not None:
        hides.append(_hide_by(~problem.attn_mask))
    if problem.regions is not None:
        hides.append(hide_regions(problem.regions))
    several, one = (thresholds.CHUNK_BYTES, thresholds.ROWS_BYTES) if problem.on_cpu else (
        thresholds.ACCELERATOR_CHUNK_BYTES, thresholds.ACCELERATOR_CHUNK_BYTES)
    if trains and pairs < thresholds.WINDOW_PAIRS:
        several //= 2
    on_values = [writer for term, writer in zip(problem.terms, writers, strict=True)
                 if term.on_values]
    return Call(
        tuple(w for w in writers if w not in on_values), tuple(on_values), tuple(hides),
        Layout(problem.query, problem.prefix, q.shape[2], problem.k.shape[2],
               several // q.element_size(), one // q.element_size(),
               any(w.whole_rows for w in writers),
               min((w.most_queries for w in writers if w.most_queries), default=None)),
        problem.scale,
        DropoutFactors(problem.dropout_p, q.device) if problem.dropout_p > 0.0 else None,
        trains and problem.logits_bytes <= thresholds.KEPT_BYTES)


def _hide_by(hidden: Tensor) -> Hide:
    """Hide where a mask (B or 1, heads or 1, Lq or 1, Lk) is True."""
    def hide(chunk: Chunk, logits: Tensor) -> None:
        logits.masked_fill_(chunk.part_of(hidden), float('-inf'))
    return hide


def hide_regions(regions: Tensor) -> Hide:
    """Hide the pairs of tokens in different regions; window b has the regions b % len(regions)."""
    if regions.device.type == 'cpu':
        several = (regions != regions[:, :1]).any(1).tolist()
    else:  # On an accelerator the host would have to wait to learn which regions are equal.
        several = [True] * len(regions)

    def hide(chunk: Chunk, logits: Tensor) -> None:
        first = chunk.images.start
        for split, neighbours in itertools.groupby(
                range(first, chunk.images.stop), lambda window: several[window % len(several)]):
            if split:
                windows = list(neighbours)
                start, stop = windows[0], windows[-1] + 1
                # A range, because the host would wait for a list to be copied to a GPU.
                which = torch.arange(start, stop, device=regions.device) % len(several)
                queries, keys = regions[:, chunk.queries][which], regions[which]
                logits[start - first:stop - first].masked_fill_(
                    (queries[:, :, None] != keys[:, None])[:, None], float('-inf'))
    return hide


class _Attention(torch.autograd.Function):
    """The autograd function of :func:`chunked`."""

    @staticmethod
    def forward(ctx: AutogradContext, call: Call, counts: tuple[int, ...], q: Tensor, k: Tensor,
                v: Tensor, *inputs: Tensor) -> Tensor:
        stored = q.new_empty(*q.shape[:3], k.shape[2]) if call.keep else None
        ctx.save_for_backward(q, k, v, *inputs, stored)
        ctx.call, ctx.counts = call, counts
        return _Pass(call, counts, (q, k, v), inputs, stored).forward()

    @staticmethod
    @first_order_only("attention in chunks has no second derivatives: build the attention or the "
                      "backbone with implementation='reference', and call it under "
                      "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)")
    def backward(ctx: AutogradContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *inputs, stored = ctx.saved_tensors
        with full_precision(grad):  # Also when the caller uses autocast.
            run = _Pass(ctx.call, ctx.counts, (q, k, v), inputs, stored, backward=True)
            grads = run.backward(grad)
        return (None, None, *grads, *(
            None if not need else total.to(like.dtype) for total, like, need in zip(
                run.grads, inputs, ctx.needs_input_grad[5:], strict=True)))


class _Pass:
    """One pass over the chunks of one call, forward or backward: its tensors and buffers."""

    def __init__(self, call: Call, counts: tuple[int, ...], qkv: tuple[Tensor, Tensor, Tensor],
                 inputs: Sequence[Tensor], stored: Tensor | None, backward: bool = False) -> None:
        self.call, self.qkv, self.stored = call, qkv, stored
        self.dropout = None if call.dropout is None else call.dropout.start()
        self.grads = [torch.zeros_like(
            x, dtype=torch.promote_types(x.dtype, torch.float32),
            memory_format=torch.contiguous_format) for x in inputs if backward]
        bound, first = [], 0
        for writer, count in zip((*call.writers, *call.on_values), counts, strict=True):
            part = slice(first, first + count)
            bound.append(writer.bound_to(tuple(inputs[part]), tuple(self.grads[part])))
            first += count
        self.writers, self.on_values = bound[:len(call.writers)], bound[len(call.writers):]
        self._nothing = qkv[0].new_empty(0)
        self._buffers: dict[str, Tensor] = {}

    def _groups(self) -> Iterator[tuple[Chunk, list[Chunk], list[Tensor]]]:
        """Yield every group of heads, its chunks, and its queries, keys and values (heads, L,
        head_dims). They are contiguous: products of other strides are slow, and keys and values are
        read for every chunk."""
        images, heads = self.qkv[0].shape[:2]
        for whole, chunks in chunk_groups(images, heads, self.call.layout):
            yield whole, chunks, [_heads(x, whole) for x in self.qkv]

    def _works(self, group: ChunkWork, chunks: list[Chunk]) -> Iterator[ChunkWork]:
        """The chunks of a group as writers see them."""
        for chunk in chunks:
            grad_q = group.grad_q[:, chunk.queries] if group.grad_q.numel() else self._nothing
            yield group._replace(chunk=chunk, q=group.q[:, chunk.queries], grad_q=grad_q,
                                 other=self._buffer('other', chunk))

    def forward(self) -> Tensor:
        """The output, in the memory order of q."""
        out = torch.empty_like(self.qkv[0])
        for whole, chunks, (q, k, v) in self._groups():
            part = _heads_view_or_empty(out, whole)
            group = ChunkWork(whole, q, k, self._nothing, self._nothing, self._nothing)
            for writer in self.writers:
                writer.before_chunks(group)
            for work in self._works(group, chunks):
                weights = self._weights(work)
                if self.dropout is not None:
                    weights = self.dropout.draw(work.other).mul_(weights)
                out_part = part[:, work.chunk.queries]
                add_product(out_part, weights, v, beta=0.0)
                # What others add to the gradient of queries, a term on values adds to the output.
                for writer in self.on_values:
                    writer.add_gradients(work._replace(q=self._nothing, grad_q=out_part), weights)
            if self.dropout is not None:
                part *= self.dropout.scale
            _copy_back_heads(part, out, whole)
        return out

    def backward(self, grad: Tensor) -> list[Tensor]:
        """The gradients of q, k and v; those of the inputs of writers are added to ``grads``."""
        # Need not be zeroed: every number is written before it is read.
        grads = [torch.empty_like(x) for x in self.qkv]
        for whole, chunks, (q, k, v) in self._groups():
            keys = whole._replace(queries=slice(0, self.call.layout.len_k))
            parts = [_heads_view_or_empty(x, which)
                     for x, which in zip(grads, (whole, keys, keys), strict=True)]
            out_grad = _heads(grad, whole)
            if self.dropout is not None:
                out_grad = out_grad * self.dropout.scale
            group = ChunkWork(whole, q, k, parts[0], parts[1], self._nothing)
            for writer in self.writers:
                writer.before_chunks(group)
            for work in self._works(group, chunks):
                self._add_gradients(work, v, out_grad[:, work.chunk.queries], parts[2])
            for writer in self.writers:
                writer.after_chunks(group)
            for part, x, which in zip(parts, grads, (whole, keys, keys), strict=True):
                _copy_back_heads(part, x, which)
        return grads

    def _buffer(self, name: str, chunk: Chunk) -> Tensor:
        """A buffer (heads, queries, keys), allocated once for all chunks of full size."""
        shape = (chunk.size, chunk.num_queries, self.call.layout.len_k)
        size = shape[0] * shape[1] * shape[2]
        if name not in self._buffers or self._buffers[name].numel() < size:
            self._buffers[name] = self._nothing.new_empty(size)
        return self._buffers[name][:size].view(shape)

    def _weights(self, work: ChunkWork) -> Tensor:
        """Compute the attention weights of a chunk, and store them where they are stored."""
        chunk, call = work.chunk, self.call
        target = None if self.stored is None else self.stored[
            chunk.images, chunk.heads, chunk.queries]
        direct = target is not None and target.is_contiguous()
        logits = (target.flatten(0, 1) if target is not None and direct
                  else self._buffer('logits', chunk))
        for number, writer in enumerate(self.writers):
            writer.write(work, logits, number > 0)
        add_product(logits, work.q, work.k.transpose(1, 2), float(bool(self.writers)), call.scale)
        for hide in call.hides:
            hide(chunk, chunk.by_image(logits))
        torch.softmax(logits, -1, out=logits)
        if target is not None and not direct:
            target.copy_(chunk.by_image(logits))
        return logits

    def _add_gradients(self, work: ChunkWork, v: Tensor, out_grad: Tensor, grad_v: Tensor) -> None:
        """Add what a chunk gives to all gradients."""
        chunk, grad_logits = work.chunk, work.other
        weights = (self._weights(work) if self.stored is None else
                   self.stored[chunk.images, chunk.heads, chunk.queries].flatten(0, 1))
        of_values = work._replace(q=out_grad, grad_q=self._nothing,
                                  other=self._buffer('further', chunk))
        for number, writer in enumerate(self.on_values):
            writer.write(of_values, grad_logits, number > 0)
        add_product(grad_logits, out_grad, v.transpose(1, 2), float(bool(self.on_values)))
        dropped = weights
        if self.dropout is not None:
            drawn = self.dropout.draw(self._buffer('drawn', chunk))
            grad_logits *= drawn
            dropped = drawn.mul_(weights)
        # The first chunk overwrites what is in the sums over queries, and later ones add to them.
        beta = float(chunk.queries.start > 0)
        add_product(grad_v, dropped.transpose(1, 2), out_grad, beta)
        for writer in self.on_values:
            writer.add_gradients(of_values, dropped)
        torch._softmax_backward_data(grad_logits, weights, -1, weights.dtype,
                                     grad_input=grad_logits)
        add_product(work.grad_q, grad_logits, work.k, 0.0, self.call.scale)
        add_product(work.grad_k, grad_logits.transpose(1, 2), work.q, beta, self.call.scale)
        for writer in self.writers:
            writer.add_gradients(work, grad_logits)


def _heads(x: Tensor, chunk: Chunk) -> Tensor:
    """The heads of a chunk out of x (B, heads, L, n), as (heads of all images, L, n)."""
    return x[chunk.images, chunk.heads].flatten(0, 1).contiguous()


def _heads_view_or_empty(x: Tensor, chunk: Chunk) -> Tensor:
    """The chunk's part of x (B, heads, L, n) as (heads of all images, queries, n) to write to; a
    new tensor where that is no view."""
    part = x[chunk.images, chunk.heads, chunk.queries]
    return part.flatten(0, 1) if part.is_contiguous() else part.new_empty(
        chunk.size, *part.shape[2:])


def _copy_back_heads(part: Tensor, x: Tensor, chunk: Chunk) -> None:
    """Copy what :func:`_heads_view_or_empty` returned into x, unless it was a view of x."""
    if part.untyped_storage()._cdata != x.untyped_storage()._cdata:
        x[chunk.images, chunk.heads, chunk.queries] = chunk.by_image(part)
