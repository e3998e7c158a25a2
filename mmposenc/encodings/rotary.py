"""Rotary position embedding on two axes."""
from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..functional.attention.terms import Term
from ..functional.grids import Grid, GridLike, as_grid, key_grid
from .base import RelativeEncoding

_THETA = {'axial': 100.0, 'mixed': 10.0}


class RotaryEmbedding2D(RelativeEncoding):
    """Queries and keys turned by angles that grow with their position, so that their product
    depends on the offset alone (RoFormer, Eq. 13-16; RoPE-ViT, ECCV 2024, Eq. 9-14).

    Channels (2i, 2i + 1) of a head are one plane, turned at column c and row r by

    - 'axial': ``c * f[i]`` in the first half of the planes, ``r * f[i]`` in the second, with
      ``f[i] = theta ** (-4 i / head_dims)``;
    - 'mixed': ``c * freqs[0, head, i] + r * freqs[1, head, i]``, learned, so that directions other
      than the two axes exist. They start as two perpendicular axes turned by a random angle a head.

    Args:
        head_dims: channels of a head, a multiple of 4.
        num_heads: attention heads.
        mode: 'axial' or 'mixed'.
        theta: base of the frequencies; 100 for 'axial' and 10 for 'mixed' by default.
        num_prefix_tokens: tokens in front of the grid; they are not turned.

    Shapes: as :class:`RelativeEncoding`; only :meth:`rotate` does something.

    Raises:
        ValueError: for head_dims that are no multiple of 4, or an unknown mode.

    Differs from the release: frequencies belong to the attention layer they are used in (there one
    parameter holds those of all layers), heights and widths need not be equal, and keys may lie on
    a coarser grid.
    """

    has_rotation = True
    cellwise = True

    def __init__(self, head_dims: int, num_heads: int, *, mode: str = 'axial',
                 theta: float | None = None, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        if mode not in _THETA:
            raise ValueError(f"mode={mode!r} must be 'axial' or 'mixed'")
        if head_dims < 4 or head_dims % 4:
            raise ValueError(f'head_dims={head_dims} must be a positive multiple of 4: two axes of '
                             f'planes of two channels')
        theta = _THETA[mode] if theta is None else theta
        if theta <= 0:
            raise ValueError(f'theta={theta} must be > 0')
        self.head_dims, self.num_heads = head_dims, num_heads
        self.mode, self.theta = mode, theta
        self.num_prefix_tokens = num_prefix_tokens
        if mode == 'mixed':
            self.freqs = nn.Parameter(torch.empty(2, num_heads, head_dims // 2))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Mixed frequencies: two perpendicular axes, turned by a random angle for each head."""
        if self.mode == 'axial':
            return
        turn = torch.rand(self.num_heads, 1) * (2 * math.pi)
        angle = torch.cat((turn.expand(-1, self.head_dims // 4),
                           turn.expand(-1, self.head_dims // 4) + math.pi / 2), dim=1)
        magnitude = self._axis_freqs(turn).repeat(2)
        with torch.no_grad():
            self.freqs.copy_(torch.stack((magnitude * angle.cos(), magnitude * angle.sin())))

    def _axis_freqs(self, like: Tensor) -> Tensor:
        exponent = torch.arange(0, self.head_dims, 4, device=like.device, dtype=torch.float64)
        return (self.theta ** (-exponent / self.head_dims)).to(like.dtype)

    def terms(self, q_grid: Grid, k_grid: Grid) -> list[Term]:
        """None: the encoding lies in the turned queries and keys."""
        return []

    def rotate(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> tuple[Tensor, Tensor]:
        """Turn queries (B, heads, Lq, head_dims) and keys (B, heads, Lk, head_dims); scaling a
        query before or after makes no difference."""
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        turn = self._turn(query, q)
        return _turn_planes(q, turn), _turn_planes(k, turn if key == query else self._turn(key, k))

    def _turn(self, grid: Grid, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine (1 or heads, L, head_dims / 2) of every token's angles.

        Angles are computed in at least float32 (a half-precision 200 * f is off by 0.1 rad), and
        only along the two axes: the rest are products.
        """
        dtype = torch.promote_types(like.dtype, torch.float32)
        rows = (torch.arange(grid.height, device=like.device, dtype=dtype) + 0.5) * grid.stride_h
        cols = (torch.arange(grid.width, device=like.device, dtype=dtype) + 0.5) * grid.stride_w
        if self.mode == 'axial':
            freqs = self._axis_freqs(rows)
            by_col = ((cols - 0.5)[:, None] * freqs)[None, :].expand(grid.height, -1, -1)
            by_row = ((rows - 0.5)[:, None] * freqs)[:, None].expand(-1, grid.width, -1)
            cos = torch.cat((by_col.cos(), by_row.cos()), -1)[None]
            sin = torch.cat((by_col.sin(), by_row.sin()), -1)[None]
        else:
            freqs = self.freqs.to(dtype)
            by_col = ((cols - 0.5)[:, None] * freqs[0][:, None])[:, None]  # heads, 1, W, planes
            by_row = ((rows - 0.5)[:, None] * freqs[1][:, None])[:, :, None]  # heads, H, 1, planes
            cos = by_col.cos() * by_row.cos() - by_col.sin() * by_row.sin()
            sin = by_col.sin() * by_row.cos() + by_col.cos() * by_row.sin()
        cos, sin = cos.flatten(1, 2), sin.flatten(1, 2)
        if self.num_prefix_tokens:
            shape = (cos.shape[0], self.num_prefix_tokens, cos.shape[2])
            cos = torch.cat((cos.new_ones(shape), cos), 1)
            sin = torch.cat((sin.new_zeros(shape), sin), 1)
        return cos, sin


def _turn_planes(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each plane of x (B, heads, L, 2 * planes) by (cos, sin)."""
    cos, sin = turn
    planes = x.to(cos.dtype).reshape(*x.shape[:-1], -1, 2)
    if torch.compiler.is_compiling():  # fuses real arithmetic, has no complex kernels
        even, odd = planes.unbind(-1)
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
    else:  # one pass over memory; the real form takes six times as long
        turned = torch.view_as_real(_as_complex(planes) * torch.complex(cos, sin))
    return turned.flatten(-2).to(x.dtype)


def _as_complex(planes: Tensor) -> Tensor:
    """View (..., 2) as complex numbers, after a copy where the strides do not allow it."""
    viewable = (planes.stride(-1) == 1 and planes.storage_offset() % 2 == 0
                and all(stride % 2 == 0 for stride in planes.stride()[:-1]))
    return torch.view_as_complex(planes if viewable else planes.contiguous())
