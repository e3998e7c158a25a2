"""Attention and feed-forward network of DETR under mmcv's names, on this project's forms."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.attend import Options, attend, checked_form, join_heads
from ..attention.multihead import build_relative_encoding
from ..encodings.base import RelativeEncoding
from ..functional.grids import GridLike
from ..functional.mlp import mlp
from ..functional.packing import Packing
from ..modules import BaseModule
from .parts import build_activation, build_dropout, check_batch_first

if TYPE_CHECKING:
    from typing_extensions import Unpack


class MultiheadAttention(BaseModule):
    """Residual attention of DETR (Carion et al., ECCV 2020, Sec. A.4) that takes a relative
    encoding (iRPE, ICCV 2021, Sec. 4.4).

    Parameters are named as in mmcv's class (``attn.in_proj_weight``, ``attn.out_proj.weight``), so
    mmdet's checkpoints load as they are; only ``rel_pos_encoding`` is new. Unlike mmcv's, no
    attention weights are computed unless asked for, and batches come first.

    Args:
        embed_dims, num_heads: channels and heads.
        rel_pos_encoding: config of a :class:`RelativeEncoding`, or None.
        dropout: mmdet's short form, of the weights and of the output; instead of the three below.
        attn_drop, proj_drop, dropout_layer: dropout of the weights, of the projected output, and
            of the residual branch.
        bias: bias of the projections.
        form: which formulation runs, see :func:`mmposenc.attention.attend`.

    Raises:
        ValueError: for sizes that do not divide, or options mmcv's class takes and this one not.
    """

    def __init__(self, embed_dims: int, num_heads: int, *,
                 rel_pos_encoding: RelativeEncoding | dict[str, Any] | None = None,
                 dropout: float | None = None, attn_drop: float = 0.0, proj_drop: float = 0.0,
                 dropout_layer: dict[str, Any] | None = None, bias: bool = True,
                 batch_first: bool = True, form: str = 'auto',
                 init_cfg: dict[str, Any] | None = None, **unknown: Any) -> None:
        if num_heads < 1 or embed_dims < 1 or embed_dims % num_heads:
            raise ValueError(f'embed_dims={embed_dims} must be a positive multiple of '
                             f'num_heads={num_heads}')
        check_batch_first(batch_first)
        if unknown:
            raise ValueError(f'attention takes no {", ".join(sorted(unknown))}')
        if dropout is not None:
            attn_drop, dropout_layer = dropout, dict(type='Dropout', drop_prob=dropout)
        super().__init__(init_cfg)
        self.embed_dims, self.num_heads, self.batch_first = embed_dims, num_heads, True
        # For its parameters: names and initial values are those of mmcv's class.
        self.attn = nn.MultiheadAttention(embed_dims, num_heads, attn_drop, bias=bias)
        self.proj_drop = nn.Dropout(proj_drop)
        self.dropout_layer = build_dropout(dropout_layer)
        self.form = checked_form(form)
        self.rel_pos_encoding: RelativeEncoding | None = None
        if rel_pos_encoding is not None:
            self.rel_pos_encoding = build_relative_encoding(
                rel_pos_encoding, embed_dims // num_heads, num_heads, 0)

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
                identity: Tensor | None = None, query_pos: Tensor | None = None,
                key_pos: Tensor | None = None, attn_mask: Tensor | None = None,
                key_padding_mask: Tensor | None = None, *, hw_shape: GridLike | None = None,
                packing: Packing | None = None, need_weights: bool = False, **_: Any
                ) -> Tensor | tuple[Tensor, Tensor]:
        """identity + attention.

        Args:
            query: (B, Lq, C).
            key, value: (B, Lk, C); the query and the key by default.
            identity: what the result is added to, the query by default.
            query_pos, key_pos: added to query and key; one that is missing is taken from the other
                where they have one shape, as mmcv does.
            attn_mask: (Lq, Lk) or (B * heads, Lq, Lk); bool with True = not allowed, or added.
            key_padding_mask: (B, Lk) bool, True = padding. An image of padding alone attends to
                nothing.
            hw_shape: (H, W) of queries and keys; needed with a relative encoding.
            packing: tells that queries and keys are (1, N, C), the valid tokens of several images,
                each of which attends to its own; instead of the masks and ``hw_shape``.
            need_weights: also return the weights (B, heads, Lq, Lk).

        Raises:
            ValueError: if the grid is missing or does not hold the tokens, or a mask does not fit.
        """
        key = query if key is None else key
        value = key if value is None else value
        identity = query if identity is None else identity
        if key_pos is None and query_pos is not None and query_pos.shape == key.shape:
            key_pos = query_pos
        same = key is query and key_pos is query_pos
        query = query if query_pos is None else query + query_pos
        key = query if same else key if key_pos is None else key + key_pos
        q, k, v = self._project(query, key, value)
        dropout_p = self.attn.dropout if self.training else 0.0
        weights = None
        if packing is not None:
            out = attend_packed(q, k, v, packing, self.rel_pos_encoding, dropout_p=dropout_p,
                                form=self.form)
        else:
            out, weights = attend(
                q, k, v, self.rel_pos_encoding, hw_shape, key_padding_mask=key_padding_mask,
                attn_mask=_allowed(attn_mask, q.shape[1]), need_weights=need_weights,
                form=self.form, dropout_p=dropout_p)
        out = self.attn.out_proj(join_heads(out))
        out = identity + self.dropout_layer(self.proj_drop(out))
        return out if weights is None else (out, weights)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """q, k, v, each (B, heads, L, head_dims)."""
        # Three products: the gradient of one joint product would first have to be put together.
        weights = self.attn.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.attn.in_proj_bias is None else self.attn.in_proj_bias.chunk(3)
        return [F.linear(x, weight, bias).view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)
                for x, weight, bias in zip((query, key, value), weights, biases, strict=True)]


def attend_packed(q: Tensor, k: Tensor, v: Tensor, packing: Packing,
                  rel_pos_encoding: RelativeEncoding | None = None, **options: Unpack[Options]
                  ) -> Tensor:
    """Attention of the valid tokens of several images in one row: each attends to its own.

    Args:
        q, k, v: (1, heads, N, head_dims), N = sum(packing.lengths).
        packing: of which image the tokens are; with an encoding also their grids.
        rel_pos_encoding: one that is ``cellwise``, or None.

    Returns:
        (1, heads, N, head_dims), tokens first in memory, as projections hold them.
    """
    grids: Sequence[GridLike | None] = packing.grids or [None] * len(packing.lengths)
    images = zip(*(torch.split(x.transpose(1, 2), packing.lengths, 1) for x in (q, k, v)),
                 strict=True)
    outs = [attend(*(x.transpose(1, 2) for x in image), rel_pos_encoding, grid, **options)[0]
            for image, grid in zip(images, grids, strict=True)]
    return torch.cat([out.transpose(1, 2) for out in outs], 1).transpose(1, 2)


def _allowed(attn_mask: Tensor | None, num_heads: int) -> Tensor | None:
    """nn.MultiheadAttention's mask in the form of ``F.scaled_dot_product_attention``."""
    if attn_mask is None:
        return None
    if attn_mask.dim() == 3:
        attn_mask = attn_mask.unflatten(0, (-1, num_heads))
    return attn_mask if attn_mask.is_floating_point() else ~attn_mask.bool()


