"""Encoder layer of DETR on this project's attention; torch is enough for it."""
from __future__ import annotations

from typing import Any

from torch import Tensor

from ..modules import BaseModule, ModuleList
from .attention import FFN, MultiheadAttention
from .parts import build_norm


class DetrEncoderLayer(BaseModule):
    """Encoder layer of DETR (Carion et al., ECCV 2020, Fig. 10) with a relative encoding.

    Args:
        self_attn_cfg: arguments of :class:`MultiheadAttention`; ``rel_pos_encoding`` among them.
        ffn_cfg: arguments of :class:`FFN`.
        norm_cfg: of the two norms, :func:`~mmposenc.detr.parts.build_norm`.
        init_cfg: as of mmengine's BaseModule.

    Parameters are named as in mmdet's layer; torch is enough for it.

    Raises:
        ValueError: for sizes that do not fit.
    """

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
        self.self_attn = MultiheadAttention(**self.self_attn_cfg)
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
    """What every layer has beside its attention."""
    ffn = FFN(**ffn_cfg)
    if ffn.embed_dims != embed_dims:
        raise ValueError(f'ffn_cfg has embed_dims={ffn.embed_dims}, but the attention has '
                         f'{embed_dims}; they must be equal')
    return ffn, ModuleList(build_norm(norm_cfg, embed_dims) for _ in range(num_norms))
