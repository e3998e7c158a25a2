"""LookHere: each head attends in one direction."""
from __future__ import annotations

from torch import Tensor

from ..functional.constants import Constants
from ..functional.grids import Grid
from .checks import check_at_least, check_choices
from .offset_bias import OffsetBiasEncoding, euclidean_distances

#: Directions (down, right) from a query to its keys.
_COMPASS = {'n': (-1, 0), 's': (1, 0), 'w': (0, -1), 'e': (0, 1),
            'ne': (-1, 1), 'nw': (-1, -1), 'se': (1, 1), 'sw': (1, -1)}
#: For each angle of view, eight pairs of directions in the order of the release. A head attends to
#: the keys that lie on the side of both directions.
_VIEWS = {
    180: 'n-n s-s w-w e-e ne-ne nw-nw se-se sw-sw',
    90: 'ne-nw se-sw sw-nw se-ne n-w n-e s-w s-e',
    45: 'ne-w se-w sw-n se-n nw-e sw-e nw-s ne-s'}
#: Used instead of minus infinity: a query that sees no key (padding) would give NaN.
_UNSEEN = -1e4


class LookHere(Constants, OffsetBiasEncoding):
    """logit[i, j] -= m_layer * m_head * d_ij with d the Euclidean distance of two cells, or -inf
    if key j is outside the field of view of the head (Fuller et al., NeurIPS 2024, Sec. 3).

    The directed heads cycle through eight directions; the last heads are undirected. m_head is 1/2
    for the first eight directed heads, 1/4 for the next eight and so on; it is 1/4, 1/16, 1/64 and
    1/256 for equal parts of the undirected ones. Nothing is learned. Pairs with a prefix token get
    no bias.

    Args:
        num_heads: attention heads.
        field_of_view: 180, 90 or 45 degrees (LH-180, LH-90, LH-45). It includes the query itself.
        undirected_heads: number of heads without a direction; None is a third, as in the paper.
        layer_slopes: m_layer of the first and of the last layer of a model; those between are
            interpolated linearly. It is 1 outside a model, or if layers share the encoding.
        num_prefix_tokens: tokens in front of the grid.

    Raises:
        ValueError: for another angle, or more undirected heads than heads.

    Equals the release for 6 and 12 heads, except that the release rounds the bias to bfloat16.
    """

    variants = {'lookhere': ('LookHere, 180 degrees', {}),
                'lookhere-90': ('LookHere, 90 degrees', dict(field_of_view=90)),
                'lookhere-45': ('LookHere, 45 degrees', dict(field_of_view=45))}
    cellwise = True
    sides: Tensor
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
        if len(layer_slopes) != 2:
            raise ValueError(f'layer_slopes={layer_slopes!r} must be (first, last)')
        views = _VIEWS[field_of_view].split()
        self._directions = [[_COMPASS[side] for side in views[head % 8].split('-')]
                            for head in range(num_heads - free)] + [[(0, 0)] * 2] * free
        self._head_slopes = ([0.5 ** (head // 8 + 1) for head in range(num_heads - free)]
                             + [0.25 ** (head * 4 // max(free, 4) + 1) for head in range(free)])
        self.layer_slopes, self._layer_slope = layer_slopes, 1.0
        self.register_constants()

    def constants(self) -> dict[str, object]:
        """For each head two directions, and its slope in this layer."""
        return dict(sides=self._directions,
                    slopes=[self._layer_slope * slope for slope in self._head_slopes])

    def at_depth(self, index: int, count: int) -> None:
        """Use the slope of attention layer ``index`` out of ``count`` layers."""
        first, last = self.layer_slopes
        self._layer_slope = first + (last - first) * index / max(count - 1, 1)
        self.register_constants(self.slopes.device, self.slopes.dtype)

    def offset_table(self, row_offsets: Tensor, col_offsets: Tensor, q_grid: Grid) -> Tensor:
        """The bias: minus slope times distance, and minus infinity outside of the view; see
        :class:`OffsetBiasEncoding`."""
        sides, slopes = self.sides.to(row_offsets.dtype), self.slopes.to(row_offsets.dtype)
        # Offsets are query minus key, directions are key minus query.
        along = -(row_offsets[:, None] * sides[..., 0, None, None]
                  + col_offsets * sides[..., 1, None, None])
        bias = -slopes[:, None, None] * euclidean_distances(row_offsets, col_offsets)
        return bias.masked_fill((along < 0).any(1), _UNSEEN)
