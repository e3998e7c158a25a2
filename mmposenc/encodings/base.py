"""The two contracts every encoding follows."""
from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from ..functional.grids import GridLike


class TokenEncoding(nn.Module, ABC):
    """An encoding applied to tokens: ``forward(x, hw_shape, *, num_prefix_tokens, padding_mask)``.

    Shapes: x (B, L, C) with L = num_prefix_tokens + H * W, prefix tokens first and returned
    unchanged; ``padding_mask`` (B, H, W) bool, True = padding. Valid tokens of the output must not
    depend on what the padding holds nor on how much of it there is.
    """

    #: 'qkv' replaces the tokens; 'qk' leaves them and encodes only what the next attention
    #: computes its queries and keys from.
    apply_to: str = 'qkv'
    #: Where a backbone places it when its own ``positions`` is None.
    default_positions: tuple[int, ...] = (0,)

    @abstractmethod
    def forward(self, x: Tensor, hw_shape: tuple[int, int], *, num_prefix_tokens: int = 0,
                padding_mask: Tensor | None = None) -> Tensor:
        """Return the encoded tokens."""

    def out_hw_shape(self, hw_shape: tuple[int, int]) -> tuple[int, int]:
        """Grid of the output; only unpadded convolutions change it."""
        return hw_shape

    def out_padding_mask(self, padding_mask: Tensor | None) -> Tensor | None:
        """Padding mask of the output; only unpadded convolutions change it."""
        return padding_mask


class RelativeEncoding(nn.Module, ABC):
    """An encoding inside attention: a logit term, a value term, or both.

    Grids hold the cells only; queries and keys each start with ``num_prefix_tokens`` tokens that
    lie on no grid. Key grids are in query-grid units (:class:`mmposenc.functional.Grid`).
    """

    num_prefix_tokens: int = 0
    #: True if :meth:`logits` / :meth:`values` can return something other than None.
    has_logits: bool = True
    has_values: bool = False
    #: True if :meth:`rotate` changes queries and keys (rotary encodings).
    has_rotation: bool = False
    #: Names of the whole-attention forms :meth:`attend` offers beside the definition.
    forms: tuple[str, ...] = ()

    def rotate(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> tuple[Tensor, Tensor]:
        """Queries and keys as they enter the product; same shapes as in :meth:`logits`."""
        return q, k

    @abstractmethod
    def logits(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor | None:
        """Term added to the attention logits.

        Args:
            q: (B, heads, Lq, head_dims), already scaled.
            k: (B, heads, Lk, head_dims).
            q_grid, k_grid: grids of queries and keys; ``None`` keys lie on the query grid.

        Returns:
            (B or 1, heads, Lq, Lk), or None.
        """

    def values(self, attn: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor | None:
        """Term added to the attention output.

        Args:
            attn: (B, heads, Lq, Lk) attention weights after softmax (and dropout).

        Returns:
            (B, heads, Lq, head_dims), or None.
        """
        return None

    def choose_form(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
                    ) -> str:
        """Name of the fastest form for these inputs: 'definition' or one of :attr:`forms`."""
        return 'definition'

    def attend(self, q: Tensor, k: Tensor, v: Tensor, q_grid: GridLike,
               k_grid: GridLike | None = None, key_padding_mask: Tensor | None = None, *,
               form: str) -> Tensor:
        """The whole attention in a form that builds no (Lq, Lk) tensor, equal to the definition.

        Args:
            q, k: as in :meth:`logits`, rotated.
            v: (B, heads, Lk, head_dims).
            key_padding_mask: (B, Lk) bool, True = padding; every image has a valid key.
            form: one of :attr:`forms`.

        Returns:
            (B, heads, Lq, head_dims).
        """
        raise NotImplementedError(f'{type(self).__name__} offers no form {form!r}')
