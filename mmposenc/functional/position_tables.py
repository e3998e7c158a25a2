"""Tables of absolute positions: resizing learned ones, computing sine-cosine ones."""
from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .masking import map_to_tokens, tokens_to_map

INTERPOLATIONS = ('bicubic', 'bilinear')


def resize_position_table(table: Tensor, from_hw: tuple[int, int], to_hw: tuple[int, int],
                          mode: str = 'bicubic') -> Tensor:
    """Resize a learned table to another grid.

    Args:
        table: (1, H*W, C), without prefix tokens.
        from_hw: (H, W) of the table.
        to_hw: (H', W') wanted.
        mode: 'bicubic' (DeiT's and CPVT's fine-tuning) or 'bilinear' (PVT's), align_corners=False.

    Returns:
        (1, H'*W', C); the table itself when the grid is the same.
    """
    if from_hw == to_hw:
        return table
    grid = F.interpolate(tokens_to_map(table, from_hw), size=to_hw, mode=mode, align_corners=False)
    return map_to_tokens(grid)


def sincos_2d(hw_shape: tuple[int, int], embed_dims: int, *, temperature: float = 10000.0,
              normalize: bool = False, layout: str = 'split', device: torch.device | None = None,
              dtype: torch.dtype = torch.float32) -> Tensor:
    """Sine-cosine encoding of the rows in one half of the channels and of the columns in the other.

    With D = embed_dims / 2 channels an axis and position p (0 at the first cell),
    channel pair t has angle p / temperature^(2t / D).

    Args:
        hw_shape: (H, W).
        embed_dims: C, a multiple of 4.
        temperature: base of the wavelengths.
        normalize: DETR's form: p = (index + 1) / length * 2 pi, so the border is the same for
            every size; else p = index (ViT, MoCo v3).
        layout: 'split' is (sin | cos) of the columns' half, then of the rows' half (MoCo v3);
            'interleaved' is sin, cos, sin, ... rows first (DETR).

    Returns:
        (1, H*W, C).
    """
    if embed_dims % 4:
        raise ValueError(f'embed_dims={embed_dims} must be a multiple of 4: sine and cosine of '
                         f'rows and columns')
    if layout not in ('split', 'interleaved'):
        raise ValueError(f"layout={layout!r} must be 'split' or 'interleaved'")
    axis_dims = embed_dims // 2
    # Angles are computed in float64: at 200 cells float32 loses the last two digits of the sine.
    exponent = torch.arange(axis_dims // 2, dtype=torch.float64, device=device) * 2 / axis_dims
    omega = temperature ** -exponent
    angles = []
    for length in hw_shape:
        position = torch.arange(length, dtype=torch.float64, device=device)
        if normalize:
            position = (position + 1) / (length + 1e-6) * (2 * math.pi)
        angles.append(position[:, None] * omega)  # (length, C / 4)
    if layout == 'split':
        encoded = [torch.cat((angle.sin(), angle.cos()), dim=1) for angle in angles]
    else:
        encoded = [torch.stack((angle.sin(), angle.cos()), dim=2).flatten(1) for angle in angles]
    height, width = hw_shape
    rows = encoded[0][:, None].expand(height, width, axis_dims)
    cols = encoded[1][None].expand(height, width, axis_dims)
    halves = (cols, rows) if layout == 'split' else (rows, cols)
    return torch.cat(halves, dim=2).reshape(1, height * width, embed_dims).to(dtype)
