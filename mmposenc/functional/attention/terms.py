"""What relative encodings add to attention: the contract of a term, and terms over all pairs.

A term says what is added, by its definition over all pairs; how it writes a piece of the logits is
its :meth:`Term.writer`'s business, and which engine runs is attention's alone. The kinds are here
(:class:`DenseBias`), in :mod:`.table_terms`, :mod:`.offset_terms`, :mod:`.axis_terms` and
:mod:`.sequence_terms`.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from .layout import Layout
from .writers import LogitWriter, Work, Writer

#: What a term adds to the logit of image b, head h, query i and key j, all of them tensors.
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class Term:
    """Base. Queries ``q`` (B, heads, Lq, head_dims) are scaled, keys ``k`` (B, heads, Lk,
    head_dims) are not; both start with their prefix tokens. Tables are ([heads], ...): without the
    first dimension, or with 1 in it, heads share them."""

    #: True for terms of the output instead of the logits.
    on_values = False
    #: True if the term depends on the queries, or on the keys, and not on the grids alone.
    reads_queries = False
    reads_keys = False
    #: True if it reads look-ups by buckets of cells.
    reads_by_bucket = False

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The definition: (B or 1, heads or 1, Lq, Lk), added to the logits."""
        raise NotImplementedError

    def dense_values(self, weights: Tensor) -> Tensor:
        """The definition of a term of the output (B, heads, Lq, head_dims), by the weights."""
        raise NotImplementedError

    @property
    def has_writer(self) -> bool:
        """Whether pieces can compute the term: one of the output needs a writer of its own."""
        return not self.on_values or type(self).writer is not Term.writer

    def writer(self, q: Tensor, k: Tensor, layout: Layout, scale: float, long: bool) -> Writer:
        """Writes pieces; by default the definition's.

        Args:
            q, k: neither is scaled.
            scale: of the queries.
            long: tables are read a row of keys at a time, which needs :attr:`Layout.filled`.
        """
        return DenseBias(self.dense(q * scale, k)).writer(q, k, layout, scale, long)

    @property
    def has_score_mod(self) -> bool:
        """Whether FlexAttention can compute the term: those of the output have no score_mod, and
        those of a sequence none that would save memory."""
        return type(self).score_mod is not Term.score_mod

    def score_mod(self, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
        """For FlexAttention; arguments as of :meth:`writer`."""
        raise NotImplementedError

    def look_ups(self, q: Tensor, k: Tensor) -> int:
        """Numbers of the largest tensor that the score_mod reads; those by offset are small."""
        return 0


@dataclass(frozen=True, eq=False)
class DenseBias(Term):
    """bias (B or 1, heads or 1, Lq or 1, Lk)."""

    bias: Tensor

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`."""
        return self.bias

    def writer(self, q: Tensor, k: Tensor, layout: Layout, scale: float, long: bool) -> Writer:
        """See :class:`Term`."""
        return DenseWriter(layout.arrange(self.bias, -1).to(q.dtype))

    def score_mod(self, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
        """See :class:`Term`."""
        bias = self.bias

        def mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            at = [index if size > 1 else index * 0
                  for index, size in zip((b, h, i), bias.shape[:3], strict=True)]
            return bias[at[0], at[1], at[2], j]
        return mod

    def look_ups(self, q: Tensor, k: Tensor) -> int:
        """See :class:`Term`."""
        return self.bias.numel()


class DenseWriter(LogitWriter):
    """A bias (B or 1, heads or 1, Lq or 1, keys or 1), keys in the order of the layout."""

    def __init__(self, bias: Tensor) -> None:
        self.inputs = (bias,)

    def write(self, work: Work, logits: Tensor, add: bool) -> None:
        """As the base."""
        logits = work.piece.by_image(logits)
        bias = work.piece.of(self.inputs[0])
        if add:
            logits += bias
        else:
            logits.copy_(bias)

    def gradient(self, work: Work, grad: Tensor) -> None:
        """As the base."""
        total = work.piece.of(self.grads[0])
        total += work.piece.by_image(grad).sum_to_size(total.shape)
