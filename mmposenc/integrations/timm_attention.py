"""timm's attentions with a relative encoding: the same parameters, computed by :func:`attend`."""
from __future__ import annotations

from typing import Any

import torch
from timm.layers import Attention, AttentionRope, apply_rot_embed_cat
from timm.models.eva import EvaAttention
from timm.models.swin_transformer import WindowAttention
from timm.models.swin_transformer_v2 import WindowAttention as WindowAttentionV2
from torch import Tensor

from ..attention.attend import attend
from ..attention.cosine import scaled_cosines
from ..encodings.base import RelativeEncoding
from .timm_grids import grid_of_call


class Encoded:
    """A mixin for timm's attention classes with an encoding."""

    rel_pos_encoding: RelativeEncoding | None

    def _attend(self: Any, q: Tensor, k: Tensor, v: Tensor, grid: tuple[int, int],
                attn_mask: Tensor | None, tokens: Tensor) -> Tensor:
        out, _ = attend(q, k, v, self.rel_pos_encoding, grid, attn_mask=attn_mask, tokens=tokens,
                        dropout_p=self.attn_drop.p if self.training else 0.0)
        return out.transpose(1, 2).flatten(2)


class WholeGridAttention(Encoded):
    """Attention of timm's ViT and Eva over the whole grid; ``fused_attn`` is ignored."""

    def forward(self: Any, x: Tensor, rope: Tensor | None = None, attn_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:
        """(B, L, C) -> (B, L, C); arguments are timm's.

        Raises:
            ValueError: both ``attn_mask`` and ``is_causal``.
        """
        if is_causal:
            if attn_mask is not None:
                raise ValueError('attn_mask and is_causal=True: give one mask')
            attn_mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        grid = grid_of_call()
        q, k, v = _project(self, x)
        q, k = self.q_norm(q), self.k_norm(k)
        if rope is not None:
            q, k = (_rotated(self, each, rope).to(v.dtype) for each in (q, k))
        groups = q.shape[1] // k.shape[1]
        if groups > 1:
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        out = self.norm(self._attend(q, k, v, grid, attn_mask, x))
        if getattr(self, 'gate', None) is not None:
            out = out * self.gate(x).sigmoid()
        return self.proj_drop(self.proj(out))


class EncodedWindows(Encoded):
    """Window attention of timm's Swins; the grid is the window."""

    def forward(self: Any, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B * windows, Wh * Ww, C) -> the same; ``mask`` (windows, L, L) is timm's."""
        q, k, v = _project(self, x)
        q, k = self._as_compared(q, k)
        bias = self._own_bias()
        if mask is not None:
            bias = mask[:, None] if bias is None else bias + mask[:, None]
            bias = bias.repeat(len(x) // len(mask), 1, 1, 1)
        out = self._attend(q, k, v, self.window_size, bias, x)
        return self.proj_drop(self.proj(out))

    def _as_compared(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """The queries and keys as the dot product takes them."""
        return q, k


class _Attention(WholeGridAttention, Attention):
    pass


class _AttentionRope(WholeGridAttention, AttentionRope):
    pass


class _EvaAttention(WholeGridAttention, EvaAttention):
    pass


class _WindowAttention(EncodedWindows, WindowAttention):
    #: The names of the tensors that :func:`drop_own_bias` removes.
    own_bias = ('relative_position_bias_table',)

    def _own_bias(self) -> Tensor | None:
        if self.relative_position_bias_table is None:
            return None
        return self._get_rel_pos_bias()

    def set_window_size(self, window_size: tuple[int, int]) -> None:
        """Set the window size as timm does, although the table that it resizes may have been
        removed."""
        if self.relative_position_bias_table is not None:
            super().set_window_size(window_size)
        else:
            self.window_size = tuple(window_size)
            self.window_area = window_size[0] * window_size[1]


class _WindowAttentionV2(EncodedWindows, WindowAttentionV2):
    own_bias = ('cpb_mlp',)

    def _as_compared(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return scaled_cosines(q, k, self.logit_scale)

    def _own_bias(self) -> Tensor | None:
        if self.cpb_mlp is None:
            return None
        table = self.cpb_mlp(self.relative_coords_table).flatten(0, 2).t()
        return 16 * table[:, self.relative_position_index].sigmoid()[None]


#: For each attention class of timm, the class with an encoding.
ENCODED: dict[type, type] = {
    Attention: _Attention, AttentionRope: _AttentionRope, EvaAttention: _EvaAttention,
    WindowAttention: _WindowAttention, WindowAttentionV2: _WindowAttentionV2}


def drop_own_bias(attention: Any) -> None:
    """Remove the bias that timm's window attention has of its own."""
    for name in attention.own_bias:
        setattr(attention, name, None)


def _project(attn: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (B, heads, L, head_dims); keys and values may have fewer heads than
    queries."""
    if attn.qkv is None:
        separate = [layer(x) for layer in (attn.q_proj, attn.k_proj, attn.v_proj)]
        head_dims = separate[0].shape[-1] // attn.num_heads
        q, k, v = (each.unflatten(2, (-1, head_dims)).transpose(1, 2) for each in separate)
        return q, k, v
    if getattr(attn, 'q_bias', None) is None:
        joint = attn.qkv(x)
    else:
        joint = attn.qkv(x) + torch.cat((attn.q_bias, attn.k_bias, attn.v_bias))
    q, k, v = joint.unflatten(2, (3, attn.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    return q, k, v


def _rotated(attn: Any, x: Tensor, rope: Tensor) -> Tensor:
    """Apply the model's own rotary encoding, which does not rotate prefix tokens."""
    prefix, cells = x.split((attn.num_prefix_tokens, x.shape[2] - attn.num_prefix_tokens), 2)
    half = getattr(attn, 'rotate_half', False)
    return torch.cat((prefix, apply_rot_embed_cat(cells, rope, half=half)), 2)
