"""The parts of a padded batch that belong to one image: its size, its cells, its sample."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ..functional.grids import whole_cells
from ..functional.image_sizes import checked_img_shapes
from ..functional.masking import pad_map
from .extents import Extents, KeptOut

#: A batch is padded to a multiple of this number of pixels, for networks that enlarge maps by whole
#: factors, and for compiled code.
CELL = 32


def image_sizes(batch: Tensor, samples: Sequence[Any]) -> Extents:
    """(rows, columns) of each image of a batch in pixels, as stored by a data preprocessor of this
    project, else ``img_shape`` of its sample.

    Raises:
        ValueError: a size does not fit the batch.
    """
    sizes = getattr(batch, 'img_shapes', None) or [sample.metainfo['img_shape']
                                                   for sample in samples]
    return checked_img_shapes(batch, sizes)


def of_whole_cells(batch: Tensor) -> Tensor:
    """A batch (B, C, H, W), zero-padded at the right and bottom to multiples of :data:`CELL`."""
    height, width = (whole_cells(side, CELL) * CELL for side in batch.shape[-2:])
    return pad_map(batch, (height, width))


def reached_pixels(image: tuple[int, int], full: Sequence[int], finest: Tensor
                   ) -> tuple[int, int]:
    """(rows, columns) in pixels of the cells that an image covers in the finest map; masks are
    enlarged from that map.

    Args:
        image: pixels (rows, columns) of the image.
        full: shape of the batch (..., rows, columns).
        finest: map (B, C, H, W) of the batch.
    """
    step = max(-(-side // cells) for side, cells in zip(full[-2:], finest.shape[-2:], strict=True))
    return whole_cells(image[0], step) * step, whole_cells(image[1], step) * step


def own_cells(maps: Any, index: int, kept: KeptOut | None) -> Any:
    """Maps of one image, cut to its valid cells, in nested lists, tuples and dicts.

    Args:
        maps: maps of the batch, (B, C, H, W).
        index: index of the image.
        kept: the context that knows the valid cells; None if there is no padding.
    """
    def own(x: Tensor) -> Tensor:
        if kept is None:
            return x[index:index + 1]
        rows, cols = kept.extents(x)[index]
        return x[index:index + 1, :, :rows, :cols].contiguous()
    return tree_map_only(Tensor, own, maps)


def as_alone(image: Tensor, preprocessor: Any) -> Tensor:
    """An image (1, C, H, W), padded as the data preprocessor pads it in a test batch of one."""
    preprocessor = getattr(preprocessor, 'data_preprocessor', preprocessor)  # mmdet's wrapper
    rule = getattr(preprocessor, 'test_cfg', None) or {}  # mmseg's
    divisor = getattr(preprocessor, 'pad_size_divisor', None) or rule.get('size_divisor') or 1
    height, width = (max(whole_cells(side, divisor) * divisor, least) for side, least in zip(
        image.shape[-2:], rule.get('size') or (0, 0), strict=True))
    value = getattr(preprocessor, 'pad_value', getattr(preprocessor, 'pad_val', 0))
    return F.pad(image, (0, width - image.shape[-1], 0, height - image.shape[-2]), value=value)


def filled_up(maps: Sequence[Tensor], index: int, kept: KeptOut, sides: Sequence[int]
              ) -> tuple[Tensor, ...]:
    """Maps of one image, padded with zeros to the sizes that they have for the image alone, for
    heads that enlarge maps by whole factors.

    Args:
        maps: maps of the batch, (B, C, H, W), from fine to coarse.
        index: index of the image.
        kept: the context that knows the valid cells.
        sides: (rows, columns) in pixels of the image alone, after padding.
    """
    full = kept.hw_shape
    out: list[Tensor] = []
    for level in maps:
        steps = [max(1, round(before / now)) for before, now in zip(full, level.shape[-2:],
                                                                    strict=True)]
        sides = [whole_cells(side, step) for side, step in zip(sides, steps, strict=True)]
        full = (level.shape[-2], level.shape[-1])
        out.append(pad_map(own_cells(level, index, kept), (sides[0], sides[1])))
    return tuple(out)


def own_sample(sample: Any, size: tuple[int, int], *, targets: bool,
               padding: tuple[int, int, int, int] = (0, 0, 0, 0)) -> Any:
    """The sample of an image in a batch of one.

    Args:
        sample: a sample of mmdet or mmseg; it is not changed.
        size: (rows, columns) of that batch in pixels.
        targets: cut masks and label maps, which are padded with the batch, to that size. (In a test
            they may have the size of the original image.)
        padding: padding within that size: left, right, top, bottom.
    """
    own = sample.new()
    own.set_metainfo({'batch_input_shape': size, 'pad_shape': size})
    for key in ('padding_size', 'img_padding_size'):
        if key in own.metainfo:
            own.set_metainfo({key: padding})
    if not targets:
        return own
    for key in ('gt_sem_seg', 'gt_edge_map', 'gt_depth_map'):
        if key in own:
            setattr(own, key, getattr(own, key)[:size[0], :size[1]])
    masks = own.gt_instances.get('masks') if 'gt_instances' in own else None
    if masks is not None:
        own.gt_instances = copy.copy(own.gt_instances)
        own.gt_instances.masks = _cut_masks(masks, size)
    return own


def _cut_masks(masks: Any, size: tuple[int, int]) -> Any:
    """mmdet's instance masks on a canvas of another size."""
    if isinstance(masks, Tensor):
        return masks[..., :size[0], :size[1]]
    if isinstance(masks.masks, list):  # polygons
        return type(masks)(masks.masks, *size)
    cut = masks.masks[:, :size[0], :size[1]]
    return type(masks)(cut, *cut.shape[1:]).pad(size)
