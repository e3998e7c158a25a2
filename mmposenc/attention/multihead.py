"""Multi-head self-attention on a grid of tokens, with any relative encoding."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..functional.extents import MaskLike, cells_of
from ..functional.grids import Grid, GridLike, check_tokens
from ..functional.linear import project
from ..functional.tracing import is_exporting
from .attend import attend
from .building import build_relative_encoding, check_heads, qkv_projection
from .compute import checked_implementation
from .cosine import CosineScale
from .norms import NORMS

if TYPE_CHECKING:  # Imported only for annotations: the encodings themselves import this package.
    from ..encodings.base import RelativeConfig


class MultiheadAttention(nn.Module):
    """Self-attention of a vision transformer (Dosovitskiy et al., ICLR 2021) with a relative
    encoding (Wu et al., ICCV 2021).

    Args:
        embed_dims: channels of the tokens; a multiple of ``num_heads``.
        num_heads: attention heads.
        qkv_bias: bias of the joint projection to queries, keys and values; 'qv': without a bias of
            the keys (BEiT, Bao et al., ICLR 2022).
        rel_pos_encoding: a :class:`RelativeEncoding`, its config
            (``dict(type='mmposenc.IRPE', ...)``; ``head_dims``, ``num_heads`` and
            ``num_prefix_tokens`` are added), or a list of these to be summed.
        num_prefix_tokens: number of tokens before those of the grid (class, distillation).
        grid_shape: (H, W) for encodings that need the largest grid.
        attn_drop: dropout rate of the attention weights.
        proj_drop: dropout rate of the output.
        implementation: how attention is computed, see :func:`mmposenc.attention.attend`.
        norm: 'layer' or 'rms', the kind of the norms of the next two arguments.
        norm_eps: epsilon of a norm before the output projection (EVA-02, Fang et al. 2023, Sec.
            2.1); None: no norm.
        qk_norm_eps: epsilon of norms of the queries and keys of each head, before any rotation
            (Dehghani et al., ICML 2023, Sec. 2); None: no norms.
        cosine: cosine attention with a learned scale for each head, see
            :class:`~mmposenc.attention.cosine.CosineScale`.

    Parameters are named ``qkv``, ``q_norm``, ``k_norm``, ``cosine``, ``norm``, ``proj`` and
    ``rel_pos_encoding``.
    Difference from iRPE's release: the grid is an argument with any (H, W); there it is a square of
    side floor(sqrt(L)).

    Raises:
        ValueError: ``embed_dims`` is not a multiple of ``num_heads``, or the encoding has another
            number of prefix tokens.
    """

    def __init__(self, embed_dims: int, num_heads: int, *, qkv_bias: bool | str = True,
                 rel_pos_encoding: RelativeConfig | None = None,
                 num_prefix_tokens: int = 0, grid_shape: GridLike | None = None,
                 attn_drop: float = 0.0, proj_drop: float = 0.0, implementation: str = 'auto',
                 norm: str = 'layer', norm_eps: float | None = None,
                 qk_norm_eps: float | None = None, cosine: bool = False) -> None:
        super().__init__()
        check_heads(embed_dims, num_heads)
        if num_prefix_tokens < 0:
            raise ValueError(f'num_prefix_tokens={num_prefix_tokens} must be >= 0')
        self.embed_dims = embed_dims
        self.num_heads = num_heads
        self.head_dims = embed_dims // num_heads
        self.num_prefix_tokens = num_prefix_tokens
        self.implementation = checked_implementation(implementation)
        self.attn_drop = attn_drop
        self.qkv = qkv_projection(embed_dims, qkv_bias)
        self.q_norm, self.k_norm = (
            None if qk_norm_eps is None else NORMS[norm](self.head_dims, eps=qk_norm_eps)
            for _ in range(2))
        self.cosine = CosineScale(num_heads) if cosine else None
        self.norm = None if norm_eps is None else NORMS[norm](embed_dims, eps=norm_eps)
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.proj_drop = nn.Dropout(proj_drop)
        self.rel_pos_encoding = build_relative_encoding(
            rel_pos_encoding, self.head_dims, num_heads, num_prefix_tokens, grid_shape=grid_shape)

    def forward(self, x: Tensor, hw_shape: GridLike, key_padding_mask: MaskLike | None = None,
                need_weights: bool = False, *, x_qk: Tensor | None = None,
                attn_mask: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Attend.

        Args:
            x: (B, L, embed_dims), L = num_prefix_tokens + H * W, prefix tokens first.
            hw_shape: (H, W) of the grid; (length,) of a sequence; (frames, H, W) of a video, for
                encodings with ``takes_frames``.
            key_padding_mask: (B, L) bool, True = padding, or a ``PaddingMask``. The output
                for an image of only padding is ``proj``'s bias.
            need_weights: also return the attention weights (B, heads, L, L), for figures.
            x_qk: tokens for queries and keys if they differ from ``x`` (encodings with
                ``apply_to='qk'``).
            attn_mask: (B or 1, heads or 1, L or 1, L) bool, True = may attend; or numbers that are
                added to the logits.

        Returns:
            (B, L, embed_dims), with ``need_weights`` a pair (output, weights).

        Raises:
            ValueError: L does not match the grid and the prefix tokens, or a mask has a wrong shape
                or dtype.
        """
        grid = check_tokens(x, hw_shape, self.num_prefix_tokens, any_axes=True)
        check_x_qk(x, x_qk)
        qkv = self._projected_and_normed(  # (B, heads, L, D)
            x, x_qk, grid, cells_of(key_padding_mask))
        return self._attend_and_project(qkv, grid, tokens=x if x_qk is None else x_qk,
                                        key_padding_mask=key_padding_mask, attn_mask=attn_mask,
                                        need_weights=need_weights)

    def _projected_and_normed(
            self, x: Tensor, x_qk: Tensor | None = None, grid: Grid | None = None,
            padding: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Project tokens to q, k and v, and norm q and k, or scale them where attention is by
        cosines. That comes before any rotation: an encoding may scale queries, which norms and
        cosines would undo."""
        q, k, v = self._project(x, x_qk, grid, padding)
        if self.q_norm is not None and self.k_norm is not None:
            # A LayerNorm under autocast gives float32.
            q, k = self.q_norm(q).to(q.dtype), self.k_norm(k).to(k.dtype)
        if self.cosine is not None:
            q, k = self.cosine(q, k)
        return q, k, v

    def _project(self, x: Tensor, x_qk: Tensor | None = None, grid: Grid | None = None,
                 padding: Tensor | None = None) -> tuple[Tensor, ...]:
        """q, k, v, each (B, heads, L, head_dims); a subclass may look at the grid and its padding
        (B, L)."""
        dims = self.embed_dims
        if x_qk is None:
            joint = [project(self.qkv, x)]  # (B, L, 3 C)
        else:
            joint = [project(self.qkv, x_qk, slice(2 * dims)),  # (B, L, 2 C)
                     project(self.qkv, x, slice(2 * dims, None))]  # (B, L, C)
        return tuple(part for each in joint
                     for part in split_heads(each, self.num_heads, each.shape[-1] // dims))

    def _attend_and_project(self, qkv: tuple[Tensor, ...], grid: GridLike | None, **options: Any
                            ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend with the result of :meth:`_projected_and_normed`. Returns the output (B, L,
        embed_dims), and the weights if they are needed; without a grid the encoding takes no
        part."""
        q, k, v = qkv  # (B, heads, L, head_dims)
        out, weights = attend(q, k, v, None if grid is None else self.rel_pos_encoding, grid,
                              implementation=self.implementation,
                              dropout_p=self.attn_drop if self.training else 0.0, **options)
        out = join_heads(out)  # (B, heads, L, head_dims) -> (B, L, C)
        out = out if self.norm is None else self.norm(out)
        out = self.proj_drop(project(self.proj, out))
        return out if weights is None else (out, weights)


def check_x_qk(x: Tensor, x_qk: Tensor | None) -> None:
    """Raise ValueError if tokens for queries and keys have another shape than those for values."""
    if x_qk is not None and x_qk.shape != x.shape:
        raise ValueError(f'x_qk has shape {tuple(x_qk.shape)}; it must be that of x, '
                         f'{tuple(x.shape)}')


def split_heads(x: Tensor, num_heads: int, parts: int = 1) -> tuple[Tensor, ...]:
    """Split a joint tensor (B, L, parts * C) into ``parts`` tensors (B, heads, L, head_dims)."""
    joint: Tensor = x.unflatten(-1, (parts, num_heads, -1))
    # With unbind, the gradients of the parts are put together with one copy, in the order of x.
    return tuple(each.transpose(1, 2) for each in joint.unbind(2))


def join_heads(out: Tensor) -> Tensor:
    """(B, heads, L, head_dims) -> (B, L, heads * head_dims)."""
    out = out.transpose(1, 2)
    if is_exporting():
        # Made contiguous, because an exporter later replaces attention by operators whose output
        # has another memory layout.
        out = out.clone(memory_format=torch.contiguous_format)
    return out.flatten(2)
