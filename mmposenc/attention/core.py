"""Scaled dot-product attention with a relative encoding: what every attention module calls."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import torch
from torch import Tensor

from ..encodings.base import RelativeEncoding
from ..functional import limits
from ..functional.attention.driver import split
from ..functional.attention.terms import DenseBias
from ..functional.grids import Grid, GridLike, as_grid, key_grid, valid_extents
from ..functional.packing import Packing
from ..functional.tracing import refuse_tracing
from .choice import choose
from .engines import ENGINES, definition, ready
from .own_extents import attend_on_own_extents
from .problem import Problem

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: What ``form`` may be.
FORMS = ('auto', *ENGINES)


def checked_form(form: str) -> str:
    """The form, if there is such a one.

    Raises:
        ValueError: if there is not.
    """
    if form not in FORMS:
        raise ValueError(f'form={form!r} must be one of {", ".join(FORMS)}')
    return form


class Options(TypedDict, total=False):
    """Further arguments of :func:`attend`."""

    key_padding_mask: Tensor | None
    query_padding_mask: Tensor | None
    attn_mask: Tensor | None
    regions: Tensor | None
    dropout_p: float
    need_weights: bool
    form: str


def attend(q: Tensor, k: Tensor, v: Tensor, rel_pos_encoding: RelativeEncoding | None = None,
           q_grid: GridLike | None = None, k_grid: GridLike | None = None,
           **options: Unpack[Options]) -> tuple[Tensor, Tensor | None]:
    """Attention softmax(q k^T * head_dims ** -0.5 + encoding) v, in the cheapest form that does.

    Args:
        q: (B, heads, Lq, head_dims), not scaled.
        k, v: (B, heads, Lk, head_dims).
        rel_pos_encoding: terms and rotation; None is plain attention.
        q_grid, k_grid: grids of the query and key cells, prefix tokens left out. Needed with an
            encoding; ``k_grid=None`` puts the keys on the query grid, (Hk, Wk) on one of the same
            area. (length,) is a sequence; (frames, H, W) a video, for encodings that
            ``takes_frames``.
        key_padding_mask: (B, Lk) bool, True = padding. An image without a single valid key gives
            zeros.
        query_padding_mask: (B, Lq) bool, of the queries; read only if the encoding
            is not ``cellwise``, and needed then if keys lie on another grid and are padded.
        attn_mask: added to the logits if it is floating, keys that may be attended to if it is
            bool (as in ``F.scaled_dot_product_attention``); broadcastable to (B, heads, Lq, Lk).
        regions: (n, L) whole numbers of the tokens, those of image b in row b % n: tokens attend to
            those of their own number.
        dropout_p: dropout of the attention weights; pass 0 outside training.
        need_weights: also return the attention weights (after dropout).
        form: 'auto'; 'definition', over all pairs; 'fused', 'pieces' or 'flex'
            (:mod:`mmposenc.attention.choice`). Weights come from the definition alone.

    Returns:
        (B, heads, Lq, head_dims) and the weights (B, heads, Lq, Lk) or None.

    Raises:
        ValueError: when shapes, grids, a mask or the form do not fit together.
    """
    return _attend((q, k, v), rel_pos_encoding, q_grid, k_grid, options)


def attend_joint(joint: Tensor, rel_pos_encoding: RelativeEncoding | None = None,
                 grid: GridLike | None = None, **options: Unpack[Options]
                 ) -> tuple[Tensor, Tensor | None]:
    """:func:`attend` for queries, keys and values as one projection gives them, (B, L, 3, heads,
    head_dims): their gradient then needs no putting together."""
    return _attend((joint,), rel_pos_encoding, grid, None, options)


def join_heads(out: Tensor) -> Tensor:
    """(B, heads, L, head_dims) -> (B, L, heads * head_dims)."""
    out = out.transpose(1, 2)
    if torch.compiler.is_exporting():
        # An exporter later puts other operators in attention's place, whose output has another
        # layout than the one that it has seen here.
        out = out.clone(memory_format=torch.contiguous_format)
    return out.flatten(2)


def attend_packed(q: Tensor, k: Tensor, v: Tensor, packing: Packing,
                  rel_pos_encoding: RelativeEncoding | None = None, **options: Unpack[Options]
                  ) -> Tensor:
    """:func:`attend` for the valid tokens of several images in one row: each attends to its own.

    Args:
        q, k, v: (1, heads, N, head_dims), N = sum(packing.lengths).
        packing: of which image the tokens are; with an encoding also their grids.
        rel_pos_encoding: one that is ``cellwise``, or None.

    Returns:
        (1, heads, N, head_dims).
    """
    grids: Sequence[GridLike | None] = packing.grids or [None] * len(packing.lengths)
    images = zip(*(torch.split(x.transpose(1, 2), packing.lengths, 1) for x in (q, k, v)),
                 strict=True)
    outs = [_attend(tuple(x.transpose(1, 2) for x in image), rel_pos_encoding, grid, None,
                    options)[0] for image, grid in zip(images, grids, strict=True)]
    return _cat(outs, 1)


def _attend(qkv: tuple[Tensor, ...], encoding: RelativeEncoding | None, q_grid: GridLike | None,
            k_grid: GridLike | None, options: Options) -> tuple[Tensor, Tensor | None]:
    refuse_tracing()
    q, k, v = split(qkv)
    form, need_weights = options.get('form', 'auto'), options.get('need_weights', False)
    checked_form(form)
    if need_weights and form not in ('auto', 'definition'):
        raise ValueError(f"form={form!r} gives no weights (need_weights=True); use 'auto' or "
                         f"'definition'")
    grids = None if encoding is None else _check_grids(q, k, encoding, q_grid, k_grid)
    padding = options.get('key_padding_mask')
    if padding is None:
        return _run(qkv, encoding, grids, None, options)
    padding, has_key = _check_padding(k, padding)
    if encoding is not None and grids is not None and not encoding.cellwise:
        out, weights = attend_on_own_extents(_run, (q, k, v), encoding, grids, options)
    else:
        extents = None
        if form == 'auto' and not need_weights and options.get('attn_mask') is None:
            extents = _extents(q, padding, encoding, grids)
        out, weights = (_run(qkv, encoding, grids, padding, options) if extents is None else
                        (_attend_to_valid(q, k, v, padding, encoding, grids, extents, options),
                         None))
    # An image of padding alone: no gradient passes.
    nobody = ~has_key[:, None, None, None]
    return (out.masked_fill(nobody, 0.0),
            None if weights is None else weights.masked_fill(nobody, 0.0))


def _run(qkv: tuple[Tensor, ...], encoding: RelativeEncoding | None,
         grids: tuple[Grid, Grid] | None, padding: Tensor | None, options: Options
         ) -> tuple[Tensor, Tensor | None]:
    """One engine for all images."""
    problem = Problem(qkv, key_padding=padding, attn_mask=options.get('attn_mask'),
                      regions=options.get('regions'), dropout_p=options.get('dropout_p', 0.0))
    if encoding is not None and grids is not None:
        if encoding.has_rotation:
            q, k, v = split(qkv)
            problem = problem._replace(qkv=(*encoding.rotate(q, k, *grids), v))
        problem = problem._replace(terms=list(encoding.terms(*grids)), query=grids[0],
                                   key=grids[1], prefix=encoding.num_prefix_tokens)
    mask = problem.attn_mask
    if mask is not None and mask.is_floating_point():
        bias = DenseBias(mask[(None,) * (4 - mask.dim())])
        problem = problem._replace(terms=[*problem.terms, bias], attn_mask=None)
    if options.get('need_weights', False):
        return definition(problem, need_weights=True)
    # Pieces are cut by numbers, which an exported program has none of.
    form = 'auto' if torch.compiler.is_exporting() else options.get('form', 'auto')
    problem = problem if form == 'definition' else ready(problem)
    return ENGINES[choose(problem) if form == 'auto' else form](problem), None


def _check_padding(k: Tensor, key_padding_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Padded keys (B, Lk), and which images have a valid one (B,).

    Images without one are told that all their keys are valid, so that nothing turns NaN.
    """
    if key_padding_mask.dtype != torch.bool:
        raise ValueError(f'key_padding_mask has dtype {key_padding_mask.dtype}; bool is required, '
                         f'True = padding')
    if key_padding_mask.shape != (k.shape[0], k.shape[2]):
        raise ValueError(f'key_padding_mask has shape {tuple(key_padding_mask.shape)}; '
                         f'(B, Lk) = {(k.shape[0], k.shape[2])} is required')
    has_key = ~key_padding_mask.all(-1)
    return key_padding_mask & has_key[:, None], has_key


