"""Boxes of queries and of cells: biases of a decoder's attention, and proposals."""
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..encodings.checks import check_at_least, check_choices, check_positive
from ..functional.extents import filled_extents
from ..functional.grids import stored
from ..functional.row_chunks import by_rows
from ..functional.tracing import layer_dtype

#: The largest number of sines of pairs of boxes that may be in memory at once.
_PAIRS = 2 ** 24


class PositionRelation(nn.Module):
    """A bias of the self-attention of object queries from the boxes of each pair (Relation DETR,
    Hou et al., ECCV 2024, Eq. 2-4).

    For the box (x, y, w, h) of query i and, one layer later, of query j, the numbers
    log(abs(x_i - x_j) / w_i + 1), log(abs(y_i - y_j) / h_i + 1), log(w_i / w_j), log(h_i / h_j) are
    encoded by sines and cosines. A linear layer and a ReLU give one bias for each head. Boxes get
    no gradient.

    Args:
        num_heads: attention heads.
        embed_dims: number of sines and cosines for each of the four numbers, even.
        temperature: ratio of the longest to the shortest wavelength.
        scale: factor of the numbers.

    Parameters: ``pos_proj.0``, a 1 x 1 convolution named as in the release.

    Raises:
        ValueError: sizes are out of range.

    Difference from the release: sines are recomputed in the backward pass, for some queries at a
    time.
    """

    def __init__(self, num_heads: int, *, embed_dims: int = 16, temperature: float = 10000.0,
                 scale: float = 100.0) -> None:
        super().__init__()
        check_at_least(1, num_heads=num_heads)
        check_positive(temperature=temperature, scale=scale)
        if embed_dims < 2 or embed_dims % 2:
            raise ValueError(f'embed_dims={embed_dims} must be even and at least 2')
        self.embed_dims, self.temperature, self.scale = embed_dims, temperature, scale
        self.pos_proj = nn.Sequential(nn.Conv2d(4 * embed_dims, num_heads, 1), nn.ReLU())

    def reset_parameters(self) -> None:
        """Draw the weights as ``nn.Conv2d`` does."""
        self.pos_proj[0].reset_parameters()

    def forward(self, boxes: Tensor, later: Tensor) -> Tensor:
        """The bias.

        Args:
            boxes: (B, n, 4), boxes of the rows: centre, width and height.
            later: (B, m, 4), boxes of the columns, one layer later.

        Returns:
            (B, heads, n, m), at least 0.
        """
        boxes, later = boxes.detach().float(), later.detach().float()
        step = _PAIRS // (later.shape[0] * later.shape[1] * 4 * self.embed_dims)
        return by_rows(lambda some: self._bias_of_pairs(some, later), boxes, step, dim=1, out_dim=2)

    def _bias_of_pairs(self, boxes: Tensor, later: Tensor) -> Tensor:
        with torch.no_grad():
            places, sizes = boxes[:, :, None].split(2, -1)
            others, other_sizes = later[:, None].split(2, -1)
            near = 1e-5
            apart = torch.log((places - others).abs() / (sizes + near) + 1.0)
            larger = torch.log((sizes + near) / (other_sizes + near))
            numbers = torch.cat((apart, larger), -1)
            waves = torch.arange(0, self.embed_dims, 2, device=boxes.device).float()
            waves = waves / self.embed_dims
            angles = numbers[..., None] * self.scale / self.temperature ** waves
            sines = torch.stack((angles.sin(), angles.cos()), -1).flatten(-3)
        return self.pos_proj(sines.to(layer_dtype(self.pos_proj)).permute(0, 3, 1, 2))


