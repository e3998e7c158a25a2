"""Rotations of blocks of channels: LieRE, and ComRoPE, whose rotations commute."""
from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from ..functional.grids import Grid, GridLike, as_grid, key_grid
from ..functional.rotary import Positions, matrix_exp
from ..functional.tracing import full_precision
from .base import Rotation
from .checks import check_choices


class MatrixRotary(Rotation):
    """Multiply blocks of channels of queries and keys by the rotation exp(r A + c B), with (r, c)
    the position of a token and A and B learned skew-symmetric matrices."""

    #: Where rows and columns lie.
    positions = Positions()
    #: The row and the column of prefix tokens.
    prefix_place = 0.0
    #: Whether A and B commute, so that exp(r A + c B) = exp(r A) exp(c B).
    commutes = False
    generators: nn.Parameter

    def __init__(self, head_dims: int, num_heads: int, block_size: int, num_prefix_tokens: int
                 ) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        if block_size < 2 or head_dims % block_size:
            raise ValueError(f'block_size={block_size} must be at least 2 and divide '
                             f'head_dims={head_dims}')
        self.block_size, self.num_blocks = block_size, head_dims // block_size

    def start_at_zero(self) -> None:
        """Set the generators to zero, so that nothing is rotated."""
        nn.init.zeros_(self.generators)

    @abstractmethod
    def skew(self) -> tuple[Tensor, Tensor]:
        """The matrices A and B, each (heads or 1, blocks, block_size, block_size)."""

    def places(self, grid: Grid, query: Grid, like: Tensor) -> tuple[Tensor, Tensor]:
        """The positions r (H,) of rows and c (W,) of columns of a grid."""
        return self.positions.coordinates(grid, query, like)

    def rotate(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> tuple[Tensor, Tensor]:
        """Rotate queries (B, heads, Lq, head_dims) and keys (B, heads, Lk, head_dims)."""
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        with full_precision(q):
            turn = self.matrices(query, query)
            other = turn if key == query else self.matrices(key, query)
            return self._turned(q, turn), self._turned(k, other)

    def matrices(self, grid: Grid, query: Grid) -> Tensor:
        """The rotations of all tokens, (heads or 1, P + H * W, blocks, block_size, block_size)."""
        dtype = torch.promote_types(self.generators.dtype, torch.float32)
        by_row, by_col = (x.to(dtype)[:, None, None] for x in self.skew())
        rows, cols = (x[..., None, None, None] for x in self.places(grid, query, by_row[0, 0, 0]))
        rows = rows[:, None]
        if self.commutes:
            rotations = matrix_exp(rows * by_row) @ matrix_exp(cols * by_col)
        else:
            rotations = matrix_exp(rows * by_row + cols * by_col)
        rotations = rotations.flatten(1, 2)
        if self.num_prefix_tokens:
            first = matrix_exp(self.prefix_place * by_row + self.prefix_place * by_col)[:, 0]
            first = first.expand(-1, self.num_prefix_tokens, -1, -1, -1)
            rotations = torch.cat((first, rotations), 1)
        return rotations

    def _turned(self, x: Tensor, turn: Tensor) -> Tensor:
        blocks = x.to(turn.dtype).reshape(*x.shape[:-1], self.num_blocks, self.block_size)
        if len(turn) == 1:
            out = torch.einsum('tnij,bhtnj->bhtni', turn[0], blocks)
        else:
            out = torch.einsum('htnij,bhtnj->bhtni', turn, blocks)
        return out.flatten(-2).to(x.dtype)


class LieRE(MatrixRotary):
    """Multiply queries and keys by exp(r A + c B) at row r and column c, with A and B learned
    skew-symmetric matrices that need not commute (Ostmeier et al., ICML 2025, Sec. 4).

    r and c go from 0 to 1 along the sides of the grid of training, and from 0 to side / trained
    side on other grids. Prefix tokens are not rotated.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        grid_shape: (H, W) of the grid of training.
        block_size: channels that are rotated together; 8 is LieRE-8 of the paper, head_dims is
            LieRE-64. Each token has a matrix of block_size * head_dims numbers for each head.
        shared_heads: the same matrices for all heads.
        num_prefix_tokens: tokens in front of the grid.

    Parameters: ``generators`` (2, heads or 1, head_dims / block_size, block_size, block_size), of
    which the upper triangles are used; uniform from 0 to 2 pi, as the release.

    Raises:
        ValueError: if block_size does not divide head_dims, or for a bad grid.

    Differs from the release: keys may lie on a coarser grid, and block_size must divide head_dims.
    """

    variants = {'liere': ('LieRE', {})}

    def __init__(self, head_dims: int, num_heads: int, *, grid_shape: GridLike, block_size: int = 8,
                 shared_heads: bool = False, num_prefix_tokens: int = 0) -> None:
        super().__init__(head_dims, num_heads, block_size, num_prefix_tokens)
        self.grid_shape = as_grid(grid_shape, 'grid_shape').hw
        self.generators = nn.Parameter(torch.empty(
            2, 1 if shared_heads else num_heads, self.num_blocks, block_size, block_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the generators as the release does."""
        nn.init.uniform_(self.generators, 0.0, 2 * math.pi)

    def skew(self) -> tuple[Tensor, Tensor]:
        """The skew-symmetric matrices of rows and of columns, see :class:`MatrixRotary`."""
        upper = self.generators.triu(1)
        by_row, by_col = upper - upper.transpose(-2, -1)
        return by_row, by_col

    def places(self, grid: Grid, query: Grid, like: Tensor) -> tuple[Tensor, Tensor]:
        """The positions of rows and of columns: from 0 to the side divided by the side in training.
        """
        along = super().places(grid, query, like)
        # A tensor, because sides may be symbols while a program is exported.
        sides = (like.new_ones(()) * side for side in query.hw)
        rows, cols = (x * side / trained / (side - 1).clamp_min(1) for x, side, trained in
                      zip(along, sides, self.grid_shape, strict=True))
        return rows, cols


class ComRoPE(MatrixRotary):
    """Multiply queries and keys by exp(r A + c B) at row r and column c, with A and B learned
    skew-symmetric matrices that commute, so that products depend only on the offset (Yu et al.,
    CVPR 2025, Sec. 4).

    r and c go from 0 to 1 along the sides. Prefix tokens are at the centre, as the class token of
    the release.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        method: 'ld' (linearly dependent: in each block A and B are multiples of one matrix) or 'ap'
            (axial partition: blocks alternate between rows and columns).
        block_size: channels that are rotated together.
        num_prefix_tokens: tokens in front of the grid.

    Parameters: ``generators`` (heads, head_dims / block_size, block_size, block_size), minus their
    transposes; with 'ld' also ``factors`` (2, head_dims / block_size). Normal with standard
    deviation 1, as the release.

    Raises:
        ValueError: if block_size does not divide head_dims, with 'ap' into an even number of
            blocks, or for an unknown method.

    Differs from the release, which shifts positions at random in training.
    """

    variants = {'comrope': ('ComRoPE, linearly dependent', {}),
                'comrope-ap': ('ComRoPE, axial partition', dict(method='ap'))}
    commutes = True
    positions, prefix_place = Positions(reference_grid=(1, 1), first=0.5), 0.5

    def __init__(self, head_dims: int, num_heads: int, *, method: str = 'ld', block_size: int = 8,
                 num_prefix_tokens: int = 0) -> None:
        super().__init__(head_dims, num_heads, block_size, num_prefix_tokens)
        check_choices(method=(method, ('ld', 'ap')))
        if method == 'ap' and self.num_blocks % 2:
            raise ValueError(f"method='ap' needs an even number of blocks; head_dims={head_dims} "
                             f'has {self.num_blocks} of block_size={block_size}')
        self.method = method
        self.generators = nn.Parameter(torch.empty(
            num_heads, self.num_blocks, block_size, block_size))
        if method == 'ld':
            self.factors = nn.Parameter(torch.empty(2, self.num_blocks))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the generators as the release does."""
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def skew(self) -> tuple[Tensor, Tensor]:
        """The skew-symmetric matrices of rows and of columns, see :class:`MatrixRotary`."""
        whole = self.generators - self.generators.transpose(-2, -1)
        if self.method == 'ld':
            by_row, by_col = self.factors[..., None, None]
        else:
            by_col = (torch.arange(self.num_blocks, device=whole.device) % 2).to(whole.dtype)
            by_col = by_col[:, None, None]
            by_row = 1 - by_col
        return whole * by_row, whole * by_col