def _extents(q: Tensor, padding: Tensor, encoding: RelativeEncoding | None,
             grids: tuple[Grid, Grid] | None) -> list[tuple[int, int]] | None:
    """Rows and columns of valid keys of each image, where leaving the others out pays: on a CPU a
    masked key costs as much as a valid one. (A GPU would have to wait for their number.)"""
    if q.device.type != 'cpu' or torch.compiler.is_compiling():
        return None
    if (q.shape[2] * padding.shape[1] < limits.LEAVE_OUT_FROM
            or float(padding.float().mean()) < limits.LEAVE_OUT_SHARE):
        return None
    if encoding is None or grids is None:
        return [(1, int(count)) for count in (~padding).sum(1).tolist()]
    prefix = encoding.num_prefix_tokens
    if bool(padding[:, :prefix].any()) or grids[1].frames > 1:
        return None
    try:
        return valid_extents(padding[:, prefix:].view(-1, *grids[1].hw))
    except ValueError:  # valid cells that are no rectangle
        return None


def _attend_to_valid(q: Tensor, k: Tensor, v: Tensor, padding: Tensor,
                     encoding: RelativeEncoding | None, grids: tuple[Grid, Grid] | None,
                     extents: list[tuple[int, int]], options: Options) -> Tensor:
    """One image at a time, without its padded keys."""
    outs = []
    images = zip(*(x.transpose(1, 2).chunk(len(x)) for x in (q, k, v)), padding, extents,
                 strict=True)
    for query, key, value, hidden, extent in images:
        if bool(hidden.any()):
            index = (~hidden).nonzero()[:, 0]
            key, value = key.index_select(1, index), value.index_select(1, index)
        qkv = tuple(x.transpose(1, 2) for x in (query, key, value))
        own = None if grids is None else (
            grids[0], grids[1]._replace(height=extent[0], width=extent[1]))
        outs.append(_run(qkv, encoding, own, None, options)[0])
    return _cat(outs, 0)