class FFN(BaseModule):
    """Feed-forward network of DETR (Carion et al., ECCV 2020, Sec. A.4) with a residual.

    Args:
        embed_dims, feedforward_channels: channels of the tokens and of the hidden layers.
        num_fcs: linear layers, at least 2.
        act_cfg: activation, :func:`~mmposenc.detr.parts.build_activation`.
        ffn_drop: dropout behind each linear layer.
        dropout_layer: dropout of the residual branch.
        add_identity: whether the input is added.
        layer_scale_init_value: start of a learned factor for each channel; 0 has none.

    Parameters are named as in mmcv's class, so mmdet's checkpoints load as they are. Unlike mmcv's,
    it keeps no hidden layer where that pays (:func:`mmposenc.functional.mlp.mlp`).

    Raises:
        ValueError: for fewer than two linear layers.
    """

    def __init__(self, embed_dims: int = 256, feedforward_channels: int = 1024, num_fcs: int = 2,
                 act_cfg: dict[str, Any] | None = None, ffn_drop: float = 0.0,
                 dropout_layer: dict[str, Any] | None = None, add_identity: bool = True,
                 init_cfg: dict[str, Any] | None = None, layer_scale_init_value: float = 0.0
                 ) -> None:
        super().__init__(init_cfg)
        if num_fcs < 2:
            raise ValueError(f'num_fcs={num_fcs} must be at least 2')
        self.embed_dims, self.num_fcs = embed_dims, num_fcs
        self.feedforward_channels, self.add_identity = feedforward_channels, add_identity
        act_cfg = dict(type='ReLU', inplace=True) if act_cfg is None else act_cfg
        sizes = [embed_dims, *[feedforward_channels] * (num_fcs - 1)]
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(*pair), build_activation(act_cfg), nn.Dropout(ffn_drop))
              for pair in pairwise(sizes)),
            nn.Linear(feedforward_channels, embed_dims), nn.Dropout(ffn_drop))
        self.dropout_layer = build_dropout(dropout_layer)
        self.gamma2 = nn.Identity() if layer_scale_init_value <= 0 else _Factors(
            embed_dims, layer_scale_init_value)

    def forward(self, x: Tensor, identity: Tensor | None = None) -> Tensor:
        """identity + layers(x); ``identity`` is x by default."""
        if self._is_plain_mlp():
            first, second = self.layers[0][0], self.layers[1]
            out = mlp(x, first.weight, first.bias, second.weight, second.bias, activation='relu',
                      dropout_p=self.layers[0][2].p if self.training else 0.0)
            out = self.layers[2](out)
        else:
            out = self.layers(x)
        out = self.dropout_layer(self.gamma2(out))
        if not self.add_identity:
            return out  # type: ignore[no-any-return]
        return (x if identity is None else identity) + out

    def _is_plain_mlp(self) -> bool:
        return self.num_fcs == 2 and isinstance(self.layers[0][1], nn.ReLU)


class _Factors(nn.Module):
    """mmcv's LayerScale: the parameter's name and shape are those of its files."""

    def __init__(self, embed_dims: int, init_value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((embed_dims,), float(init_value)))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight
