"""Norms, activations and dropout of DETR by mmcv's configs: torch's own where they are the same."""
from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.attend import Options, attend, checked_form, join_heads
from ..attention.linear import check_heads
from ..attention.multihead import build_relative_encoding
from ..backbones.layers import DropPath
from ..backbones.mlp import mlp
from ..backbones.modules import BaseModule, ModuleList
from ..encodings.base import RelativeConfig, RelativeEncoding
from ..functional.grids import GridLike
from ..functional.packing import Packing


def build_norm(cfg: dict[str, Any], embed_dims: int) -> nn.Module:
    """A norm of tokens, ``dict(type='LN')``; others by mmcv.

    Raises:
        ValueError: for another type without mmcv.
    """
    if cfg.get('type') != 'LN':
        _need_mmcv('norm_cfg', cfg, "dict(type='LN')")
        from mmcv.cnn import build_norm_layer
        return build_norm_layer(cfg, embed_dims)[1]  # type: ignore[no-any-return]
    options = {k: v for k, v in cfg.items() if k not in ('type', 'requires_grad')}
    return nn.LayerNorm(embed_dims, **options).requires_grad_(cfg.get('requires_grad', True))


def build_activation(cfg: dict[str, Any]) -> nn.Module:
    """An activation of torch.nn by its name, ``dict(type='ReLU')``; others by mmcv.

    Raises:
        ValueError: for another type without mmcv.
    """
    kind = getattr(nn.modules.activation, str(cfg.get('type')), None)
    if kind is None:
        _need_mmcv('act_cfg', cfg, "dict(type='ReLU') and others of torch.nn")
        from mmcv.cnn import build_activation_layer
        return build_activation_layer(cfg)  # type: ignore[no-any-return]
    return kind(**{k: v for k, v in cfg.items() if k != 'type'})  # type: ignore[no-any-return]


def build_dropout(cfg: dict[str, Any] | None) -> nn.Module:
    """``dict(type='Dropout' or 'DropPath', drop_prob=...)``, nothing for None; others by mmcv.

    Raises:
        ValueError: for another type without mmcv.
    """
    if not cfg:
        return nn.Identity()
    options = {k: v for k, v in cfg.items() if k != 'type'}
    if cfg.get('type') == 'Dropout':
        return nn.Dropout(options.pop('drop_prob', 0.5), **options)
    if cfg.get('type') == 'DropPath':
        return DropPath(options.pop('drop_prob', 0.1), **options)
    _need_mmcv('dropout_layer', cfg, "dict(type='Dropout') and dict(type='DropPath')")
    from mmcv.cnn.bricks.drop import build_dropout as build
    return build(cfg)  # type: ignore[no-any-return]


def _need_mmcv(name: str, cfg: dict[str, Any], known: str) -> None:
    if find_spec('mmcv') is None:
        raise ValueError(f'{name}={cfg!r}: without mmcv there is only {known}')


def check_batch_first(batch_first: bool) -> None:
    """Raise ValueError for tokens in front of batches."""
    if not batch_first:
        raise ValueError('batch_first=False: batches come first in all of mmdet; leave it out')


# Attention and feed-forward network of DETR under mmcv's names, on this project's forms.


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
                 rel_pos_encoding: RelativeConfig | None = None,
                 dropout: float | None = None, attn_drop: float = 0.0, proj_drop: float = 0.0,
                 dropout_layer: dict[str, Any] | None = None, bias: bool = True,
                 batch_first: bool = True, form: str = 'auto',
                 init_cfg: dict[str, Any] | None = None, **unknown: Any) -> None:
        check_heads(embed_dims, num_heads)
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
        act_cfg: activation, :func:`~mmposenc.detr.layers.build_activation`.
        ffn_drop: dropout behind each linear layer.
        dropout_layer: dropout of the residual branch.
        add_identity: whether the input is added.
        layer_scale_init_value: start of a learned factor for each channel; 0 has none.

    Parameters are named as in mmcv's class, so mmdet's checkpoints load as they are. Unlike mmcv's,
    it keeps no hidden layer where that pays (:func:`mmposenc.backbones.mlp.mlp`).

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


# Encoder layer of DETR on this project's attention; torch is enough for it.


class DetrEncoderLayer(BaseModule):
    """Encoder layer of DETR (Carion et al., ECCV 2020, Fig. 10) with a relative encoding.

    Args:
        self_attn_cfg: arguments of :class:`MultiheadAttention`; ``rel_pos_encoding`` among them.
        ffn_cfg: arguments of :class:`FFN`.
        norm_cfg: of the two norms, :func:`~mmposenc.detr.layers.build_norm`.
        init_cfg: as of mmengine's BaseModule.

    Parameters are named as in mmdet's layer; torch is enough for it.

    Raises:
        ValueError: for sizes that do not fit.
    """

    attention_type: Any = MultiheadAttention

    def __init__(self, self_attn_cfg: dict[str, Any] | None = None,
                 ffn_cfg: dict[str, Any] | None = None, norm_cfg: dict[str, Any] | None = None,
                 init_cfg: dict[str, Any] | None = None) -> None:
        super().__init__(init_cfg)
        self.self_attn_cfg = dict(embed_dims=256, num_heads=8) if self_attn_cfg is None else (
            self_attn_cfg)
        self.ffn_cfg = {} if ffn_cfg is None else ffn_cfg
        self.norm_cfg = dict(type='LN') if norm_cfg is None else norm_cfg
        self._init_layers()

    def _init_layers(self) -> None:
        self.self_attn = self.attention_type(**self.self_attn_cfg)
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 2)

    def forward(self, query: Tensor, query_pos: Tensor | None = None,
                key_padding_mask: Tensor | None = None, *, x_qk: Tensor | None = None,
                **kwargs: Any) -> Tensor | tuple[Tensor, Tensor]:
        """Encode.

        Args:
            query: tokens (B, L, C).
            query_pos: added to the tokens where queries and keys are computed, or None.
            key_padding_mask: (B, L) bool, True = padding.
            x_qk: tokens for queries and keys, where they differ from ``query``.
            kwargs: ``hw_shape`` for a relative encoding, ``need_weights``; what a deformable
                attention takes.

        Returns:
            (B, L, C), with ``need_weights`` also the weights (B, heads, L, L).
        """
        source = query if x_qk is None else x_qk
        out = self.self_attn(source, source, query, query, query_pos=query_pos, key_pos=query_pos,
                             key_padding_mask=key_padding_mask, **kwargs)
        out, weights = out if isinstance(out, tuple) else (out, None)
        out = self.norms[1](self.ffn(self.norms[0](out)))
        return out if weights is None else (out, weights)


def ffn_and_norms(ffn_cfg: dict[str, Any], norm_cfg: dict[str, Any], embed_dims: int,
                   num_norms: int) -> tuple[FFN, ModuleList]:
    """What every layer has behind its attention."""
    ffn = FFN(**ffn_cfg)
    if ffn.embed_dims != embed_dims:
        raise ValueError(f'ffn_cfg has embed_dims={ffn.embed_dims}, but the attention has '
                         f'{embed_dims}; they must be equal')
    return ffn, ModuleList(build_norm(norm_cfg, embed_dims) for _ in range(num_norms))
