"""DETR's encoder layer and its feed-forward network, with mmcv's names of parameters."""
from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..backbones.mlp import mlp
from ..backbones.optional_mmengine import BaseModule, ModuleList
from ..config_types import ConfigType
from ..encodings.build import construct_or_name_config
from ..functional.extents import MaskLike
from ..functional.tracing import are_plain
from .attention import MultiheadAttention
from .building import build_activation, build_dropout, build_norm


class FFN(BaseModule):
    """Feed-forward network of DETR (Carion et al., ECCV 2020, Sec. A.4) with a residual.

    Args:
        embed_dims, feedforward_channels: channels of the tokens and of the hidden layer.
        num_fcs: number of linear layers, always 2.
        act_cfg: activation, see :func:`~mmposenc.detr.layers.build_activation`.
        ffn_drop: dropout after each linear layer.
        dropout_layer: dropout of the residual branch.
        init_cfg: mmengine's.

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
    #: Arguments of the attention where a config has none, as in mmdet.
    usual_attention: ConfigType = dict(embed_dims=256, num_heads=8)

    def __init__(self, self_attn_cfg: ConfigType | None = None,
                 ffn_cfg: ConfigType | None = None, norm_cfg: ConfigType | None = None,
                 init_cfg: ConfigType | None = None) -> None:
        super().__init__(init_cfg)
        self.self_attn_cfg = self.usual_attention if self_attn_cfg is None else self_attn_cfg
        self.ffn_cfg = {} if ffn_cfg is None else ffn_cfg
        self.norm_cfg = dict(type='LN') if norm_cfg is None else norm_cfg
        self._init_layers()

    def _init_layers(self) -> None:
        self.self_attn = construct_or_name_config(self.attention_type, self.self_attn_cfg,
                                                  'self_attn_cfg')
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 2)

    def forward(self, query: Tensor, query_pos: Tensor | None = None,
                key_padding_mask: MaskLike | None = None, *, x_qk: Tensor | None = None,
                **kwargs: Any) -> Tensor | tuple[Tensor, Tensor]:
        """Encode.

        Args:
            query: tokens (B, L, C).
            query_pos: added to the tokens to compute queries and keys, or None.
            key_padding_mask: (B, L) bool, True = padding.
            x_qk: tokens for queries and keys if they differ from ``query``.
            kwargs: ``hw_shape`` for a relative encoding, ``packing``, ``need_weights``, or
                arguments of a deformable attention.

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
