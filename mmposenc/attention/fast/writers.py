"""What chunks ask of a term: to write its part of the logits, and to take the gradient of that."""
from __future__ import annotations

import copy
from typing import NamedTuple, TypeVar

from torch import Tensor

from .layout import Chunk
from .products import add_sum

_Writer = TypeVar('_Writer', bound='Writer')


class ChunkWork(NamedTuple):
    """One chunk as writers see it.

    q: (heads, queries, head_dims), not scaled; k: (heads, keys, head_dims). grad_q, grad_k: their
    gradients so far, in a backward pass, else empty. other: a buffer as large as the logits, free
    to use while logits are written.
    """

    chunk: Chunk
    q: Tensor
    k: Tensor
    grad_q: Tensor
    grad_k: Tensor
    other: Tensor


class Writer:
    """The base class of writers. ``inputs`` are tensors that may need gradients, and all else is
    fixed. The heads of a chunk are those of its images, one image after the other."""

    #: What the writer requires of chunks, see :class:`~.layout.Layout`.
    whole_rows = False
    most_queries: int | None = None
    #: The tensors of the term that autograd sees.
    inputs: tuple[Tensor, ...] = ()
    #: The sums of the gradients of ``inputs``, in a backward pass.
    grads: tuple[Tensor, ...] = ()

    def bound_to(self: _Writer, inputs: tuple[Tensor, ...],
                 grads: tuple[Tensor, ...] = ()) -> _Writer:
        """Return a copy of the writer for one direction of one call."""
        bound = copy.copy(self)
        bound.inputs, bound.grads = inputs, grads
        return bound

    def before_chunks(self, work: ChunkWork) -> None:
        """Called with all queries of some heads, before their chunks."""

    def write(self, work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Write the term to logits (heads, queries, keys), or add it."""
        raise NotImplementedError

    def add_gradients(self, work: ChunkWork, grad: Tensor) -> None:
        """Add to the gradients of the inputs, from that of the logits."""
        raise NotImplementedError

    def after_chunks(self, work: ChunkWork) -> None:
        """Called with all queries of some heads after their chunks, in a backward pass."""


def copy_or_add(source: Tensor, target: Tensor, add: bool) -> None:
    """Write to a part of the logits, or add to it if something is there already."""
    if add:
        target += source
    else:
        target.copy_(source)


class DenseWriter(Writer):
    """Writes a bias (B or 1, heads or 1, Lq or 1, Lk or 1)."""

    def __init__(self, bias: Tensor) -> None:
        self.inputs = (bias,)

    def write(self, work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Write the bias of these queries."""
        copy_or_add(work.chunk.part_of(self.inputs[0]), work.chunk.by_image(logits), add)

    def add_gradients(self, work: ChunkWork, grad: Tensor) -> None:
        """Add to the gradient of the bias, summed where images or heads share it."""
        total, images = work.chunk.part_of(self.grads[0]), work.chunk.by_image(grad)
        if total.shape[0] == 1:
            add_sum(total[0], images.sum_to_size(images.shape[0], *total.shape[1:]))
        else:
            total += images.sum_to_size(total.shape)
