"""The base classes of all encodings."""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from ..attention.terms import Term
from ..config_types import ConfigType
from ..functional.grids import Grid, GridLike, as_grid, key_grid
from .checks import check_at_least

#: The names that ``mmposenc compare`` has for a class: for each name, the label in tables and
#: charts, and the options.
Variants = Mapping[str, tuple[str, Mapping[str, object]]]


class TokenEncoding(nn.Module, ABC):
    """An encoding applied to tokens: ``forward(x, hw_shape, *, num_prefix_tokens, padding_mask)``.

    Shapes: x (B, L, C) with L = num_prefix_tokens + H * W, prefix tokens first and returned
    unchanged; ``padding_mask`` (B, H, W) bool, True = padding. Valid tokens of the output must not
    depend on what the padding holds nor on how much of it there is.
    """

    #: The names of this class only; subclasses do not inherit them.
    variants: Variants = {}
    #: 'qkv' replaces the tokens; 'qk' changes only the input of the queries and keys of the next
    #: attention.
    apply_to: str = 'qkv'
    #: Where a backbone places it when its own ``positions`` is None: block numbers, 'every', or
    #: 'mlp', which ``positions`` cannot override.
    default_positions: tuple[int, ...] | str = (0,)
    #: True if it was built with ``zero_init=True``.
    starts_at_zero: bool = False
    #: The blocks of its config; None: all, or the usual places.
    blocks: tuple[int, ...] | None = None
    #: False if :meth:`out_hw_shape` changes the grid; encoders of DETRs refuse such encodings.
    keeps_grid: bool = True

    @abstractmethod
    def forward(self, x: Tensor, hw_shape: tuple[int, int], *, num_prefix_tokens: int = 0,
                padding_mask: Tensor | None = None) -> Tensor:
        """Return the encoded tokens."""

    def reset_parameters(self) -> None:
        """Set the initial weights, by default those of the layers; it is called again after an
        initialization of the whole model."""
        reset_layers(self)

    def start_at_zero(self) -> None:
        """Set weights to zero so that tokens are unchanged at the start of training; for
        ``zero_init=True`` in a config.

        Raises:
            ValueError: if no weights of the encoding do that.
        """
        refuse_zeros(self)

    def out_hw_shape(self, hw_shape: tuple[int, int]) -> tuple[int, int]:
        """Grid of the output; only unpadded convolutions change it."""
        return hw_shape

    def out_padding_mask(self, padding_mask: Tensor | None) -> Tensor | None:
        """Padding mask of the output; only unpadded convolutions change it."""
        return padding_mask


