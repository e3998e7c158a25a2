"""ALiBi on a grid, as in CROMA: each head attends less to distant keys, with its own slope."""
from __future__ import annotations

import math

from torch import Tensor

from ..functional.constants import Constants
from ..functional.grids import Grid
from .offset_bias import OffsetBiasEncoding, euclidean_distances


class ALiBi2D(Constants, OffsetBiasEncoding):
    """logit[i, j] -= m_head * d_ij, with d the Euclidean distance of two cells (Press et al., ICLR
    2022, Sec. 3; for images: CROMA, Fuller et al., NeurIPS 2023, Sec. 3).

    Slopes are those of the ALiBi release. If the number of heads n is a power of 2 they are
    2^(-8 / n), 2^(-16 / n), ..., 2^-8. For other n they are those of the next lower power of 2,
    then every second one of the next higher. Nothing is learned. Pairs with a prefix token get no
    bias (CROMA has none).

    Args:
        num_heads: attention heads.
        num_prefix_tokens: tokens in front of the grid.
    """

    variants = {'alibi': ('ALiBi', {})}
    cellwise = True
    slopes: Tensor

    def __init__(self, num_heads: int, *, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_heads(num_heads, num_prefix_tokens, prefix_bias=False)
        self.register_constants()

    def constants(self) -> dict[str, object]:
        """The slopes of the heads, which are fixed."""
        return dict(slopes=_head_slopes(self.num_heads))

    def offset_table(self, row_offsets: Tensor, col_offsets: Tensor, q_grid: Grid) -> Tensor:
        """The bias: minus slope times distance; see :class:`OffsetBiasEncoding`."""
        slopes = self.slopes.to(row_offsets.dtype)[:, None, None]
        return -slopes * euclidean_distances(row_offsets, col_offsets)


def _head_slopes(heads: int) -> list[float]:
    power = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    return slopes + [2.0 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
