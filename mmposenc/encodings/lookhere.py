"""LookHere: heads that look in one direction each."""
from __future__ import annotations

import torch
from torch import Tensor

from ..functional.grids import Grid
from .checks import check_at_least, check_choices
from .offset_bias import OffsetBiasEncoding, distances

#: Unit vectors (down, right), towards which keys lie.
_COMPASS = {'n': (-1, 0), 's': (1, 0), 'w': (0, -1), 'e': (0, 1),
            'ne': (-1, 1), 'nw': (-1, -1), 'se': (1, 1), 'sw': (1, -1)}
#: By angle of view, the eight directions in the release's order: keys seen lie on the side of both.
_VIEWS = {
    180: 'n-n s-s w-w e-e ne-ne nw-nw se-se sw-sw',
    90: 'ne-nw se-sw sw-nw se-ne n-w n-e s-w s-e',
    45: 'ne-w se-w sw-n se-n nw-e sw-e nw-s ne-s'}
#: In place of minus infinity: a query that sees no key at all (padding) then sees every key.
_UNSEEN = -1e4


class LookHere(OffsetBiasEncoding):
    """logit[i, j] = -inf where key j lies outside of the head's field of view, else less m_layer *
    m_head * d_ij, with d the Euclidean distance of two cells (Fuller et al., NeurIPS 2024, Sec. 3).

    Heads look in eight directions, at one angle, in turns; the last ones see everything. Slopes of
    the former are 1/2, of the next eight 1/4 and so on, of the latter 1/4, 1/16, 1/64 and 1/256 in
    equal parts. Nothing is learned. Prefix tokens see and are seen by all.

    Args:
        num_heads: attention heads.
        field_of_view: 180, 90 or 45 degrees (LH-180, LH-90, LH-45). A query's own cell is seen.
        undirected_heads: heads that see everything; None is a third of them, as in the paper.
        layer_slopes: m_layer of the first and of the last attention of a model, those between on a
            line. A model tells it (:func:`share_encodings`); alone or shared by layers it is 1.
        num_prefix_tokens: tokens in front of the grid.

    Raises:
        ValueError: for another angle, or more undirected heads than heads.

    Equals the release with 6 and 12 heads, whose bias is rounded to bfloat16 besides.
    """

    cellwise = True
    sides: Tensor
    head_slopes: Tensor
    slopes: Tensor

    def __init__(self, num_heads: int, *, field_of_view: int = 180,
                 undirected_heads: int | None = None,
                 layer_slopes: tuple[float, float] = (1.5, 0.5), num_prefix_tokens: int = 0
                 ) -> None:
        super().__init__()
        self._set_heads(num_heads, num_prefix_tokens, prefix_bias=False)
        check_choices(field_of_view=(field_of_view, tuple(_VIEWS)))
        free = num_heads // 3 if undirected_heads is None else undirected_heads
        check_at_least(0, undirected_heads=free)
        if free > num_heads:
            raise ValueError(f'undirected_heads={free} must be at most num_heads={num_heads}')
        views = _VIEWS[field_of_view].split()
        sides = [[_COMPASS[side] for side in views[head % 8].split('-')]
                 for head in range(num_heads - free)] + [[(0, 0)] * 2] * free
        slopes = ([0.5 ** (head // 8 + 1) for head in range(num_heads - free)]
                  + [0.25 ** (head * 4 // max(free, 4) + 1) for head in range(free)])
        self.layer_slopes = layer_slopes
        self.register_buffer('sides', torch.tensor(sides, dtype=torch.float32), persistent=False)
        self.register_buffer('head_slopes', torch.tensor(slopes), persistent=False)
        self.register_buffer('slopes', torch.tensor(slopes), persistent=False)

    def at_depth(self, index: int, count: int) -> None:
        """Take the slope of attention ``index`` of ``count``."""
        first, last = self.layer_slopes
        self.slopes = self.head_slopes * (first + (last - first) * index / max(count - 1, 1))

    def offset_table(self, rows: Tensor, cols: Tensor, query: Grid) -> Tensor:
        """Minus slope times distance, and what is not seen; see :class:`OffsetBiasEncoding`."""
        sides, slopes = self.sides.to(rows.dtype), self.slopes.to(rows.dtype)
        # Offsets are query minus key, the compass is key minus query.
        along = -(rows[:, None] * sides[..., 0, None, None] + cols * sides[..., 1, None, None])
        bias = -slopes[:, None, None] * distances(rows, cols)
        return bias.masked_fill((along < 0).any(1), _UNSEEN)
