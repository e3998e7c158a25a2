"""Scaled dot-product attention with a relative encoding: one dispatch for every module."""
from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..encodings.base import RelativeEncoding
from ..functional.biased import biased_attention
from ..functional.grids import Grid, GridLike, as_grid, key_grid
from ..functional.packing import Packing

#: (query, key) pairs from which an own backward of a trained bias saves more than it costs.
OWN_BACKWARD_FROM = 128 * 128
#: (query, key) pairs from which leaving padded keys out, image by image, saves more than it costs,
#: and the share of keys that must be padding.
LEAVE_OUT_FROM, LEAVE_OUT_SHARE = 512 * 512, 0.05


def attend(q: Tensor, k: Tensor, v: Tensor, rel_pos_encoding: RelativeEncoding | None = None,
           q_grid: GridLike | None = None, k_grid: GridLike | None = None, *,
           key_padding_mask: Tensor | None = None, attn_mask: Tensor | None = None,
           dropout_p: float = 0.0, scale: float | None = None, need_weights: bool = False,
           form: str = 'auto') -> tuple[Tensor, Tensor | None]:
    """Attention softmax(q k^T * scale + encoding) v, in the cheapest form that gives it.

    Args:
        q: (B, heads, Lq, head_dims), not scaled.
        k, v: (B, heads, Lk, head_dims).
        rel_pos_encoding: logit terms, value terms and rotation; None is plain attention.
        q_grid, k_grid: grids of the query and key cells, prefix tokens left out. Needed with an
            encoding; ``k_grid=None`` puts the keys on the query grid.
        key_padding_mask: (B, Lk) bool, True = padding. An image without a single valid key gives
            zeros.
        attn_mask: added to the logits if it is floating, keys that may be attended to if it is
            bool (as in ``F.scaled_dot_product_attention``); broadcastable to (B, heads, Lq, Lk).
        dropout_p: dropout of the attention weights; pass 0 outside training.
        scale: factor of the queries, ``head_dims ** -0.5`` by default.
        need_weights: also return the attention weights (after dropout).
        form: 'auto', 'definition' (the encoding's ``logits`` and ``values``), or a name from the
            encoding's ``forms``. Named forms take neither ``attn_mask``, dropout nor
            ``need_weights``; 'auto' then uses the definition.

    Returns:
        (B, heads, Lq, head_dims) and the weights (B, heads, Lq, Lk) or None.

    Raises:
        ValueError: when shapes, grids, the mask or the form do not fit together.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    valid = _valid_keys(k, key_padding_mask)
    if rel_pos_encoding is None:
        if form not in ('auto', 'definition'):
            raise ValueError(f"form={form!r} needs a rel_pos_encoding; without one use 'auto'")
        if valid is not None and attn_mask is None and not need_weights and dropout_p == 0.0:
            if _leaving_out_pays(q, k, valid[0]):
                out = _attend_valid_keys(q, k, v, valid[0], scale)
                return out if bool(valid[1].all()) else _zero_empty(out, valid), None
        return _finish(q, k, v, None, None, valid, attn_mask, dropout_p, scale, need_weights)
    query, key = _check_grids(q, k, rel_pos_encoding, q_grid, k_grid)
    form = _pick_form(rel_pos_encoding, form, q, k, query, key,
                      simple=attn_mask is None and dropout_p == 0.0 and not need_weights)
    if form == 'definition':
        q = q * scale
    if rel_pos_encoding.has_rotation:
        q, k = rel_pos_encoding.rotate(q, k, query, key)
    if form != 'definition':
        out = rel_pos_encoding.attend(q, k, v, query, key, None if valid is None else ~valid[0],
                                      form=form, scale=scale)
        return _zero_empty(out, valid), None
    logits = None
    if rel_pos_encoding.has_logits:
        logits = rel_pos_encoding.logits(q, k, query, key)
    values = (rel_pos_encoding, query, key) if rel_pos_encoding.has_values else None
    return _finish(q, k, v, logits, values, valid, attn_mask, dropout_p, 1.0, need_weights)


def attend_packed(q: Tensor, k: Tensor, v: Tensor, packing: Packing,
                  rel_pos_encoding: RelativeEncoding | None = None, *, dropout_p: float = 0.0,
                  scale: float | None = None, form: str = 'auto') -> Tensor:
    """:func:`attend` for the valid tokens of several images in one row: each attends to its own.

    Args:
        q, k, v: (1, heads, N, head_dims), N = sum(packing.lengths).
        packing: of which image the tokens are; with an encoding also their grids.
        rel_pos_encoding: one that is ``cellwise``, or None.
        Others as of :func:`attend`.

    Returns:
        (1, heads, N, head_dims).
    """
    # Taken apart and put together as (1, N, heads, head_dims), the order in which projections hold
    # them: neither direction then copies more than once.
    grids: Sequence[GridLike | None] = packing.grids or [None] * len(packing.lengths)
    images = zip(*(torch.split(x.transpose(1, 2), packing.lengths, 1) for x in (q, k, v)),
                 strict=True)
    outs = []
    for (query, key, value), grid in zip(images, grids, strict=True):
        out, _ = attend(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
                        rel_pos_encoding, grid, dropout_p=dropout_p, scale=scale, form=form)
        outs.append(out.transpose(1, 2))
    return torch.cat(outs, 1).transpose(1, 2)


def _finish(q: Tensor, k: Tensor, v: Tensor, logits: Tensor | None,
            values: tuple[RelativeEncoding, Grid, Grid] | None,
            valid: tuple[Tensor, Tensor] | None, attn_mask: Tensor | None, dropout_p: float,
            scale: float, need_weights: bool) -> tuple[Tensor, Tensor | None]:
    """The product itself: on SDPA where the weights are not needed, explicit where they are."""
    bias = _merge_masks(logits, None if valid is None else valid[0], attn_mask, q.dtype)
    # A mask that needs a gradient sends SDPA to its slow path on a CPU.
    trains_bias = (logits is not None and logits.requires_grad and torch.is_grad_enabled()
                   and q.device.type == 'cpu')
    if trains_bias and bias is not None and values is None and not need_weights:
        if _own_backward(q, bias, dropout_p):
            q = q if scale == 1.0 else q * scale
            return _zero_empty(biased_attention(q, k, v, bias), valid), None
    if not need_weights and values is None and not trains_bias:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout_p,
                                             scale=scale)
        return _zero_empty(out, valid), None
    scores = (q if scale == 1.0 else q * scale) @ k.transpose(-2, -1)
    if bias is not None:
        if bias.dtype == torch.bool:
            scores = scores.masked_fill(~bias, float('-inf'))
        else:
            scores = scores + bias
    weights = scores.softmax(-1).to(v.dtype)
    if dropout_p > 0.0:
        weights = F.dropout(weights, dropout_p)
    out = weights @ v
    if values is not None:
        term = values[0].values(weights, values[1], values[2])
        if term is not None:
            out = out + term
    return _zero_empty(out, valid), _zero_empty(weights, valid) if need_weights else None


def _leaving_out_pays(q: Tensor, k: Tensor, valid: Tensor) -> bool:
    """Whether to attend to each image's valid keys alone: on a CPU a masked key costs as much as a
    valid one. (A GPU would have to wait for the number of keys.)"""
    if q.device.type != 'cpu' or torch.compiler.is_compiling():
        return False
    return (q.shape[2] * k.shape[2] >= LEAVE_OUT_FROM
            and 1.0 - float(valid.float().mean()) >= LEAVE_OUT_SHARE)


def _attend_valid_keys(q: Tensor, k: Tensor, v: Tensor, valid: Tensor, scale: float) -> Tensor:
    """SDPA of one image at a time, without its padded keys.

    Images are taken apart and put together as (B, L, heads, head_dims), the order in which
    projections hold them: neither direction then copies.
    """
    outs = []
    images = zip(*(x.transpose(1, 2).chunk(len(x)) for x in (q, k, v)), valid, strict=True)
    for query, key, value, keep in images:
        if not bool(keep.all()):
            index = keep.nonzero()[:, 0]
            key, value = key.index_select(1, index), value.index_select(1, index)
        out = F.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale=scale)
        outs.append(out.transpose(1, 2))
    return torch.cat(outs).transpose(1, 2)


def _own_backward(q: Tensor, bias: Tensor, dropout_p: float) -> bool:
    """Whether :func:`biased_attention` applies, and pays: it neither drops nor casts, and compilers
    do without it."""
    if dropout_p > 0.0 or bias.dtype != q.dtype or bias.shape[2:] != (q.shape[2], bias.shape[3]):
        return False
    return (q.shape[2] * bias.shape[3] >= OWN_BACKWARD_FROM
            and not torch.is_autocast_enabled('cpu') and not torch.compiler.is_compiling())


def _valid_keys(k: Tensor, key_padding_mask: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """Valid keys (B, Lk) and which images have one (B,).

    Images without one are told that all their keys are valid, so that nothing turns NaN, and
    :func:`_zero_empty` then clears them: no gradient passes.
    """
    if key_padding_mask is None:
        return None
    if key_padding_mask.dtype != torch.bool:
        raise ValueError(f'key_padding_mask has dtype {key_padding_mask.dtype}; bool is required, '
                         f'True = padding')
    if key_padding_mask.shape != (k.shape[0], k.shape[2]):
        raise ValueError(f'key_padding_mask has shape {tuple(key_padding_mask.shape)}; '
                         f'(B, Lk) = {(k.shape[0], k.shape[2])} is required')
    valid = ~key_padding_mask
    has_valid = valid.any(-1)
    return valid | ~has_valid[:, None], has_valid


def _zero_empty(out: Tensor, valid: tuple[Tensor, Tensor] | None) -> Tensor:
    if valid is None:
        return out
    return out.masked_fill(~valid[1][:, None, None, None], 0.0)


def _merge_masks(logits: Tensor | None, valid: Tensor | None, attn_mask: Tensor | None,
                 dtype: torch.dtype) -> Tensor | None:
    """One mask for all: bool (True = attend) as long as nothing is added to the logits."""
    bias = logits
    if attn_mask is not None:
        if bias is None:
            bias = attn_mask if attn_mask.dtype == torch.bool else attn_mask.to(dtype)
        elif attn_mask.dtype == torch.bool:
            bias = bias.masked_fill(~attn_mask, float('-inf'))
        else:
            bias = bias + attn_mask
    if valid is None:
        return bias
    keep = valid[:, None, None, :]
    if bias is None:
        return keep
    return bias & keep if bias.dtype == torch.bool else bias.masked_fill(~keep, float('-inf'))


def _check_grids(q: Tensor, k: Tensor, encoding: RelativeEncoding, q_grid: GridLike | None,
                 k_grid: GridLike | None) -> tuple[Grid, Grid]:
    """Grids in query units, after checking that they hold as many tokens as q and k have."""
    if q_grid is None:
        raise ValueError(f'q_grid=None, but {type(encoding).__name__} needs the query grid')
    query = as_grid(q_grid, 'q_grid')
    key = key_grid(query, k_grid)
    prefix = encoding.num_prefix_tokens
    for name, tokens, grid in (('q', q.shape[2], query), ('k', k.shape[2], key)):
        if tokens != prefix + grid.num_cells:
            raise ValueError(
                f'{name} has {tokens} tokens, but {name}_grid=({grid.height}, {grid.width}) and '
                f'num_prefix_tokens={prefix} of {type(encoding).__name__} need {prefix} + '
                f'{grid.height} * {grid.width} = {prefix + grid.num_cells}')
    return query, key


def _pick_form(encoding: RelativeEncoding, form: str, q: Tensor, k: Tensor, q_grid: Grid,
               k_grid: Grid, simple: bool) -> str:
    if form == 'auto':
        return encoding.choose_form(q, k, q_grid, k_grid) if simple else 'definition'
    if form == 'definition':
        return form
    if form not in encoding.forms:
        raise ValueError(f'form={form!r} is not offered by {type(encoding).__name__}; it has '
                         f'{", ".join(("auto", "definition", *encoding.forms))}')
    if not simple:
        raise ValueError(f"form={form!r} takes neither attn_mask, dropout nor need_weights; use "
                         f"'auto' or 'definition'")
    return form
