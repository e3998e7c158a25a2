"""mmseg's EncoderDecoder, whose sliding windows stay inside each image."""
from __future__ import annotations

import torch
from mmseg.models import EncoderDecoder as MMSegEncoderDecoder
from torch import Tensor

from ..functional.masking import pad_map


class EncoderDecoder(MMSegEncoderDecoder):
    """mmseg's EncoderDecoder (same arguments), for batches of images of several sizes.

    Its sliding windows cover each image's own pixels, so every image of a padded batch gets what
    it gets alone, whatever its backbone and head. mmseg lays one set of windows over the batch,
    padding included, and overwrites the first sample's ``img_shape`` with a window's.
    """

    def slide_inference(self, inputs: Tensor, batch_img_metas: list[dict]) -> Tensor:
        """Logits (B, num_classes, H, W) of images (B, C, H, W), zero on padding.

        Args:
            inputs: the batch; its ``img_shapes`` say how far each image reaches, and without them
                all of it is image.
            batch_img_metas: one dict an image; left as they are.
        """
        metas = [dict(meta) for meta in batch_img_metas]
        full_hw = (inputs.shape[-2], inputs.shape[-1])
        shapes = getattr(inputs, 'img_shapes', None) or [full_hw] * len(inputs)
        if all(tuple(shape) == full_hw for shape in shapes):
            return super().slide_inference(inputs, metas)  # type: ignore[no-any-return]
        logits = []
        for image, meta, (height, width) in zip(inputs, metas, shapes, strict=True):
            own = super().slide_inference(image[None, :, :height, :width], [meta])
            logits.append(pad_map(own, full_hw))
        return torch.cat(logits)