def _cat(outs: list[Tensor], dim: int) -> Tensor:
    """Outputs (B, heads, L, head_dims) put together as (B, L, heads, head_dims), the order in which
    projections hold them: neither direction then copies more than once."""
    return torch.cat([out.transpose(1, 2) for out in outs], dim).transpose(1, 2)


def _check_grids(q: Tensor, k: Tensor, encoding: RelativeEncoding, q_grid: GridLike | None,
                 k_grid: GridLike | None) -> tuple[Grid, Grid]:
    """Grids in query units, after checking that they hold as many tokens as q and k have."""
    if q_grid is None:
        raise ValueError(f'q_grid=None, but {type(encoding).__name__} needs the query grid')
    query = as_grid(q_grid, 'q_grid', any_axes=True)
    key = key_grid(query, k_grid)
    prefix = encoding.num_prefix_tokens
    if max(query.frames, key.frames) > 1 and not encoding.takes_frames:
        raise ValueError(f'{type(encoding).__name__} has no axis of time, but q_grid={query.shape} '
                         f'and k_grid={key.shape} have frames; RotaryEmbedding with dims=3 has one')
    for name, tokens, grid in (('q', q.shape[2], query), ('k', k.shape[2], key)):
        if tokens != prefix + grid.num_cells:
            raise ValueError(
                f'{name} has {tokens} tokens, but {name}_grid={grid.shape} and '
                f'num_prefix_tokens={prefix} of {type(encoding).__name__} need {prefix} + '
                f'{" * ".join(map(str, grid.shape))} = {prefix + grid.num_cells}')
    return query, key
