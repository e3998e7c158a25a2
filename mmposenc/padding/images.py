"""The parts of a padded batch that belong to one image: its size, its cells, its sample."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ..functional.cells import Extents
from ..functional.grids import whole_cells
from ..functional.image_sizes import checked_img_shapes
from ..functional.masking import pad_map
from .context import IgnorePadding

if TYPE_CHECKING:
    from mmengine.structures import BaseDataElement


def image_sizes(batch: Tensor, samples: Sequence[BaseDataElement]) -> Extents:
    """The (rows, columns) in pixels of each image of a batch, as a data preprocessor of this
    project stored them; otherwise ``img_shape`` of its sample.

    Raises:
        ValueError: a size does not fit the batch.
    """
    sizes = getattr(batch, 'img_shapes', None) or [sample.metainfo['img_shape']
                                                   for sample in samples]
    return checked_img_shapes(batch, sizes)


def padded_to_multiple(batch: Tensor, pixels: int) -> Tensor:
    """Pad a batch (B, C, H, W) with zeros at the right and bottom to multiples of a number of
    pixels."""
    height, width = (whole_cells(side, pixels) * pixels for side in batch.shape[-2:])
    return pad_map(batch, (height, width))


def covered_pixels(image: tuple[int, int], full: Sequence[int], finest: Tensor
                   ) -> tuple[int, int]:
    """The (rows, columns) in pixels of the cells that an image covers in the finest map, from which
    masks are enlarged.

    Args:
        image: pixels (rows, columns) of the image.
        full: shape of the batch (..., rows, columns).
        finest: map (B, C, H, W) of the batch.
    """
    step = max(-(-side // cells) for side, cells in zip(full[-2:], finest.shape[-2:], strict=True))
    return whole_cells(image[0], step) * step, whole_cells(image[1], step) * step


def maps_of_valid_cells(maps: Any, index: int, context: IgnorePadding | None) -> Any:
    """The maps of one image, cut to its valid cells, in the same nested lists, tuples and dicts.

    Args:
        maps: maps of the batch, (B, C, H, W).
        index: index of the image.
        context: knows the valid cells; None if there is no padding.
    """
    def cut(x: Tensor) -> Tensor:
        if context is None:
            return x[index:index + 1]
        rows, cols = context.extents(x)[index]
        return x[index:index + 1, :, :rows, :cols].contiguous()
    return tree_map_only(Tensor, cut, maps)


def padded_as_alone(image: Tensor, preprocessor: Any) -> Tensor:
    """Pad an image (1, C, H, W), or several of one size, as the data preprocessor (or that of a
    model) pads a test batch of it alone. Sides may be symbols."""
    # This is mmdet's wrapper.
    preprocessor = getattr(preprocessor, 'data_preprocessor', preprocessor)
    if hasattr(preprocessor, 'test_cfg'):  # This is mmseg's, whose own sizes are those of training.
        rule = preprocessor.test_cfg or {}
    else:
        rule = {'size_divisor': getattr(preprocessor, 'pad_size_divisor', None)}
    divisor, least = rule.get('size_divisor') or 1, rule.get('size') or (0, 0)
    height, width = (torch.sym_max(whole_cells(side, divisor) * divisor, at_least)
                     for side, at_least in zip(image.shape[-2:], least, strict=True))
    return F.pad(image, (0, width - image.shape[-1], 0, height - image.shape[-2]),
                 value=getattr(preprocessor, 'pad_value', getattr(preprocessor, 'pad_val', 0)))


def padded_maps(maps: Sequence[Tensor], index: int, context: IgnorePadding, sides: Sequence[int]
                ) -> tuple[Tensor, ...]:
    """Maps of one image, padded with zeros to the sizes that they have for the image alone, for
    heads that enlarge maps by whole factors.

    Args:
        maps: maps of the batch, (B, C, H, W), from fine to coarse.
        index: index of the image.
        context: knows the valid cells.
        sides: (rows, columns) in pixels of the image alone, after padding.
    """
    full = context.hw_shape
    padded: list[Tensor] = []
    for level in maps:
        steps = [max(1, round(before / now)) for before, now in zip(full, level.shape[-2:],
                                                                    strict=True)]
        sides = [whole_cells(side, step) for side, step in zip(sides, steps, strict=True)]
        full = (level.shape[-2], level.shape[-1])
        padded.append(pad_map(maps_of_valid_cells(level, index, context), (sides[0], sides[1])))
    return tuple(padded)


def sample_of_one(sample: BaseDataElement, image: tuple[int, int], size: tuple[int, int]
                  ) -> BaseDataElement:
    """The sample that an image would have in a batch of its own.

    Args:
        sample: a sample of mmdet or mmseg; it is not changed.
        image: (rows, columns) of the image's pixels that the result keeps.
        size: (rows, columns) of that batch in pixels.
    """
    alone = sample.new()
    alone.set_metainfo({'batch_input_shape': size, 'pad_shape': size})
    for key in ('padding_size', 'img_padding_size'):
        if key in alone.metainfo:  # left, right, top, bottom
            alone.set_metainfo({key: (0, size[1] - image[1], 0, size[0] - image[0])})
    return alone
