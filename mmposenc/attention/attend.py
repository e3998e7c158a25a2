"""Attention with a relative encoding, for all attention modules: checks, grids and padding."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.jit._trace
from torch import Tensor

from ..functional.extents import MaskLike, cells_of, check_mask
from ..functional.grids import Grid, GridLike, as_grid, check_number, key_grid
from .compute import checked_implementation, output_and_weights
from .masks import with_checked_masks
from .padded import attend_by_image
from .terms import Problem

if TYPE_CHECKING:  # Imported only for annotations: the encodings themselves import this package.
    from ..encodings.base import RelativeEncoding


def attend(q: Tensor, k: Tensor, v: Tensor, rel_pos_encoding: RelativeEncoding | None = None,
           q_grid: GridLike | None = None, k_grid: GridLike | None = None, *,
           key_padding_mask: MaskLike | None = None, query_padding_mask: MaskLike | None = None,
           attn_mask: Tensor | None = None, regions: Tensor | None = None,
           tokens: Tensor | None = None, dropout_p: float = 0.0, need_weights: bool = False,
           implementation: str = 'auto') -> tuple[Tensor, Tensor | None]:
    """Attention softmax(q k^T * head_dims ** -0.5 + encoding) v, by default in the fastest way.

    Args:
        q: (B, heads, Lq, head_dims), not scaled.
        k, v: (B, heads, Lk, head_dims).
        rel_pos_encoding: the encoding, with its terms and rotation; None: plain attention.
        q_grid, k_grid: grids of the query and key cells, without prefix tokens; required with an
            encoding. ``k_grid=None``: the query grid; (Hk, Wk): a grid over the same area.
            (length,) is a sequence; (frames, H, W) a video, for encodings with ``takes_frames``.
        key_padding_mask: (B, Lk) bool, True = padding, or a ``PaddingMask``, whatever keys and
            values hold there. The output of an image without valid keys is zero.
        query_padding_mask: (B, Lq) bool, True = padding; used only if the encoding is not
            ``cellwise``, and required then if padded keys have another grid.
        attn_mask: if floating, added to the logits; if bool, True = may attend (as in
            ``F.scaled_dot_product_attention``); broadcastable to (B, heads, Lq, Lk). The output of
            a query that may attend to no key is zero.
        regions: (n, L) whole numbers, n a divisor of B, row b % n for image b: tokens attend only
            to tokens with their own number.
        tokens: (B, Lq, embed_dims) that queries are projections of; required by an encoding whose
            terms depend on them.
        dropout_p: dropout rate of the attention weights; use 0 outside of training.
        need_weights: also return the attention weights (after dropout).
        implementation: 'auto': the fastest (:mod:`mmposenc.attention.fast`); 'reference': over all
            pairs; 'sdpa' or 'chunked'. Weights need 'auto' or 'reference'.

    Returns:
        (B, heads, Lq, head_dims), and the weights (B, heads, Lq, Lk) or None.

    Raises:
        ValueError: shapes, grids, a mask or the implementation do not fit.
    """
    refuse_tracing()
    if checked_implementation(implementation) not in ('auto', 'reference') and need_weights:
        raise ValueError(f"implementation={implementation!r} gives no weights "
                         f"(need_weights=True); use 'auto' or 'reference'")
    problem = Problem(q, k, v, q.shape[-1] ** -0.5, query_padding=query_padding_mask,
                      attn_mask=attn_mask, regions=regions, dropout_p=dropout_p)
    encoding = rel_pos_encoding
    if encoding is not None:
        query, key = _checked_grids(q, k, encoding, q_grid, k_grid)
        problem = problem._replace(query=query, key=key, prefix=encoding.num_prefix_tokens,
                                   tokens=tokens)
    if key_padding_mask is not None:
        check_mask(cells_of(key_padding_mask), (k.shape[0], k.shape[2]), 'key_padding_mask')
    if not (query_padding_mask is None and attn_mask is None and regions is None):
        problem = with_checked_masks(problem)
    if key_padding_mask is None:
        return output_and_weights(problem, encoding, implementation, need_weights)
    padding = cells_of(key_padding_mask)
    # The weights of padded keys are zero; zero times an infinite value would be NaN.
    hidden = padding[:, None, :, None]  # (B, 1, Lk, 1)
    problem = problem._replace(k=k.masked_fill(hidden, 0.0), v=v.masked_fill(hidden, 0.0))
    has_key = ~padding.all(-1)  # (B,)
    # Two ways: each image on a grid of its own, or all together with a mask.
    if encoding is not None and not encoding.cellwise:
        out, weights = attend_by_image(problem, encoding, key_padding_mask, implementation,
                                       need_weights)
    else:  # In an image without valid keys all keys count as valid, to avoid NaN.
        problem = problem._replace(key_padding=padding & has_key[:, None])
        out, weights = output_and_weights(problem, encoding, implementation, need_weights)
    # An image that is nothing but padding must get no gradient.
    nobody = ~has_key[:, None, None, None]
    return (out.masked_fill(nobody, 0.0),  # (B, heads, Lq, head_dims)
            None if weights is None else weights.masked_fill(nobody, 0.0))  # (B, heads, Lq, Lk)


def _checked_grids(q: Tensor, k: Tensor, encoding: RelativeEncoding, q_grid: GridLike | None,
                   k_grid: GridLike | None) -> tuple[Grid, Grid]:
    """The grids of queries and keys in units of query cells, after a check that they have as many
    tokens as q and k."""
    if q_grid is None:
        raise ValueError(f'q_grid=None, but {type(encoding).__name__} needs the query grid')
    query = as_grid(q_grid, 'q_grid', any_axes=True)
    key = key_grid(query, k_grid)
    prefix = encoding.num_prefix_tokens
    if max(query.frames, key.frames) > 1 and not encoding.takes_frames:
        raise ValueError(f'{type(encoding).__name__} has no axis of time, but q_grid={query.shape} '
                         f'and k_grid={key.shape} have frames; use RotaryEmbedding with dims=3')
    check_number(q.shape[2], query, prefix, 'q', 'q_grid', encoding)
    check_number(k.shape[2], key, prefix, 'k', 'k_grid', encoding)
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
