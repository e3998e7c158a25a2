"""What of a padded batch belongs to one image: its size, its cells, its sample."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..functional.grids import whole_cells
from ..functional.masking import pad_map
from ..image_sizes import checked_img_shapes
from .extents import Extents, KeptOut


def image_sizes(batch: Tensor, samples: Sequence[Any]) -> Extents:
    """Pixels (rows, columns) that each image of a batch fills: noted on it by a data preprocessor
    of this project, or ``img_shape`` of its sample.

    Raises:
        ValueError: if they do not fit the batch.
    """
    sizes = getattr(batch, 'img_shapes', None) or [sample.metainfo['img_shape']
                                                   for sample in samples]
    return checked_img_shapes(batch, sizes)


def reached_pixels(image: tuple[int, int], full: tuple[int, int], finest: Tensor
                   ) -> tuple[int, int]:
    """Pixels of the cells that an image reaches on the finest map: masks are enlarged from it.

    Args:
        image: pixels (rows, columns) of the image.
        full: those of the batch.
        finest: map (B, C, H, W) of the batch.
    """
    step = max(-(-side // cells) for side, cells in zip(full, finest.shape[-2:], strict=True))
    return whole_cells(image[0], step) * step, whole_cells(image[1], step) * step


def own_cells(maps: Any, index: int, kept: KeptOut | None) -> Any:
    """Maps of one image, cut to its own cells, in nested lists and tuples.

    Args:
        maps: of the batch, (B, C, H, W).
        index: which image.
        kept: what knows its cells; None where all images fill the batch.
    """
    if isinstance(maps, (tuple, list)):
        return type(maps)(own_cells(level, index, kept) for level in maps)
    if kept is None:
        return maps[index:index + 1]
    rows, cols = kept.extents(maps)[index]
    return maps[index:index + 1, :, :rows, :cols].contiguous()


def filled_up(maps: Sequence[Tensor], index: int, kept: KeptOut, divisor: int) -> list[Tensor]:
    """Maps of one image whose sides are filled up to multiples, with zeros in what is padding: the
    sizes that the image has alone in a batch, for heads that enlarge maps by whole factors.

    Args:
        maps: of the batch, (B, C, H, W), from fine to coarse.
        index: which image.
        kept: what knows its cells.
        divisor: pixels of which each side is a multiple.
    """
    full = kept.hw_shape
    sides = [whole_cells(own, divisor) * divisor for own in kept.images[index]]
    out: list[Tensor] = []
    for level in maps:
        steps = [max(1, round(before / now)) for before, now in zip(full, level.shape[-2:],
                                                                    strict=True)]
        sides = [whole_cells(side, step) for side, step in zip(sides, steps, strict=True)]
        full = (level.shape[-2], level.shape[-1])
        out.append(pad_map(own_cells(level, index, kept), (sides[0], sides[1])))
    return out


def own_sample(sample: Any, size: tuple[int, int], *, targets: bool) -> Any:
    """The sample of an image that is a batch of its own.

    Args:
        sample: of mmdet or mmseg; left as it is.
        size: pixels (rows, columns) of that batch.
        targets: cut masks and label maps, which the batch was padded with, to that size. (Those of
            a test may have the size of the picture as it was loaded.)
    """
    own = sample.new()
    own.set_metainfo({'batch_input_shape': size, 'pad_shape': size})
    for key in ('padding_size', 'img_padding_size'):
        if key in own.metainfo:
            own.set_metainfo({key: (0, 0, 0, 0)})
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
    """mmdet's masks of instances on a canvas of another size."""
    if isinstance(masks, Tensor):
        return masks[..., :size[0], :size[1]]
    if isinstance(masks.masks, list):  # polygons
        return type(masks)(masks.masks, *size)
    cut = masks.masks[:, :size[0], :size[1]]
    return type(masks)(cut, *cut.shape[1:]).pad(size)
