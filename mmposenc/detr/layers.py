"""DETR's encoder layer, and norms, activations and dropout from configs like mmcv's."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.attend import attend
from ..attention.building import build_relative_encoding, check_heads
from ..attention.compute import checked_implementation
from ..attention.multihead import join_heads
from ..backbones.layers import DropPath
from ..backbones.mlp import mlp
from ..backbones.optional_mmengine import BaseModule, ModuleList
from ..config_types import ConfigType
from ..encodings.base import RelativeConfig
from ..encodings.build import construct_or_name_config
from ..functional.grids import GridLike
from ..functional.packing import Packing
from ..functional.tracing import are_plain


def build_norm(cfg: ConfigType, embed_dims: int) -> nn.Module:
    """A norm of tokens, ``dict(type='LN')``.

    Raises:
        ValueError: another type.
    """
    options = {k: v for k, v in cfg.items() if k not in ('type', 'requires_grad')}
    if cfg.get('type') != 'LN':
        raise ValueError(f"norm_cfg={cfg!r} must be dict(type='LN')")
    return nn.LayerNorm(embed_dims, **options).requires_grad_(cfg.get('requires_grad', True))


def build_activation(cfg: ConfigType) -> nn.Module:
    """An activation of torch.nn by its name, ``dict(type='ReLU')``.

    Raises:
        ValueError: torch.nn has no activation of this name.
    """
    kind = getattr(nn.modules.activation, str(cfg.get('type')), None)
    if kind is None:
        raise ValueError(f"act_cfg={cfg!r} must be dict(type='ReLU') or another of torch.nn")
    # Never in place: if the layer before it has a full backward hook, its output is a view, which
    # torch does not let us overwrite.
    options = {k: v for k, v in cfg.items() if k not in ('type', 'inplace')}
    return kind(**options)


def build_dropout(cfg: ConfigType | None) -> nn.Module:
    """``dict(type='Dropout' or 'DropPath', drop_prob=...)``, the identity for None.

    Raises:
        ValueError: another type.
    """
    if not cfg:
        return nn.Identity()
    options = {k: v for k, v in cfg.items() if k != 'type'}
    if cfg.get('type') == 'Dropout':
        return nn.Dropout(options.pop('drop_prob', 0.5), **options)
    if cfg.get('type') == 'DropPath':
        return DropPath(options.pop('drop_prob', 0.1), **options)
    raise ValueError(f"dropout_layer={cfg!r} must be dict(type='Dropout') or dict(type='DropPath')")


def check_batch_first(batch_first: bool) -> None:
    """Raise ValueError for ``batch_first=False``."""
    if not batch_first:
        raise ValueError('batch_first=False must be True, as everywhere in mmdet; leave it out')


# This part of the file has DETR's attention and feed-forward network, with mmcv's names of
# parameters.


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
        heads = [F.linear(x, weight, bias).view(*x.shape[:2], self.num_heads, -1).transpose(1, 2)
                 for x, weight, bias in zip((query, key, value), weights, biases, strict=True)]
        out, attention = run(*heads)
        return self.out_proj(join_heads(out)), attention


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
                key_padding_mask: Tensor | None = None, *,
                hw_shape: GridLike | Packing | None = None, need_weights: bool = False, **_: object
                ) -> Tensor | tuple[Tensor, Tensor]:
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
            hw_shape: (H, W) of queries and keys; required with a relative encoding. A
                :class:`~mmposenc.functional.packing.Packing`: queries and keys are (1, N, C),
                tokens of several images, each of which attends to itself; there are no masks then.
            need_weights: also return the weights (B, heads, Lq, Lk).

        Raises:
            ValueError: the grid is missing or has another number of cells, a mask does not fit, or
                weights of packed images are asked for.
        """
        if need_weights and isinstance(hw_shape, Packing):
            raise ValueError('need_weights=True with a Packing as hw_shape: the weights of packed '
                             'images have no common shape; give a padded batch and its '
                             'key_padding_mask')
        key = query if key is None else key
        value = key if value is None else value
        identity = query if identity is None else identity
        if key_pos is None and query_pos is not None and query_pos.shape == key.shape:
            key_pos = query_pos
        same = key is query and key_pos is query_pos
        query = query if query_pos is None else query + query_pos
        key = query if same else key if key_pos is None else key + key_pos
        dropout_p = self.attn.dropout if self.training else 0.0

        def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
            if isinstance(hw_shape, Packing):
                return self._attend_packed(hw_shape, q, k, v, query, dropout_p), None
            return attend(
                q, k, v, self.rel_pos_encoding, hw_shape, key_padding_mask=key_padding_mask,
                attn_mask=_as_sdpa_mask(attn_mask, self.num_heads), tokens=query,
                need_weights=need_weights,
                implementation=self.implementation, dropout_p=dropout_p)

        out, weights = self.attn(query, key, value, run)
        out = identity + self.dropout_layer(self.proj_drop(out))
        return out if weights is None else (out, weights)

    def _attend_packed(self, packing: Packing, q: Tensor, k: Tensor, v: Tensor, tokens: Tensor,
                       dropout_p: float) -> Tensor:
        """Attention (1, heads, N, head_dims) in which each of the packed images attends only to
        itself. Tokens are the outer dimension in memory, as in projections."""
        def of_image(q: Tensor, grid: GridLike, k: Tensor, v: Tensor, tokens: Tensor) -> Tensor:
            out, _ = attend(*(x.transpose(1, 2) for x in (q, k, v)), self.rel_pos_encoding, grid,
                            tokens=tokens, implementation=self.implementation, dropout_p=dropout_p)
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


