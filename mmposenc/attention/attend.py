"""Attention with a relative encoding, for all attention modules: checks, grids, padding, the choice
of an implementation, and the reference that all must equal."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict

import torch
import torch.jit._trace
import torch.nn.functional as F
from torch import Tensor

from ..functional.grids import Grid, GridLike, as_grid, key_grid
from ..functional.masking import check_mask
from ..functional.tracing import is_compiling, is_exporting, is_transforming, may_read
from .fast.choice import fastest, fold_vectors
from .fast.chunked import chunked
from .fast.flex import flex
from .fast.sdpa import sdpa
from .padded import attend_by_image, attend_on_own_extents, valid_keys
from .terms import DenseBias, Problem, Term, split

if TYPE_CHECKING:  # encodings import terms, with this package
    from typing_extensions import Unpack

    from ..encodings.base import RelativeEncoding


class Options(TypedDict, total=False):
    """Further arguments of :func:`attend`."""

    key_padding_mask: Tensor | None
    query_padding_mask: Tensor | None
    attn_mask: Tensor | None
    regions: Tensor | None
    dropout_p: float
    need_weights: bool
    implementation: str


def attend(q: Tensor, k: Tensor, v: Tensor, rel_pos_encoding: RelativeEncoding | None = None,
           q_grid: GridLike | None = None, k_grid: GridLike | None = None,
           **options: Unpack[Options]) -> tuple[Tensor, Tensor | None]:
    """Attention softmax(q k^T * head_dims ** -0.5 + encoding) v, by default in the fastest way.

    Args:
        q: (B, heads, Lq, head_dims), not scaled.
        k, v: (B, heads, Lk, head_dims).
        rel_pos_encoding: the encoding, with its terms and rotation; None: plain attention.
        q_grid, k_grid: grids of the query and key cells, without prefix tokens; required with an
            encoding. ``k_grid=None``: the query grid; (Hk, Wk): a grid over the same area.
            (length,) is a sequence; (frames, H, W) a video, for encodings with ``takes_frames``.
        key_padding_mask: (B, Lk) bool, True = padding, whatever keys and values hold there. The
            output of an image without valid keys is zero.
        query_padding_mask: (B, Lq) bool, True = padding; used only if the encoding is not
            ``cellwise``, and required then if padded keys have another grid.
        attn_mask: if floating, added to the logits; if bool, True = may attend (as in
            ``F.scaled_dot_product_attention``); broadcastable to (B, heads, Lq, Lk). The output of
            a query that may attend to no key is zero.
        regions: (n, L) whole numbers, n a divisor of B, row b % n for image b: tokens attend only
            to tokens with their own number.
        dropout_p: dropout rate of the attention weights; use 0 outside of training.
        need_weights: also return the attention weights (after dropout).
        implementation: 'auto': the fastest (:mod:`mmposenc.attention.fast`); 'reference': over all
            pairs; 'sdpa', 'chunked' or 'flex'. Weights need 'auto' or 'reference'.

    Returns:
        (B, heads, Lq, head_dims), and the weights (B, heads, Lq, Lk) or None.

    Raises:
        ValueError: shapes, grids, a mask or the implementation do not fit.
    """
    return attend_qkv((q, k, v), rel_pos_encoding, q_grid, k_grid, options)


def attend_qkv(qkv: tuple[Tensor, ...], encoding: RelativeEncoding | None, q_grid: GridLike | None,
               k_grid: GridLike | None, options: Options) -> tuple[Tensor, Tensor | None]:
    """:func:`attend` for three tensors, or for one joint tensor (B, L, 3, heads, head_dims), whose
    gradient then needs no concatenation."""
    refuse_tracing()
    q, k, v = split(qkv)
    implementation = checked_implementation(options.get('implementation', 'auto'))
    need_weights = options.get('need_weights', False)
    if need_weights and implementation not in ('auto', 'reference'):
        raise ValueError(f"implementation={implementation!r} gives no weights "
                         f"(need_weights=True); use 'auto' or 'reference'")
    grids = None if encoding is None else _check_grids(q, k, encoding, q_grid, k_grid)
    _check_masks(q, k, options)
    padding = options.get('key_padding_mask')
    if padding is None:
        return _run(qkv, encoding, grids, None, options)
    padding, has_key = _check_padding(k, padding)
    has_masks = any(options.get(name) is not None for name in ('attn_mask', 'regions'))
    # Each image on a grid of its own; without its padded keys, if that is faster; or with a mask.
    if encoding is not None and grids is not None and not encoding.cellwise:
        out, weights = attend_on_own_extents(_run, (q, k, v), encoding, grids, options)
    elif implementation == 'auto' and not need_weights and not has_masks and (
            parts := valid_keys(q, padding, encoding, grids)) is not None:
        out, weights = attend_by_image(_run, (q, k, v), encoding, parts, options)
    else:
        # Their weights are zero, which times infinity would be NaN.
        hidden = options['key_padding_mask'][:, None, :, None]  # type: ignore[index]
        qkv = (q, k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0))
        out, weights = _run(qkv, encoding, grids, padding, options)
    # An image of only padding gets no gradient.
    nobody = ~has_key[:, None, None, None]
    return (out.masked_fill(nobody, 0.0),
            None if weights is None else weights.masked_fill(nobody, 0.0))


def _run(qkv: tuple[Tensor, ...], encoding: RelativeEncoding | None,
         grids: tuple[Grid, Grid] | None, padding: Tensor | None, options: Options
         ) -> tuple[Tensor, Tensor | None]:
    """Attention of all images together: rotations, the weighted sum with the terms that take part
    in it, then the terms that do not."""
    mask = options.get('attn_mask')
    mask = None if mask is None else mask[(None,) * (4 - mask.dim())]
    problem = Problem(qkv, key_padding=padding, attn_mask=mask,
                      regions=options.get('regions'), dropout_p=options.get('dropout_p', 0.0))
    of_values: list[Term] = []  # added to the output whatever the weights
    if encoding is not None and grids is not None:
        if encoding.has_rotation:
            q, k, v = split(qkv)
            v = encoding.turn_values(v, *grids)
            problem = problem._replace(qkv=(*encoding.rotate(q, k, *grids), v))
        terms = [term.within(problem.regions) for term in encoding.terms(*grids)]
        of_values = [term for term in terms if not term.reads_weights]
        problem = problem._replace(terms=[term for term in terms if term.reads_weights],
                                   query=grids[0], key=grids[1], prefix=encoding.num_prefix_tokens)
    opened, without_keys = open_queries(problem)
    out, weights = _weighted(opened, options)
    if encoding is not None and grids is not None and encoding.has_rotation:
        out = encoding.turn_back(out, *grids)
    q, _, v = split(qkv)
    for term in of_values:
        out = out + term.output(q, v, padding, problem.regions)
    if without_keys is not None:
        out = out.masked_fill(without_keys, 0.0)
        weights = None if weights is None else weights.masked_fill(without_keys, 0.0)
    return out, weights


def open_queries(problem: Problem) -> tuple[Problem, Tensor | None]:
    """The problem in which queries that may attend to no key attend to some, so that no softmax is
    over nothing; and which they are, (B or 1, heads or 1, Lq, 1), to clear what they get. None
    where every query has a key: one of its image, or of its region."""
    both = problem.regions is not None and problem.key_padding is not None
    if problem.attn_mask is None and not both:
        return problem, None
    q, k, _ = split(problem.qkv)
    others = problem._replace(attn_mask=None).mask(None, torch.bool)
    mask = _joined(problem.attn_mask, others)
    assert mask is not None
    without_keys = ~(mask if mask.dtype == torch.bool else mask != float('-inf')).any(
        -1, keepdim=True)
    if both:  # in one mask, which can be opened
        problem = problem._replace(regions=None, key_padding=None)
    elif problem.attn_mask is not None:
        mask = problem.attn_mask
    mask = mask.expand(*mask.shape[:2], q.shape[2], k.shape[2])
    if mask.dtype == torch.bool:
        return problem._replace(attn_mask=mask | without_keys), without_keys
    bias = DenseBias(mask.masked_fill(without_keys, 0.0))
    return problem._replace(terms=[*problem.terms, bias], attn_mask=None), without_keys


def _joined(mask: Tensor | None, keep: Tensor | None) -> Tensor | None:
    """A mask, bool or floating, that also leaves out what ``keep`` does not keep."""
    if mask is None or keep is None:
        return keep if mask is None else mask
    return mask & keep if mask.dtype == torch.bool else mask.masked_fill(~keep, float('-inf'))


def _weighted(problem: Problem, options: Options) -> tuple[Tensor, Tensor | None]:
    """The weighted sum of values, by the requested implementation."""
    if options.get('need_weights', False):
        return reference(problem, need_weights=True)
    implementation = options.get('implementation', 'auto')
    problem = problem if implementation == 'reference' else fold_vectors(problem)
    return _COMPUTE[choose(problem, implementation)](problem), None


def choose(problem: Problem, implementation: str = 'auto') -> str:
    """The implementation to run. It is the reference where a program is exported, which does not
    know the sizes of chunks; where it is compiled, which fuses look-ups by itself; on the meta
    device, where operations are counted; and under ``torch.func``, which transforms nothing else.
    """
    if is_exporting() or is_transforming():
        return 'reference'
    if implementation == 'auto' and not may_read(problem.qkv[0]):
        return 'reference'
    return fastest(problem) if implementation == 'auto' else implementation


def reference(problem: Problem, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
    """Attention by all logits (B, heads, Lq, Lk); the other implementations must equal it."""
    q, k, v = split(problem.qkv)
    scaled = q * problem.scale
    logits = [term.dense(scaled, k) for term in problem.terms if not term.on_values]
    on_values = [term for term in problem.terms if term.on_values]
    bias = problem.mask(sum(logits[1:], logits[0]) if logits else None, q.dtype)
    if not (need_weights or on_values) and use_sdpa(bias, q):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, dropout_p=problem.dropout_p, scale=problem.scale), None
    scores = scaled @ k.transpose(-2, -1)
    if bias is not None:
        scores = (scores.masked_fill(~bias, float('-inf')) if bias.dtype == torch.bool
                  else scores + bias)
    weights = scores.softmax(-1).to(v.dtype)
    if problem.dropout_p > 0.0:
        weights = F.dropout(weights, problem.dropout_p)
    out = weights @ v
    for term in on_values:
        out = out + term.dense_values(weights)
    return out, weights if need_weights else None


def use_sdpa(bias: Tensor | None, q: Tensor) -> bool:
    """Whether to use SDPA: on a CPU it is slow for a mask that needs a gradient."""
    return bias is None or not bias.requires_grad or q.device.type != 'cpu'


_COMPUTE: dict[str, Callable[[Problem], Tensor]] = {
    'reference': lambda problem: reference(problem)[0], 'sdpa': sdpa, 'chunked': chunked,
    'flex': flex}
#: Values of ``implementation``.
IMPLEMENTATIONS = ('auto', *_COMPUTE)


def checked_implementation(implementation: str) -> str:
    """The implementation, after a check.

    Raises:
        ValueError: there is no such implementation.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f'implementation={implementation!r} must be one of '
                         f'{", ".join(IMPLEMENTATIONS)}')
    return implementation


