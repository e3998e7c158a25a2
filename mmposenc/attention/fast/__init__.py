"""Attention in faster forms than its definition; nothing here adds to what is computed.

Each form computes a :class:`~mmposenc.attention.terms.Problem`: :mod:`.fused`, :mod:`.pieces` and
:mod:`.flex`; :mod:`.choice` says which is fastest. A type of term takes part by what is registered
for it: how a piece of the logits is written (``writers.writer``), and its ``flex.score_mod``.
"""
# Each registers the writers of its terms.
from . import axis_writer, offset_writer, skew_writer, table_writers

__all__ = ['axis_writer', 'offset_writer', 'skew_writer', 'table_writers']
