"""The sizes of the images in a padded batch: stored on it, read back, and used to crop."""
from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .extents import MaskLike, cells_outside, extents_to_mask, mask_at_step
from .tracing import is_exporting, may_branch_on

#: The height and width in pixels of each image.
ImgShapes = Sequence[Sequence[int]] | Tensor


def set_img_shapes(batch: Tensor, shapes: Sequence[Sequence[int]]) -> Tensor:
    """Note on a batch (B, C, H, W) the height and width in pixels that each image fills.

    Detectors hand their backbone the batch and nothing else. A note on that very tensor cannot
    outlive it, so no image is ever masked with the sizes of another batch.
    """
    batch.img_shapes = [(int(s[0]), int(s[1])) for s in shapes]  # type: ignore[attr-defined]
    return batch


def note_img_shapes(data: dict[str, Any], shapes: Sequence[Sequence[int]] | None = None
                    ) -> dict[str, Any]:
    """Set ``img_shapes`` of ``data['inputs']``, from the samples where ``shapes`` is None."""
    inputs, samples = data['inputs'], data['data_samples']
    if shapes is None and samples:
        # Taken from metainfo and not from the tensors, because batch augmentations that resize the
        # batch update it.
        shapes = [sample.metainfo['img_shape'] for sample in samples]
    if shapes is not None and isinstance(inputs, Tensor):
        set_img_shapes(inputs, shapes)
    return data


def checked_one_batch(x: object) -> Tensor:
    """Return x, after a check that it is one batch.

    Raises:
        ValueError: x is no tensor, such as a list of images, or has other axes.
    """
    if not isinstance(x, Tensor):
        raise ValueError(f'x is a {type(x).__name__}; a padded batch (B, channels, H, W) is '
                         'required, with img_shapes and mask_padding=True for images of several '
                         'sizes')
    if x.dim() != 4:
        raise ValueError(f'x has shape {tuple(x.shape)}; (B, channels, H, W) is required')
    return x


def get_img_shapes(batch: Tensor, shapes: ImgShapes | None, mask_padding: bool
                   ) -> list[tuple[int, int]] | Tensor | None:
    """Sizes to mask a batch with, or None.

    Args:
        batch: (B, C, H, W).
        shapes: sizes given by the caller, as numbers or, for exported programs, as a tensor (B, 2);
            None takes those stored on the batch.
        mask_padding: the backbone's option.

    Raises:
        ValueError: if sizes are given to a backbone that does not mask, or do not fit the batch.
    """
    if not mask_padding:
        if shapes is not None:
            raise ValueError('img_shapes is given, but the backbone has mask_padding=False; set '
                             'mask_padding=True')
        return None
    if shapes is None:
        shapes = getattr(batch, 'img_shapes', None)
    if shapes is None:
        _warn_if_padded(batch)
        return None
    if isinstance(shapes, Tensor):
        if shapes.shape != (batch.shape[0], 2):
            raise ValueError(f'img_shapes has shape {tuple(shapes.shape)}; (B, 2) = '
                             f'({batch.shape[0]}, 2) is required, height and width of each image')
        if may_branch_on(shapes):
            checked_img_shapes(batch, shapes.tolist())
        return shapes
    # The one size, perhaps of symbols, is that of all images.
    if is_exporting() and len(shapes) == 1:
        return [(shapes[0][0], shapes[0][1])]
    return checked_img_shapes(batch, shapes)


def checked_img_shapes(batch: Tensor, shapes: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The height and width in pixels of each image in a batch (B, C, H, W), after a check.

    Raises:
        ValueError: if they do not fit the batch.
    """
    if any(not hasattr(each, '__len__') or len(each) < 2 for each in shapes):
        raise ValueError(f'img_shapes={shapes!r} must hold one (height, width) for each of '
                         f'{len(batch)} images')
    checked = [(int(s[0]), int(s[1])) for s in shapes]
    height, width = batch.shape[-2:]
    if len(checked) != len(batch) or not all(0 < h <= height and 0 < w <= width
                                             for h, w in checked):
        raise ValueError(f'img_shapes={checked} must hold one (height, width) for each of '
                         f'{len(batch)} images, from (1, 1) to ({height}, {width})')
    return checked


def mask_images(x: Tensor, shapes: list[tuple[int, int]] | Tensor | None,
                cell: int | tuple[int, int]) -> tuple[Tensor, MaskLike | None]:
    """Cut a batch to its largest image and clear the padding that is left.

    Args:
        x: images (B, C, H, W), padded to the right and below.
        shapes: pixels that each image fills, from :func:`get_img_shapes`; None leaves all as it is.
        cell: pixels of a side of a cell, or of its rows and columns.

    Returns:
        The images, and the padding mask (B, H', W') of their cells, True = padding; None where all
        images have one size. A cell is padding when its first pixel is. With a tensor of sizes
        there always is a mask, and nothing is cut.
    """
    if shapes is None or not (isinstance(shapes, Tensor) or shapes):
        return x, None
    # The sizes are a tensor, whose numbers must not be read (for export).
    if isinstance(shapes, Tensor):
        padded = cells_outside(shapes, (x.shape[-2], x.shape[-1]))
        return x.masked_fill(padded[:, None], 0), mask_at_step(padded, cell)
    height, width = (max(side) for side in zip(*shapes, strict=True))
    x = top_left(x, height, width)
    pixels = extents_to_mask(shapes, (height, width), x.device)
    if pixels is None:
        return x, None
    return x.masked_fill(pixels.cells[:, None], 0), mask_at_step(pixels, cell)


def top_left(x: Tensor, height: int, width: int) -> Tensor:
    """Take the first rows and columns of maps (..., H, W)."""
    if not is_exporting():
        return x[..., :height, :width]
    # Not a slice: whether a slice is contiguous would become a condition of the graph, and then it
    # would hold either for padded sizes or for others.
    rows, cols = (torch.arange(side, device=x.device) for side in (height, width))
    return x.index_select(-2, rows).index_select(-1, cols)


def _warn_if_padded(batch: Tensor) -> None:
    """Warn if a batch looks padded although its sizes are unknown, because mask_padding then masks
    nothing."""
    if not may_branch_on(batch) or batch.requires_grad:
        return
    edges = (batch[..., -1, :].flatten(1), batch[..., -1].flatten(1))
    if any(bool((edge == 0).all(1).any()) for edge in edges):
        warnings.warn(
            'mask_padding=True, and an image of the batch ends in zeros like padding, but nothing '
            "says how far the images reach; use data_preprocessor=dict(type="
            "'mmposenc.DetDataPreprocessor') (or SegDataPreProcessor), or pass img_shapes",
            stacklevel=3)