def _check_masks(q: Tensor, k: Tensor, options: Options) -> None:
    """Raise ValueError if a mask has another kind of numbers, or does not fit."""
    attn_mask, regions = options.get('attn_mask'), options.get('regions')
    query_padding = options.get('query_padding_mask')
    if query_padding is not None:
        check_mask(query_padding, (q.shape[0], q.shape[2]), 'query_padding_mask')
    if is_compiling():  # sizes that are compared would be part of the graph
        return
    batch, heads, queries, keys = *q.shape[:3], k.shape[2]
    if attn_mask is not None:
        if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
            raise ValueError(f'attn_mask has dtype {attn_mask.dtype}; bool (True = may attend) or '
                             f'floating numbers (added to the logits) are required')
        sides = zip(reversed(attn_mask.shape), (keys, queries, heads, batch), strict=False)
        if attn_mask.dim() > 4 or any(side not in (1, full) for side, full in sides):
            raise ValueError(f'attn_mask has shape {tuple(attn_mask.shape)}, which is not '
                             f'broadcastable to (B, heads, Lq, Lk) = '
                             f'{(batch, heads, queries, keys)}')
    if regions is not None and (regions.is_floating_point() or regions.dim() != 2
                                or not queries == keys == regions.shape[1]
                                or batch % regions.shape[0]):
        raise ValueError(f'regions has shape {tuple(regions.shape)} and dtype {regions.dtype}; '
                         f'whole numbers (n, L) are required, n a divisor of B = {batch} and L = '
                         f'{queries} queries = {keys} keys')


