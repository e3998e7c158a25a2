"""Note the images' sizes on a collated batch."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..image_sizes import set_img_shapes


def note_img_shapes(data: dict[str, Any], shapes: Sequence[Sequence[int]] | None = None
                    ) -> dict[str, Any]:
    """Set ``img_shapes`` of ``data['inputs']``, from the samples where ``shapes`` is None."""
    inputs, samples = data['inputs'], data['data_samples']
    if shapes is None and samples:
        # Metainfo, not the tensors: batch augmentations that resize the batch keep it true.
        shapes = [sample.metainfo['img_shape'] for sample in samples]
    if shapes is not None and isinstance(inputs, Tensor):
        set_img_shapes(inputs, shapes)
    return data
