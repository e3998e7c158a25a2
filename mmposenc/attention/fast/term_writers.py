"""Which writer computes each type of term in chunks."""
from __future__ import annotations

from collections.abc import Callable

from mmposenc.functional.grids import are_strides_whole

from ..terms import DenseBias, Problem, TableByKey, TableByQuery, TableOnValues, Term
from ..vector_terms import AxisHalves, OffsetBias, SkewedTable
from . import thresholds
from .axis_writer import AxisWriter
from .bucket_writer import BucketWriter
from .offset_writer import OffsetBiasWriter
from .skew_writer import SkewWriter
from .writers import DenseWriter, Writer


def _offset_bias_writer(term: OffsetBias, problem: Problem) -> Writer:
    """Where strides are not whole numbers there are no common offsets, and rows of short sequences
    are too short for slices: there the bias of all pairs is added."""
    if problem.pairs >= thresholds.SHIFTS_FROM and are_strides_whole(term.query, term.key):
        return OffsetBiasWriter(term, problem)
    return _writer_of_reference(term, problem)


def _writer_of_reference(term: Term, problem: Problem) -> Writer:
    return DenseWriter(term.reference(problem.q * problem.scale, problem.k).to(problem.q.dtype))


#: What makes the writer of each type of term. A type that is not here is written by its reference
#: over all pairs, and a term of the output of such a type has no writer.
WRITERS: dict[type[Term], Callable[..., Writer]] = {
    DenseBias: _writer_of_reference,
    OffsetBias: _offset_bias_writer,
    TableByQuery: BucketWriter,
    TableByKey: BucketWriter,
    TableOnValues: BucketWriter,
    AxisHalves: AxisWriter,
    SkewedTable: SkewWriter,
}


def writer_of(term: Term, problem: Problem) -> Writer:
    """The writer of a term of this attention."""
    kind = next((kind for kind in type(term).__mro__ if kind in WRITERS), DenseBias)
    return WRITERS[kind](term, problem)


def has_writer(term: Term) -> bool:
    """Whether chunks can compute a term: one of the output needs a type that is in the table."""
    return not term.on_values or isinstance(term, tuple(WRITERS))