def _check_padding(k: Tensor, key_padding_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Padded keys (B, Lk), and which images have a valid one (B,).

    In an image without valid keys all keys count as valid, to avoid NaN.
    """
    check_mask(key_padding_mask, (k.shape[0], k.shape[2]), 'key_padding_mask')
    has_key = ~key_padding_mask.all(-1)
    return key_padding_mask & has_key[:, None], has_key


def _check_grids(q: Tensor, k: Tensor, encoding: RelativeEncoding, q_grid: GridLike | None,
                 k_grid: GridLike | None) -> tuple[Grid, Grid]:
    """Grids in query units, after a check that they have as many tokens as q and k."""
    if q_grid is None:
        raise ValueError(f'q_grid=None, but {type(encoding).__name__} needs the query grid')
    query = as_grid(q_grid, 'q_grid', any_axes=True)
    key = key_grid(query, k_grid)
    prefix = encoding.num_prefix_tokens
    if max(query.frames, key.frames) > 1 and not encoding.takes_frames:
        raise ValueError(f'{type(encoding).__name__} has no axis of time, but q_grid={query.shape} '
                         f'and k_grid={key.shape} have frames; use RotaryEmbedding with dims=3')
    for name, tokens, grid in (('q', q.shape[2], query), ('k', k.shape[2], key)):
        if tokens != prefix + grid.num_cells:
            raise ValueError(
                f'{name} has {tokens} tokens, but {name}_grid={grid.shape} and '
                f'num_prefix_tokens={prefix} of {type(encoding).__name__} need {prefix} + '
                f'{" * ".join(map(str, grid.shape))} = {prefix + grid.num_cells}')
    return query, key


def refuse_tracing() -> None:
    """Raise an error if ``torch.jit.trace`` or the TorchScript exporter traces a model.

    They store the sizes of the example as constants, so results at other sizes would be wrong
    without a message. (Tools that only count operations by tracing, such as mmengine's
    ``get_model_complexity_info``, are allowed: they do not run the trace.)

    Raises:
        RuntimeError: the model is being traced.
    """
    if not torch.jit.is_tracing():
        return
    if torch.onnx.is_in_onnx_export() or torch.jit._trace._trace_module_map is not None:
        raise RuntimeError(
            'torch.jit.trace and torch.onnx.export(dynamo=False) store the sizes of the example, '
            'and are wrong at other sizes; use torch.export, torch.onnx.export(dynamo=True) or '
            '`mmposenc export` (docs/export.md)')
