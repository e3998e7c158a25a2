"""What the driver asks of a term: to write a piece of the logits and to take its gradient."""
from __future__ import annotations

import copy
from typing import NamedTuple, TypeVar

from torch import Tensor

from .layout import Piece

_Writer = TypeVar('_Writer', bound='Writer')


class Work(NamedTuple):
    """One piece, as writers see it.

    q: (heads, queries, head_dims), not scaled; k: (heads, keys, head_dims) in the order of the
    layout. grad_q, grad_k: their gradients so far, in backward. other: a buffer as large as the
    logits, free to use while logits are written.
    """

    piece: Piece
    q: Tensor
    k: Tensor
    other: Tensor
    grad_q: Tensor
    grad_k: Tensor


class Writer:
    """Base. ``inputs`` may need gradients; all else is plan. Heads of a piece are those of its
    images one after the other."""

    #: What the writer needs of the pieces, see :class:`~.layout.Cut`.
    whole_rows = False
    most_queries: int | None = None
    #: The term as autograd sees it.
    inputs: tuple[Tensor, ...] = ()
    #: Sums of the gradients of ``inputs``, in backward.
    grads: tuple[Tensor, ...] = ()

    def bind(self: _Writer, inputs: tuple[Tensor, ...], grads: tuple[Tensor, ...] = ()) -> _Writer:
        """A copy for one direction of one call."""
        bound = copy.copy(self)
        bound.inputs, bound.grads = inputs, grads
        return bound

    def begin(self, work: Work) -> None:
        """Called with all queries before the pieces of some heads."""

    def end(self, work: Work) -> None:
        """Called after them, in backward."""


class LogitWriter(Writer):
    """A term of the logits."""

    def write(self, work: Work, logits: Tensor, add: bool) -> None:
        """Write the term to logits (heads, queries, keys), or add it."""
        raise NotImplementedError

    def gradient(self, work: Work, grad: Tensor) -> None:
        """Add to the gradients, from that of the logits."""
        raise NotImplementedError


class ValueWriter(Writer):
    """A term of the output."""

    def add(self, work: Work, weights: Tensor, out: Tensor) -> None:
        """Add the term to the output (heads, queries, head_dims)."""
        raise NotImplementedError

    def write_gradient(self, work: Work, grad: Tensor, out: Tensor) -> None:
        """Write the gradient of the weights, from that of the output."""
        raise NotImplementedError

    def gradient(self, work: Work, weights: Tensor, grad: Tensor) -> None:
        """Add to the gradients of the inputs."""
        raise NotImplementedError
