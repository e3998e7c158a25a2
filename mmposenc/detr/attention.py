"""DETR's attention, with mmcv's names of parameters."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.attend import attend
from ..attention.building import build_relative_encoding, check_heads
from ..attention.compute import checked_implementation
from ..attention.multihead import join_heads
from ..backbones.optional_mmengine import BaseModule
from ..config_types import ConfigType
from ..encodings.base import RelativeConfig
from ..functional.extents import MaskLike
from ..functional.grids import GridLike
from ..functional.linear import linear, project
from ..functional.packing import Packing
from .building import build_dropout, check_batch_first


class ProjectedAttention(nn.MultiheadAttention):
    """The projections of ``nn.MultiheadAttention``, with its names and initial values of
    parameters, around an attention that the caller computes. It is called as a layer, so that its
    hooks run."""

    def forward(self, query: Tensor, key: Tensor,  # type: ignore[override]
                value: Tensor, run: Callable[..., tuple[Tensor, Tensor | None]]
                ) -> tuple[Tensor, Tensor | None]:
        """Project, attend and project.

        Args:
            query: (B, Lq, C).
            key, value: (B, Lk, C).
            run: takes q, k and v, each (B, heads, L, head_dims), and returns the output of this
                shape, and weights or None.

        Returns:
            The output (B, Lq, C), and the weights.
        """
        # Three products: with one joint product, the gradients would have to be concatenated.
        weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        heads = [linear(x, weight, bias).view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)
                 for x, weight, bias in zip((query, key, value), weights, biases, strict=True)]
        out, attention = run(*heads)
        return project(self.out_proj, join_heads(out)), attention


class MultiheadAttention(BaseModule):
    """Residual attention of DETR (Carion et al., ECCV 2020, Sec. A.4) with a relative encoding
    (iRPE, ICCV 2021, Sec. 4.4).

    Parameters have the names of mmcv's class (``attn.in_proj_weight``, ``attn.out_proj.weight``),
    so mmdet's checkpoints load; only ``rel_pos_encoding`` is new. Differences from mmcv's class:
    attention weights are computed only with ``need_weights``, and tensors are batch-first.

    Args:
        embed_dims, num_heads: channels and heads.
        rel_pos_encoding: config of a :class:`RelativeEncoding`, or None.
        dropout: mmdet's short option for dropout of attention weights and output, instead of the
            next three arguments.
        attn_drop, proj_drop, dropout_layer: dropout of attention weights, of the projected output,
            and of the residual branch.
        bias: bias of the projections.
        implementation: how attention is computed, see :func:`mmposenc.attention.attend`.

    Raises:
        ValueError: ``embed_dims`` is not a multiple of ``num_heads``, or an option of mmcv's class
            is not supported.
    """

    def __init__(self, embed_dims: int, num_heads: int, *,
                 rel_pos_encoding: RelativeConfig | None = None,
                 dropout: float | None = None, attn_drop: float = 0.0, proj_drop: float = 0.0,
                 dropout_layer: ConfigType | None = None, bias: bool = True,
                 batch_first: bool = True, implementation: str = 'auto',
                 init_cfg: ConfigType | None = None, **unknown: object) -> None:
        check_heads(embed_dims, num_heads)
        check_batch_first(batch_first)
        if unknown:
            raise ValueError(f'attention takes no {", ".join(sorted(unknown))}')
        if dropout is not None:
            attn_drop, dropout_layer = dropout, dict(type='Dropout', drop_prob=dropout)
        super().__init__(init_cfg)
        self.embed_dims, self.num_heads, self.batch_first = embed_dims, num_heads, True
        self.attn = ProjectedAttention(embed_dims, num_heads, attn_drop, bias=bias)
        self.proj_drop = nn.Dropout(proj_drop)
        self.dropout_layer = build_dropout(dropout_layer)
        self.implementation = checked_implementation(implementation)
        self.rel_pos_encoding = build_relative_encoding(
            rel_pos_encoding, embed_dims // num_heads, num_heads, 0)

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
                identity: Tensor | None = None, query_pos: Tensor | None = None,
                key_pos: Tensor | None = None, attn_mask: Tensor | None = None,
                key_padding_mask: MaskLike | None = None, *,
                hw_shape: GridLike | None = None, packing: Packing | None = None,
                need_weights: bool = False, **_: object) -> Tensor | tuple[Tensor, Tensor]:
        """identity + attention.

        Args:
            query: (B, Lq, C).
            key, value: (B, Lk, C); by default the query, and the key.
            identity: tensor to which the result is added; by default the query.
            query_pos, key_pos: added to query and key; if one is missing and both have the same
                shape, it is taken from the other, as in mmcv.
            attn_mask: (Lq, Lk) or (B * heads, Lq, Lk); bool with True = masked, or added to the
                logits.
            key_padding_mask: (B, Lk) bool, True = padding. For an image of only padding the
                attention is zero.
            hw_shape: (H, W) of queries and keys; required with a relative encoding.
            packing: queries and keys are (1, N, C), tokens of several images, each of which
                attends to itself on a grid of its own; there are no masks then, and no hw_shape.
            need_weights: also return the weights (B, heads, Lq, Lk).

        Raises:
            ValueError: the grid is missing or has another number of cells, a mask does not fit, or
                weights of packed images are asked for.
        """
        if need_weights and packing is not None:
            raise ValueError('need_weights=True with packing: the weights of packed images have no '
                             'common shape; give a padded batch and its key_padding_mask')
        key = query if key is None else key
        value = key if value is None else value
        identity = query if identity is None else identity
        if key_pos is None and query_pos is not None and query_pos.shape == key.shape:
            key_pos = query_pos
        same = key is query and key_pos is query_pos
        query = query if query_pos is None else query + query_pos
        key = query if same else key if key_pos is None else key + key_pos

        def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
            if packing is not None:
                return self._attend_packed(packing, q, k, v, query), None
            return self._attend(
                q, k, v, query, hw_shape, key_padding_mask=key_padding_mask,
                attn_mask=_as_sdpa_mask(attn_mask, self.num_heads), need_weights=need_weights)

        out, weights = self.attn(query, key, value, run)
        out = identity + self.dropout_layer(self.proj_drop(out))
        return out if weights is None else (out, weights)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, tokens: Tensor, grid: GridLike | None,
                **options: Any) -> tuple[Tensor, Tensor | None]:
        return attend(q, k, v, self.rel_pos_encoding, grid, tokens=tokens,
                      implementation=self.implementation,
                      dropout_p=self.attn.dropout if self.training else 0.0, **options)

    def _attend_packed(self, packing: Packing, q: Tensor, k: Tensor, v: Tensor, tokens: Tensor
                       ) -> Tensor:
        """Attention (1, heads, N, head_dims) in which each of the packed images attends only to
        itself. Tokens are the outer dimension in memory, as in projections."""
        def of_image(q: Tensor, grid: GridLike, k: Tensor, v: Tensor, tokens: Tensor) -> Tensor:
            out, _ = self._attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), tokens,
                                  grid)
            return out.transpose(1, 2)

        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return packing.run_on_parts(of_image, q, k=k, v=v, tokens=tokens).transpose(1, 2)


def _as_sdpa_mask(attn_mask: Tensor | None, num_heads: int) -> Tensor | None:
    """Convert the mask of nn.MultiheadAttention to that of ``F.scaled_dot_product_attention``."""
    if attn_mask is None:
        return None
    if attn_mask.dim() == 3:
        attn_mask = attn_mask.unflatten(0, (-1, num_heads))
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise ValueError(f'attn_mask has dtype {attn_mask.dtype}; bool (True = masked) or floating '
                         f'numbers (added to the logits) are required')
    return ~attn_mask if attn_mask.dtype == torch.bool else attn_mask
