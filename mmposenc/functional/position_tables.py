"""Tables of absolute positions: learned ones are resized, and sine-cosine ones computed. Kernels of
patches are resized by the same matrices."""
from __future__ import annotations

import math

import torch
from torch import Tensor

from .masking import are_known_equal
from .tracing import full_precision, may_branch_on

INTERPOLATIONS = ('bicubic', 'bilinear', 'bicubic_antialias', 'bilinear_antialias',
                  'bilinear_corners', 'cut', 'tile')


def at_least_float32(x: Tensor) -> Tensor:
    """x, from half precision in float32, in which tables are resized."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def resize_position_table(table: Tensor, from_hw: tuple[int, int], to_hw: tuple[int, int],
                          mode: str = 'bicubic', offset: float = 0.0,
                          extents: Tensor | None = None) -> Tensor:
    """Resize a learned table to another grid, or to that of each image of a padded batch.

    Args:
        table: (1, H*W, C), without prefix tokens.
        from_hw: (H, W) of the table.
        to_hw: (H', W') wanted, or that of the batch.
        mode: 'bicubic' (DeiT's and CPVT's fine-tuning), 'bilinear' (PVT's), 'bicubic_antialias'
            (timm's, and DINOv2's with registers) or 'bilinear_antialias' (SigLIP 2's); all as
            ``F.interpolate`` with align_corners=False. 'bilinear_corners' is 'bilinear' with
            align_corners=True (some of RADIO's). 'cut': nothing is resized, cells take vectors row
            by row. 'tile': the table is repeated from the first cell on.
        offset: added to the wanted sides where the step from cell to cell is computed: 0.1 in
            DINOv2 without registers. An image of the table's own grid has none, for it gets the
            table.
        extents: (B, 2) whole numbers, rows and columns of each image's valid cells.

    Returns:
        (1, H'*W', C); the table itself when the grid is the same. With ``extents`` (B, H'*W', C);
        cells outside an image's extent hold no meaningful numbers. Half precision is rounded once.

    A resampled row is a sum of rows with weights that depend only on its place, so both axes are
    products with a small matrix: extents stay on their device, and the backward pass has one order
    of sums, which that of ``F.interpolate`` has not on a GPU.
    """
    if extents is None:
        if are_known_equal(from_hw, to_hw):
            return table
        extents = whole_extents(to_hw, table.device)
    # Multiply-accumulates are counted on the meta device; the papers' counts leave this resizing
    # out.
    if table.is_meta:
        return table.new_empty(len(extents), to_hw[0] * to_hw[1], table.shape[-1])
    if mode == 'tile':
        rows, cols = (torch.arange(side, device=table.device) % length
                      for side, length in zip(to_hw, from_hw, strict=True))
        return table.unflatten(1, from_hw).index_select(1, rows).index_select(2, cols).flatten(
            1, 2).expand(extents.shape[0], -1, -1)
    if mode == 'cut':
        return _in_order_of_image(table, extents, to_hw)
    sizes = extents.double()
    if offset:
        native = (extents[:, 0] == from_hw[0]) & (extents[:, 1] == from_hw[1])
        sizes = torch.where(native[:, None], sizes, sizes + offset)
    exact = at_least_float32(table)
    rows, cols = (resampling_weights(side, sizes[:, axis], length, mode, exact.dtype)
                  for axis, (side, length) in enumerate(zip(from_hw, to_hw, strict=True)))
    with full_precision(table):
        by_col = torch.einsum('bxv,uvc->buxc', cols, exact.view(*from_hw, -1))
        return torch.einsum('byu,buxc->byxc', rows, by_col).flatten(1, 2).to(table.dtype)


def whole_extents(hw_shape: tuple[int, int], device: torch.device) -> Tensor:
    """The rows and columns (1, 2) of an image that fills its grid."""
    return torch.stack([torch.full((1,), side, device=device) for side in hw_shape], 1)


def _in_order_of_image(table: Tensor, extents: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Take a table's vectors in their order: cell (r, c) of an image with W' columns gets vector r
    * W' + c.

    Raises:
        ValueError: an image has more cells than the table vectors.
    """
    length = table.shape[1]
    if may_branch_on(extents) and int(extents.prod(1).max()) > length:
        raise ValueError(f"interpolation='cut': a table of {length} vectors is too short for "
                         f'images of {extents.tolist()} rows and columns of cells')
    rows, cols = (torch.arange(side, device=extents.device) for side in hw_shape)
    places = rows[:, None] * extents[:, 1, None, None] + cols
    return table[0, places.flatten(1).clamp(max=length - 1)]


def resize_axis_table(table: Tensor, length: int) -> Tensor:
    """Resize a table of one axis linearly, as ``F.interpolate`` with align_corners=False.

    Args:
        table: ([heads], n, C).
        length: vectors wanted.

    Returns:
        ([heads], length, C); the table itself if it has as many. Half precision is rounded once.
    """
    source = table.shape[-2]
    if are_known_equal(source, length):
        return table
    if table.is_meta:
        return table.new_empty(*table.shape[:-2], length, table.shape[-1])
    target = torch.full((1,), length, dtype=torch.float64, device=table.device)
    exact = at_least_float32(table)
    weights, = resampling_weights(source, target, length, 'bilinear', exact.dtype)
    with full_precision(table):
        return (weights @ exact).to(table.dtype)


def resize_patch_kernel(kernel: Tensor, to_hw: tuple[int, int]) -> Tensor:
    """The kernel of patches of another size (FlexiViT, Beyer et al., CVPR 2023, Sec. 3.4): the
    pseudo-inverse of the matrix B that resizes a patch (bicubic, with antialiasing), transposed,
    times the kernel. Larger patches have the same tokens as before if images are resized by B.

    Args:
        kernel: (C', C, h, w).
        to_hw: (h', w') wanted, in pixels.

    Returns:
        (C', C, h', w'); the kernel itself if it has this size.
    """
    if kernel.shape[2:] == torch.Size(to_hw):
        return kernel
    # The matrix B of the paper is the Kronecker product of the matrices of both axes, so its
    # inverse is the product of their inverses.
    rows, cols = (torch.linalg.pinv(resampling_weights(
        source, torch.full((1,), length, dtype=torch.float64, device=kernel.device), length,
        'bicubic_antialias', torch.float64)[0])
        for source, length in zip(kernel.shape[2:], to_hw, strict=True))
    return torch.einsum('ocyx,yv,xu->ocvu', kernel.double(), rows, cols).to(kernel.dtype)


def resampling_weights(source: int, target: Tensor, length: int, mode: str,
                       dtype: torch.dtype, valid: Tensor | None = None) -> Tensor:
    """Weights (B, length, source) of an axis of ``source`` cells in one of ``target`` (B,) cells:
    cubic convolution (Keys, 1981) with a = -0.75, or linear; cells beyond the border, which lies
    after the last of ``valid`` (B,) cells, are those at it. All as ``F.interpolate``, with
    align_corners=False except in 'bilinear_corners'."""
    at = torch.arange(length, device=target.device, dtype=torch.float64) + 0.5
    # the length of a target cell in cells of the source
    step = source / target.clamp(min=1)[:, None]
    position = at * step - 0.5  # (B, length)
    if mode.endswith('antialias'):
        return _antialiased_weights(source, position, step.clamp(min=1), mode).to(dtype)
    # In this mode the first cells lie on each other, and so do the last ones.
    if mode == 'bilinear_corners':
        position = (at - 0.5) * ((source - 1) / (target - 1).clamp(min=1))[:, None]
    first = position.floor()
    share = (position - first)[..., None]
    if mode.startswith('bilinear'):
        taps = torch.cat((1 - share, share), -1)
    else:
        near = torch.cat((share, 1 - share), -1)
        inner = (1.25 * near - 2.25) * near.square() + 1
        far = near + 1
        outer = -0.75 * (((far - 5) * far + 8) * far - 4)
        taps = torch.stack((outer[..., 0], inner[..., 0], inner[..., 1], outer[..., 1]), -1)
    count = taps.shape[-1]
    index = first.long()[..., None] + torch.arange(count, device=at.device) - (count // 2 - 1)
    index = index.clamp(0, source - 1)
    if valid is not None:
        index = index.minimum(valid[:, None, None] - 1)
    cells = torch.arange(source, device=at.device)
    return torch.where(index[..., None] == cells, taps[..., None], 0.0).sum(-2).to(dtype)


def _antialiased_weights(source: int, position: Tensor, width: Tensor, mode: str) -> Tensor:
    """Weights (B, length, source) of a cubic (a = -0.5) or linear kernel stretched to ``width``
    (B, 1) cells, as Pillow's; beyond the border there is nothing, and weights sum up to one."""
    cells = torch.arange(source, device=position.device)
    far = ((cells - position[..., None]) / width[..., None]).abs()
    if mode == 'bilinear_antialias':
        weights = (1 - far).clamp(min=0)
    else:
        inner = (1.5 * far - 2.5) * far.square() + 1
        outer = -0.5 * (((far - 5) * far + 8) * far - 4)
        weights = torch.where(far < 1, inner, torch.where(far < 2, outer, 0.0))
    return weights / weights.sum(-1, keepdim=True)


def sincos_2d(hw_shape: tuple[int, int], embed_dims: int, *, temperature: float = 10000.0,
              normalize: bool = False, layout: str = 'split', device: torch.device | None = None,
              dtype: torch.dtype = torch.float32, extents: Tensor | None = None) -> Tensor:
    """Sine-cosine encoding of the rows in one half of the channels and of the columns in the other.

    With D = embed_dims / 2 channels an axis and position p (0 at the first cell),
    channel pair t has angle p / temperature^(2t / D).

    Args:
        hw_shape: (H, W).
        embed_dims: C, a multiple of 4.
        temperature: base of the wavelengths.
        normalize: DETR's form: p = (index + 1) / length * 2 pi, so the border is the same for
            every size; else p = index (ViT, MoCo v3).
        extents: (B, 2), rows and columns of each image, which lengths are then; else those of the
            grid.
        layout: 'split' is (sin | cos) of the columns' half, then of the rows' half (MoCo v3);
            'interleaved' is sin, cos, sin, ... rows first (DETR).

    Returns:
        (1, H*W, C), with ``extents`` (B, H*W, C).
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
    for axis, side in enumerate(hw_shape):
        position = torch.arange(side, dtype=torch.float64, device=device)[None]
        if normalize:
            length = side if extents is None else extents[:, axis:axis + 1].double()
            position = (position + 1) / (length + 1e-6) * (2 * math.pi)
        angles.append(position[..., None] * omega)  # (B or 1, side, C / 4)
    if layout == 'split':
        encoded = [torch.cat((angle.sin(), angle.cos()), dim=2) for angle in angles]
    else:
        encoded = [torch.stack((angle.sin(), angle.cos()), dim=3).flatten(2) for angle in angles]
    height, width = hw_shape
    rows = encoded[0][:, :, None].expand(-1, height, width, axis_dims)
    cols = encoded[1][:, None].expand(-1, height, width, axis_dims)
    halves = (cols, rows) if layout == 'split' else (rows, cols)
    table = torch.cat(halves, dim=3).flatten(1, 2).to(dtype)
    return table if extents is None else table.expand(extents.shape[0], -1, -1)
