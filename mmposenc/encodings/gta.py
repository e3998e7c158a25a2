"""Geometric transform attention: rotary positions that turn values too."""
from __future__ import annotations

from torch import Tensor

from ..functional.grids import GridLike, as_grid, key_grid
from ..functional.rotary import like_at_least_float32, turn_planes
from .checks import check_positive
from .rotary import RotaryEmbedding


class GTA(RotaryEmbedding):
    """out_i = R_i^-1 sum_j a_ij R_j v_j: queries, keys and values are rotated by R at their
    position, and each output back by that of its query (geometric transform attention, Miyato et
    al., ICLR 2024, Eq. 6, with the rotations SO(2) of rows and columns of an image).

    Positions go from 0 to 1 along each side. The first plane of an axis has one rotation along a
    side, the next half a rotation, and so on, as in the release.

    Args:
        head_dims: channels of a head; a multiple of 4, the first half for rows.
        num_heads: attention heads.
        max_freq: rotations of the first plane along a side.
        num_prefix_tokens: tokens in front of the grid; they are not rotated.

    Raises:
        ValueError: for head_dims that do not divide, or max_freq not above 0.

    Differs from the release in the order of planes (there rows and columns alternate, from the
    lowest frequency); it has no cameras (SE(3)).
    """

    variants = {'gta': ('GTA, rotations', {})}
    only_rotates, stores_turns = False, True

    def __init__(self, head_dims: int, num_heads: int, *, max_freq: float = 1.0,
                 num_prefix_tokens: int = 0) -> None:
        check_positive(max_freq=max_freq)
        slowest = 2.0 ** max(head_dims // 4 - 1, 0)
        super().__init__(head_dims, num_heads, num_prefix_tokens=num_prefix_tokens, axes='yx',
                         reference_grid=(1, 1), periods=(1 / max_freq, slowest / max_freq))

    def turn_values(self, v: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Rotate values as keys are rotated."""
        query, like = as_grid(q_grid, 'q_grid'), like_at_least_float32(v)
        return turn_planes(v, self.turn(key_grid(q_grid, k_grid), query, like), halves=False)

    def turn_back(self, out: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Apply the inverse of the rotation of the queries to the output."""
        query, like = as_grid(q_grid, 'q_grid'), like_at_least_float32(out)
        return turn_planes(out, self.turn(query, query, like, back=True), halves=False)