class BoxRPB(nn.Module):
    """A bias of cross-attention from the distances between the edges of a query's box and the
    centre of a cell (box-to-pixel relative position bias, Plain-DETR, Lin et al., ICCV 2023, Sec.
    4.1): network_x(x1 - x, x2 - x) + network_y(y1 - y, y2 - y), in pixels.

    Args:
        num_heads: attention heads.
        hidden_dims: width of the two networks.
        stride: distance of neighbouring cells in pixels; 16 in the release.
        mode: 'linear', or 'log': sign(d) * log2(1 + abs(d)) / 3 of each distance ('abs_log8').

    Parameters: ``cpb_mlp1`` for columns and ``cpb_mlp2`` for rows, named as in the release.

    Raises:
        ValueError: sizes are out of range, or the mode is unknown.
    """

    def __init__(self, num_heads: int, *, hidden_dims: int = 512, stride: float = 32,
                 mode: str = 'linear') -> None:
        super().__init__()
        check_at_least(1, num_heads=num_heads, hidden_dims=hidden_dims, stride=stride)
        check_choices(mode=(mode, ('linear', 'log')))
        self.stride, self.mode = stride, mode
        self.cpb_mlp1, self.cpb_mlp2 = (nn.Sequential(
            nn.Linear(2, hidden_dims), nn.ReLU(),
            nn.Linear(hidden_dims, num_heads, bias=False)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise by a truncated normal of standard deviation 0.02, and biases by 0."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, boxes: Tensor, hw_shape: tuple[int, int], extents: Tensor) -> Tensor:
        """The bias.

        Args:
            boxes: (B, n, 4), centre, width and height as shares of the image.
            hw_shape: (H, W) of the map.
            extents: (B, 2) or (2,), valid rows and columns of the map.

        Returns:
            (B, heads, n, H * W).
        """
        centres, sizes = boxes.float().split(2, -1)
        whole = extents.flip(-1).float().view(-1, 1, 2) * self.stride
        edges = torch.stack((centres - sizes / 2, centres + sizes / 2), -1) * whole[..., None]
        along_axes = []
        for axis, network in enumerate((self.cpb_mlp1, self.cpb_mlp2)):
            cells = torch.arange(hw_shape[1 - axis], device=boxes.device).float() + 0.5
            away = edges[:, :, None, axis] - cells[:, None] * self.stride  # (B, n, cells, 2)
            if self.mode == 'log':
                away = away.sign() * torch.log2(away.abs() + 1.0) / math.log2(8)
            along_axes.append(network(away.to(layer_dtype(network))).permute(0, 3, 1, 2))
        columns, rows = along_axes
        return (rows[..., :, None] + columns[..., None, :]).flatten(-2)


__all__ = ['BoxRPB', 'PositionRelation']


def cell_centres(hw: tuple[int, int], width: Tensor, height: Tensor) -> Tensor:
    """The centres (B, H * W, 2), x and y, of the cells of a map of size ``hw``, as shares of the
    width and height (B, 1) of its valid part.

    The numbers are mmdet's, which come from ``torch.linspace``; that would fix an exported file to
    the size of its example.
    """
    dtype = torch.promote_types(width.dtype, torch.float32)
    y, x = (torch.arange(side, dtype=dtype, device=width.device) + 0.5 for side in hw)
    x, y = (x / width)[:, None].expand(-1, hw[0], -1), (y / height)[..., None].expand(-1, -1, hw[1])
    return torch.stack((x, y), -1).flatten(1, 2)


def cell_boxes(hw_shapes: Sequence[tuple[int, int]], like: Tensor, padding_mask: Tensor | None,
               *, before_sigmoid: bool = False) -> tuple[Tensor, Tensor]:
    """The boxes of the cells of several maps from which two-stage detectors refine proposals
    (Deformable DETR, Zhu et al., ICLR 2021, App. A.4): centred in the cell, with sides of 0.05
    * 2^level of the image.

    Args:
        hw_shapes: (H, W) of each level.
        like: a tensor (B, ...); boxes have its device and its precision, at least float32.
        padding_mask: (B, cells) bool, True = padding, at the right and bottom of each level, or
            None. Boxes are shares of the image without it.
        before_sigmoid: return the numbers whose sigmoid the boxes are, inf for unused cells.

    Returns:
        (1 or B, cells, 4), (cx, cy, w, h) as shares of the image; (1 or B, cells, 1) bool, which
        cells are unused: padding, and cells whose centres lie within 0.01 of the border.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)

    def make() -> tuple[Tensor, Tensor]:
        boxes, unused = _cell_boxes(hw_shapes, like, padding_mask, dtype)
        if before_sigmoid:
            boxes = torch.log(boxes / (1 - boxes)).masked_fill(unused, torch.inf)
        return boxes, unused
    if padding_mask is not None:
        return make()
    return stored(('cell boxes', tuple(hw_shapes), dtype, before_sigmoid), make, like.device)


def _cell_boxes(hw_shapes: Sequence[tuple[int, int]], like: Tensor, padding_mask: Tensor | None,
                dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    boxes, start = [], 0
    for level, (height, width) in enumerate(hw_shapes):
        sides = [like.new_full((1, 1), side, dtype=dtype) for side in (height, width)]
        if padding_mask is not None:
            level_mask = padding_mask[:, start:start + height * width].unflatten(1, (height, width))
            sides = filled_extents(level_mask).to(dtype).split(1, 1)
        start += height * width
        centres = cell_centres((height, width), sides[1], sides[0])
        boxes.append(torch.cat((centres, torch.full_like(centres, 0.05 * 2.0 ** level)), -1))
    joined = torch.cat(boxes, 1)
    unused = ~((joined > 0.01) & (joined < 0.99)).all(-1, keepdim=True)
    return joined, unused if padding_mask is None else unused | padding_mask[..., None]


def moved_boxes(boxes: Tensor, moves: Tensor) -> Tensor:
    """Move boxes by shares of their sizes, as regions are in two-stage detectors (LW-DETR, Chen
    et al., 2024).

    Args:
        boxes: (..., 4), centre, width and height.
        moves: (..., 4), of the centre, and logarithms of the factors of width and height.

    Returns:
        (..., 4), as ``boxes``.
    """
    centre, size = boxes.split(2, -1)
    shift, growth = moves.split(2, -1)
    return torch.cat((shift * size + centre, growth.exp() * size), -1)