class FFN(BaseModule):
    """Feed-forward network of DETR (Carion et al., ECCV 2020, Sec. A.4) with a residual.

    Args:
        embed_dims, feedforward_channels: channels of the tokens and of the hidden layer.
        num_fcs: number of linear layers, always 2.
        act_cfg: activation, see :func:`~mmposenc.detr.layers.build_activation`.
        ffn_drop: dropout after each linear layer.
        dropout_layer: dropout of the residual branch.

    Parameters have the names of mmcv's class, so mmdet's checkpoints load. Difference from mmcv's
    class: the hidden layer is not stored if that is faster (:func:`mmposenc.backbones.mlp.mlp`).

    Raises:
        ValueError: ``num_fcs`` is not 2.
    """

    def __init__(self, embed_dims: int = 256, feedforward_channels: int = 1024, num_fcs: int = 2,
                 act_cfg: ConfigType | None = None, ffn_drop: float = 0.0,
                 dropout_layer: ConfigType | None = None, init_cfg: ConfigType | None = None
                 ) -> None:
        super().__init__(init_cfg)
        if num_fcs != 2:
            raise ValueError(f'num_fcs={num_fcs} must be 2')
        self.embed_dims = embed_dims
        activation = build_activation(dict(type='ReLU') if act_cfg is None else act_cfg)
        self.layers = nn.Sequential(
            nn.Sequential(nn.Linear(embed_dims, feedforward_channels), activation,
                          nn.Dropout(ffn_drop)),
            nn.Linear(feedforward_channels, embed_dims), nn.Dropout(ffn_drop))
        self.dropout_layer = build_dropout(dropout_layer)

    def forward(self, x: Tensor, identity: Tensor | None = None) -> Tensor:
        """Return identity + layers(x), where ``identity`` is x by default."""
        if type(self.layers[0][1]) is nn.ReLU and are_plain(self.layers):
            first, second = self.layers[0][0], self.layers[1]
            out = mlp(x, first.weight, first.bias, second.weight, second.bias, activation='relu',
                      dropout_p=self.layers[0][2].p if self.training else 0.0)
            out = self.layers[2](out)
        else:
            out = self.layers(x)
        return (x if identity is None else identity) + self.dropout_layer(out)


# This part of the file has DETR's encoder layer; it needs only torch.


class DetrEncoderLayer(BaseModule):
    """Encoder layer of DETR (Carion et al., ECCV 2020, Fig. 10) with a relative encoding.

    Args:
        self_attn_cfg: arguments of :class:`MultiheadAttention`, including ``rel_pos_encoding``.
        ffn_cfg: arguments of :class:`FFN`.
        norm_cfg: config of the two norms, see :func:`~mmposenc.detr.layers.build_norm`.
        init_cfg: mmengine's.

    Parameters have the names of mmdet's layer.

    Raises:
        ValueError: sizes of attention and FFN differ.
    """

    # torch.compile treats this class as one unit, see engine/training/compiling.py.
    is_region = True
    attention_type: Any = MultiheadAttention

    def __init__(self, self_attn_cfg: ConfigType | None = None,
                 ffn_cfg: ConfigType | None = None, norm_cfg: ConfigType | None = None,
                 init_cfg: ConfigType | None = None) -> None:
        super().__init__(init_cfg)
        self.self_attn_cfg = dict(embed_dims=256, num_heads=8) if self_attn_cfg is None else (
            self_attn_cfg)
        self.ffn_cfg = {} if ffn_cfg is None else ffn_cfg
        self.norm_cfg = dict(type='LN') if norm_cfg is None else norm_cfg
        self._init_layers()

    def _init_layers(self) -> None:
        self.self_attn = construct_or_name_config(self.attention_type, self.self_attn_cfg,
                                                  'self_attn_cfg')
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 2)

    def forward(self, query: Tensor, query_pos: Tensor | None = None,
                key_padding_mask: Tensor | None = None, *, x_qk: Tensor | None = None,
                **kwargs: Any) -> Tensor | tuple[Tensor, Tensor]:
        """Encode.

        Args:
            query: tokens (B, L, C).
            query_pos: added to the tokens to compute queries and keys, or None.
            key_padding_mask: (B, L) bool, True = padding.
            x_qk: tokens for queries and keys if they differ from ``query``.
            kwargs: ``hw_shape`` for a relative encoding, ``need_weights``, or arguments of a
                deformable attention.

        Returns:
            (B, L, C), with ``need_weights`` also the weights (B, heads, L, L).
        """
        source = query if x_qk is None else x_qk
        out = self.self_attn(source, source, query, query, query_pos=query_pos, key_pos=query_pos,
                             key_padding_mask=key_padding_mask, **kwargs)
        out, weights = out if isinstance(out, tuple) else (out, None)
        out = self.norms[1](self.ffn(self.norms[0](out)))
        return out if weights is None else (out, weights)


def ffn_and_norms(ffn_cfg: ConfigType, norm_cfg: ConfigType, embed_dims: int,
                  num_norms: int) -> tuple[FFN, ModuleList]:
    """The FFN and the norms of a layer."""
    ffn = construct_or_name_config(FFN, ffn_cfg, 'ffn_cfg')
    if ffn.embed_dims != embed_dims:
        raise ValueError(f'ffn_cfg has embed_dims={ffn.embed_dims}, but the attention has '
                         f'{embed_dims}; they must be equal')
    return ffn, ModuleList(build_norm(norm_cfg, embed_dims) for _ in range(num_norms))
