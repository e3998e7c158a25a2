"""Faster implementations of attention than the reference; nothing here adds to what is computed.

Each computes a :class:`~mmposenc.attention.terms.Problem`: :mod:`.sdpa`, :mod:`.chunked` and
:mod:`.flex`; :mod:`.choice` says which is fastest. A type of term takes part by what is registered
for it: how a chunk of the logits is written (``writers.writer``), and its ``flex.score_summand``.
"""
# Importing these modules registers the writers of their terms.
from . import axis_writer, offset_writer, skew_writer, table_writers

__all__ = ['axis_writer', 'offset_writer', 'skew_writer', 'table_writers']