class RelativeEncoding(nn.Module, ABC):
    """An encoding inside attention. It lists the terms that it adds to the logits and to the
    output; the attention module decides how to compute them.

    Queries and keys each start with ``num_prefix_tokens`` tokens that are not part of the grid.
    Key grids are in units of the query grid (:class:`mmposenc.functional.Grid`).
    """

    #: The names of this class only; subclasses do not inherit them.
    variants: Variants = {}
    #: True if it was built with ``zero_init=True``.
    starts_at_zero: bool = False
    #: The blocks of its config; None: all, or the usual places.
    blocks: tuple[int, ...] | None = None
    num_prefix_tokens: int = 0
    #: The encoding itself, if it rotates queries and keys.
    rotation: Rotation | None = None
    #: True if the encoding does nothing but rotate queries and keys.
    only_rotates: bool = False
    #: True if terms and rotation depend only on the two cells of a pair. False if they also depend
    #: on the size of the grid: relative coordinates, resized tables, tokens numbered row by row.
    #: With padding, attention then uses the grid of valid cells of each image, so that the result
    #: is the same as without padding.
    cellwise: bool = False
    #: True if grids may have frames (video).
    takes_frames: bool = False
    #: Ordinary layers in it, whose weights decay; all other parameters are tables.
    decaying_layers: tuple[str, ...] = ()

    def _set_sizes(self, head_dims: int, num_heads: int, num_prefix_tokens: int) -> None:
        """Check and store the sizes that the attention module compares with its own."""
        check_at_least(1, head_dims=head_dims, num_heads=num_heads)
        check_at_least(0, num_prefix_tokens=num_prefix_tokens)
        self.head_dims, self.num_heads = head_dims, num_heads
        self.num_prefix_tokens = num_prefix_tokens

    def _empty_table(self, *shape: int, shared_heads: bool) -> nn.Parameter:
        """Create an uninitialised table, one for all heads or (num_heads, ...)."""
        return nn.Parameter(torch.empty(*(() if shared_heads else (self.num_heads,)), *shape))

    @abstractmethod
    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> Sequence[Term]:
        """The terms (:mod:`mmposenc.attention.terms`) for queries and keys on these grids, some of
        which depend on the tokens (B, Lq, embed_dims) that queries are projections of.

        Raises:
            ValueError: for grids that the encoding does not support.
        """

    def logits(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None, *,
               tokens: Tensor | None = None) -> Tensor | None:
        """The sum of all terms of the logits, for all pairs.

        Args:
            q: (B, heads, Lq, head_dims), already scaled.
            k: (B, heads, Lk, head_dims).
            q_grid, k_grid: grids of queries and keys; a ``k_grid`` of None is the query grid.
            tokens: (B, Lq, embed_dims) that queries are projections of, if terms depend on them.

        Returns:
            (B or 1, heads or 1, Lq, Lk), or None if there is no such term.
        """
        return _sum_or_none(term.reference(q, k) for term
                            in self._terms_with_checked_grids(q_grid, k_grid, tokens)
                            if not term.on_values)

    def values(self, attn: Tensor, q_grid: GridLike, k_grid: GridLike | None = None, *,
               tokens: Tensor | None = None) -> Tensor | None:
        """The sum of the terms on values, given the attention weights.

        Args:
            attn: (B, heads, Lq, Lk) attention weights after softmax (and dropout).

        Returns:
            (B, heads, Lq, head_dims), or None if there is no such term.
        """
        return _sum_or_none(term.output_of_weights(attn) for term
                            in self._terms_with_checked_grids(q_grid, k_grid, tokens)
                            if term.on_values and term.reads_weights)

    def _terms_with_checked_grids(self, q_grid: GridLike, k_grid: GridLike | None,
                                  tokens: Tensor | None
                                  ) -> Sequence[Term]:
        query = as_grid(q_grid, 'q_grid')
        return self.terms(query, key_grid(query, k_grid), tokens)

    def reset_parameters(self) -> None:
        """Set the initial weights, by default those of the layers; it is called again after an
        initialization of the whole model."""
        reset_layers(self)

    def start_at_zero(self) -> None:
        """Set tables to zero so that attention is unchanged at the start of training; for
        ``zero_init=True`` in a config.

        Raises:
            ValueError: if no tables of the encoding do that.
        """
        set_zeros(self)

    def relative_tables(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters that need no weight decay and no initialization from outside."""
        return ((name, parameter) for name, parameter in self.named_parameters()
                if name.partition('.')[0] not in self.decaying_layers)


class Rotation(RelativeEncoding):
    """A relative encoding that rotates queries and keys before their product; a subclass may also
    have terms, or rotate values."""

    only_rotates = True

    @property
    def rotation(self) -> Rotation | None:  # type: ignore[override]
        """The encoding itself."""
        return self

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> Sequence[Term]:
        """No terms, where the encoding only rotates."""
        return []

    @abstractmethod
    def rotate(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> tuple[Tensor, Tensor]:
        """Rotate queries (B, heads, Lq, head_dims) and keys (B, heads, Lk, head_dims) before their
        product; shapes stay."""

    def turn_values(self, v: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Rotate values (B, heads, Lk, head_dims) before they are summed."""
        return v

    def turn_back(self, out: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Apply the inverse of :meth:`turn_values` at the query's position to the attention output
        (B, heads, Lq, head_dims), which includes the terms on values."""
        return out


def reset_layers(module: nn.Module) -> None:
    """Call ``reset_parameters`` of all layers inside that have it."""
    for child in module.children():
        reset = getattr(child, 'reset_parameters', None)
        if callable(reset):
            reset()
        else:
            reset_layers(child)


def set_zeros(encoding: nn.Module) -> None:
    """Set all parameters to zero; raise ValueError if there are none."""
    if not any(True for _ in encoding.parameters()):
        refuse_zeros(encoding)
    for parameter in encoding.parameters():
        nn.init.zeros_(parameter)


def refuse_zeros(encoding: nn.Module) -> None:
    """Raise ValueError for ``zero_init=True`` if no weights make the encoding change nothing."""
    raise ValueError(f'zero_init=True: {type(encoding).__name__} has no weights with which it '
                     f'changes nothing')


def _sum_or_none(terms: Iterator[Tensor]) -> Tensor | None:
    total: Tensor | None = None
    for each in terms:
        total = each if total is None else total + each
    return total


#: A relative encoding, the config of one, or a sequence of them, which are summed.
RelativeConfig = RelativeEncoding | ConfigType | Sequence[RelativeEncoding | ConfigType]


def reset_encodings(model: nn.Module) -> None:
    """Set all encodings in ``model`` to the weights that they start from, for code that has
    initialized the whole model."""
    encodings = [each for each in model.modules()
                 if isinstance(each, (TokenEncoding, RelativeEncoding))]
    with torch.no_grad():
        for encoding in encodings:
            encoding.reset_parameters()
        for encoding in encodings:  # a sum among them has reset those that it sums
            if encoding.starts_at_zero:
                encoding.start_at_zero()


def relative_tables(model: nn.Module) -> dict[str, nn.Parameter]:
    """Tables of all relative encodings in ``model``, by their full names.

    Optimizers should not apply weight decay to them. Code that initializes the whole model (such as
    DETR's Xavier loop) should skip them, or call ``reset_parameters`` of the encodings afterwards.
    """
    tables = {}
    for prefix, module in model.named_modules():
        if isinstance(module, RelativeEncoding):
            for name, parameter in module.relative_tables():
                tables[f'{prefix}.{name}' if prefix else name] = parameter
    return tables
