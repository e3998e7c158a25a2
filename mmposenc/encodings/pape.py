"""PaPE: attention that falls off from a query in parabolas, whose shape depends on the query's
token."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.terms import Term
from ..attention.vector_terms import Channels
from ..functional.grids import Grid
from ..functional.linear import project
from ..functional.rotary import Positions, like_at_least_float32
from ..functional.tracing import full_precision, layer_dtype
from .base import RelativeEncoding, refuse_zeros
from .checks import check_at_least

#: Squares of positions are divided by it and their factors multiplied by it, so that both fit into
#: half precision.
_UNIT = 32.0


class PaPE(RelativeEncoding):
    """logit += sum_m (b_m(x_i) d_m - a_m(x_i) d_m^2) / sqrt(head_dims), with the offset d_m = w_m .
    (p_i - p_j) of query i and key j along a learned direction (Ohrstrom et al. 2026, PaPE). a is
    softplus of a linear function of the query's token x_i, b a linear function of it.

    ``rotation_invariant`` (PaPE-RI) has -a(x_i) s^2 (p_i - p_j)^2 only, with a scale s of each head
    that is drawn once and not trained.

    All of it is six further channels of queries and keys, so that attention runs as without it.

    Args:
        head_dims: channels of a head; tokens have head_dims * num_heads.
        num_heads: attention heads.
        num_parabolas: directions w_m of each head; PaPE-RI has none.
        rotation_invariant: PaPE-RI.
        num_prefix_tokens: tokens in front of the grid; they lie one row and one column before its
            first cell, as the class token of the release.

    Parameters: ``position`` and ``ab``, of PaPE-RI ``a`` and the buffer ``position_scales``; names
    and initial values are the release's.

    Raises:
        ValueError: for sizes below 1.

    Differs from the release: keys may lie on a coarser grid; positions are counted from the middle
    of the grid and are exact in half precision; frames (videos) have no axis.
    """

    variants = {'pape': ('PaPE', {}),
                'pape-ri': ('PaPE, rotation invariant', dict(rotation_invariant=True))}
    cellwise = True
    position_scales: Tensor

    def __init__(self, head_dims: int, num_heads: int, *, num_parabolas: int = 50,
                 rotation_invariant: bool = False, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        check_at_least(1, num_parabolas=num_parabolas)
        self.rotation_invariant = rotation_invariant
        embed_dims, outputs = head_dims * num_heads, num_heads * num_parabolas
        if rotation_invariant:
            self.a = nn.Linear(embed_dims, num_heads, bias=False)
            self.register_buffer('position_scales', torch.empty(1, num_heads, 1, 1))
        else:
            self.position = nn.Linear(2, outputs, bias=False)
            self.ab = nn.Linear(embed_dims, 2 * outputs, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights, and the scales of PaPE-RI, as the release does."""
        super().reset_parameters()
        if self.rotation_invariant:
            nn.init.uniform_(self.position_scales, -0.5 ** 0.5, 0.5 ** 0.5)

    def start_at_zero(self) -> None:
        """Set the directions to zero, so that all offsets are.

        Raises:
            ValueError: with ``rotation_invariant``, whose scales are not trained.
        """
        if self.rotation_invariant:
            refuse_zeros(self)
        nn.init.zeros_(self.position.weight)

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """One :class:`~mmposenc.attention.vector_terms.Channels`: a vector that depends on the
        query, times the monomials of the key's position."""
        if tokens is None:
            raise ValueError('tokens=None, but PaPE reads the tokens of the queries: pass them, '
                             '(B, Lq, head_dims * num_heads)')
        a, b = self._a_and_b_of_tokens(tokens)
        with full_precision(tokens):
            like = like_at_least_float32(tokens)
            directions = self._directions(like)
            x, y = directions.unbind(-1)
            # This is softplus; onnxruntime does not have softplus in float64.
            a = torch.logaddexp(a.to(like.dtype), like.new_zeros(())).transpose(1, 2)
            of_xx, of_yy, of_xy = (a @ torch.stack((x * x, y * y, 2 * x * y), -1)).unbind(-1)
            of_x, of_y = (b.to(like.dtype).transpose(1, 2) @ directions).unbind(-1)
            x, y = self._centred_columns_and_rows(q_grid, q_grid, like)
            by_x, by_y = 2 * of_xx * x + of_xy * y - of_x, 2 * of_yy * y + of_xy * x - of_y
            alone = x * (of_x - of_xx * x - of_xy * y) + y * (of_y - of_yy * y)
            queries = torch.stack((-of_xx * _UNIT, -of_yy * _UNIT, -of_xy * _UNIT, by_x, by_y,
                                   alone / _UNIT), -1)
            x, y = self._centred_columns_and_rows(k_grid, q_grid, like)
            keys = torch.stack((x * x / _UNIT, y * y / _UNIT, x * y / _UNIT, x, y,
                                torch.full_like(x, _UNIT)), -1)
            return [Channels(queries * self.head_dims ** -0.5, keys[None, None])]

    def _a_and_b_of_tokens(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The functions of the query's token: a before its softplus, and b, each (B, Lq, heads,
        parabolas)."""
        if self.rotation_invariant:
            a = project(self.a, tokens)[..., None].expand(-1, -1, -1, 2)
            return a, torch.zeros_like(a)
        a, b = project(self.ab, tokens).unflatten(-1, (2, self.num_heads, -1)).unbind(-3)
        return a, b

    def _directions(self, like: Tensor) -> Tensor:
        """The directions w (heads, parabolas, 2), for columns and rows; for PaPE-RI these are the
        two axes."""
        if self.rotation_invariant:
            axes = torch.eye(2, dtype=like.dtype, device=like.device)
            return self.position_scales[0].to(like.dtype) * axes
        axes = torch.eye(2, dtype=layer_dtype(self.position), device=like.device)
        return self.position(axes).to(like.dtype).view(2, self.num_heads, -1).movedim(0, -1)

    def _centred_columns_and_rows(self, grid: Grid, query: Grid, like: Tensor
                                  ) -> tuple[Tensor, Tensor]:
        """The columns and rows (P + H * W,) of all tokens, measured from the middle of the query
        grid."""
        rows, cols = Positions().coordinates(grid, query, like)
        size, prefix = (*rows.shape, *cols.shape), (self.num_prefix_tokens, 0)
        along = (cols.expand(size), rows[:, None].expand(size))
        x, y = (F.pad(each.flatten(), prefix, value=-1.0) - (like.new_full((), side) - 1) / 2
                for each, side in zip(along, (query.width, query.height), strict=True))
        return x, y
