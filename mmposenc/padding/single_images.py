"""One image of a padded batch as it is in a batch of its own: its pixels and its sample."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.grids import whole_cells

if TYPE_CHECKING:
    from mmengine.structures import BaseDataElement


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


def sample_of_one(sample: BaseDataElement, image: tuple[int, int], size: tuple[int, int]
                  ) -> BaseDataElement:
    """The sample that an image would have in a batch of its own.

    Args:
        sample: a sample of mmdet or mmseg; it is not changed.
        image: (rows, columns) of the image's pixels that the result keeps.
        size: (rows, columns) of that batch in pixels.
    """
    padding = (0, size[1] - image[1], 0, size[0] - image[0])  # left, right, top, bottom
    values = {'batch_input_shape': size, 'pad_shape': size, 'padding_size': padding,
              'img_padding_size': padding}
    alone = sample.new()
    alone.set_metainfo({key: value for key, value in values.items() if key in sample.metainfo})
    return alone
