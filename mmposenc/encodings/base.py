"""The two contracts every encoding follows."""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ..functional.grids import GridLike, as_grid, key_grid


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
    #: False where :meth:`out_hw_shape` gives another grid: a DETR's encoder takes none of these.
    keeps_grid: bool = True

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
    #: True if the logits depend on queries or keys, not on the grids alone.
    contextual: bool = True
    #: True if the terms of a pair depend on the two cells alone: not on the size of the grid, nor
    #: on numbers that tokens get from it. Attention may then leave padded cells out.
    cellwise: bool = False
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
            (B or 1, heads or 1, Lq, Lk), or None.
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
               form: str, scale: float = 1.0) -> Tensor:
        """The whole attention in a form that builds no (Lq, Lk) tensor, equal to the definition.

        Args:
            q, k: as in :meth:`logits`, rotated, but for ``scale``.
            v: (B, heads, Lk, head_dims).
            key_padding_mask: (B, Lk) bool, True = padding; every image has a valid key.
            form: one of :attr:`forms`.
            scale: factor of the queries, which are not scaled yet: forms fold it into their
                products where they can, which saves a copy.

        Returns:
            (B, heads, Lq, head_dims).
        """
        raise NotImplementedError(f'{type(self).__name__} offers no form {form!r}')

    def reset_parameters(self) -> None:
        """Set the tables to what they start from, after something initialized the whole model."""

    def position_tables(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters that take no weight decay and no initialization from outside."""
        return self.named_parameters()

    @torch.no_grad()
    def bias_map(self, q_grid: GridLike, k_grid: GridLike | None = None, *,
                 q: Tensor | None = None, k: Tensor | None = None) -> Tensor:
        """What is added to the logits, for figures.

        Args:
            q_grid, k_grid: as in :meth:`logits`.
            q, k: scaled queries and keys; needed if the encoding is contextual.

        Returns:
            (B or 1, heads or 1, Lq, Lk); zeros if the encoding adds nothing to the logits.

        Raises:
            ValueError: if q and k are needed and not given.
        """
        if q is None or k is None:
            if self.contextual:
                raise ValueError(f'q and k are None, but the logits of {type(self).__name__} '
                                 f'depend on them; pass both')
            query = as_grid(q_grid, 'q_grid')
            some = next(self.parameters(), torch.zeros(()))
            heads, dims = getattr(self, 'num_heads', 1), getattr(self, 'head_dims', 1)
            cells = (query.num_cells, key_grid(query, k_grid).num_cells)
            q, k = (some.new_zeros(1, heads, self.num_prefix_tokens + n, dims) for n in cells)
        logits = self.logits(q, k, q_grid, k_grid)
        return q.new_zeros(1, 1, q.shape[2], k.shape[2]) if logits is None else logits


def position_tables(model: nn.Module) -> dict[str, nn.Parameter]:
    """Tables of every relative encoding in ``model``, by their full names.

    Optimizers should leave them without weight decay, and an initialization of the whole model (the
    Xavier loop of DETR) should skip them, or call ``reset_parameters`` of the encodings after it.
    """
    found = {}
    for prefix, module in model.named_modules():
        if isinstance(module, RelativeEncoding):
            for name, parameter in module.position_tables():
                found[f'{prefix}.{name}' if prefix else name] = parameter
    return found
