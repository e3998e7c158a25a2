"""mmseg's data preprocessor and model, for padded batches."""
from __future__ import annotations

from typing import Any

import torch
from mmseg.models import EncoderDecoder as MMSegEncoderDecoder
from mmseg.models import SegDataPreProcessor as MMSegDataPreProcessor
from mmseg.utils import stack_batch
from torch import Tensor

from ...functional.image_sizes import note_img_shapes
from ...functional.masking import pad_map

#: ``inputs`` and ``data_samples`` of a batch.
Batch = dict[str, Any]


class SegDataPreProcessor(MMSegDataPreProcessor):
    """mmseg's SegDataPreProcessor (same arguments), which stores the images' sizes on the batch.

    Backbones with ``mask_padding=True`` need it.
    """

    def forward(self, data: Batch, training: bool = False) -> Batch:
        """Preprocess as mmseg does. A test batch may also have images of several sizes, which are
        padded to the largest; the tensor's attribute ``img_shapes`` lists the sizes before that."""
        shapes = [tuple(image.shape[-2:]) for image in data['inputs']]
        if training or len(set(shapes)) == 1:
            return note_img_shapes(super().forward(data, training), shapes)
        return note_img_shapes(self._padded_test_batch(data, shapes), shapes)

    def _padded_test_batch(self, data: Batch, shapes: list[tuple[int, ...]]
                           ) -> Batch:
        """Make a test batch of images of several sizes; each sample stores its padding."""
        samples = data.get('data_samples')
        # mmseg converts channels and normalises each image separately; then its padding is removed.
        alone = [super(SegDataPreProcessor, self).forward(
            {'inputs': [image], 'data_samples': samples and samples[i:i + 1]}, False)
            for i, image in enumerate(data['inputs'])]
        rule = self.test_cfg or {'size_divisor': 1}
        inputs, padded = stack_batch(
            [part['inputs'][0][:, :height, :width]
             for part, (height, width) in zip(alone, shapes, strict=True)],
            size=rule.get('size'), size_divisor=rule.get('size_divisor'),
            pad_val=self.pad_val, seg_pad_val=self.seg_pad_val)
        if samples:
            samples = [part['data_samples'][0] for part in alone]
            for sample, info in zip(samples, padded, strict=True):
                sample.set_metainfo(info)
        return {'inputs': inputs, 'data_samples': samples}


#: Keys of metainfo with sizes of the whole padded image.
_PADDED_SIZES = 'pad_shape', 'batch_input_shape'


class EncoderDecoder(MMSegEncoderDecoder):
    """mmseg's EncoderDecoder (same arguments) for batches of images of several sizes.

    Its sliding windows cover the pixels of each image, so an image in a padded batch has the same
    result as in a batch of one, with any backbone and head. mmseg lays the windows over the batch
    with its padding, and overwrites the first sample's ``img_shape`` with that of a window.
    """

    def slide_inference(self, inputs: Tensor, batch_img_metas: list[dict]) -> Tensor:
        """Logits (B, num_classes, H, W) of images (B, C, H, W), zero on padding.

        Args:
            inputs: the batch; its ``img_shapes`` are the images' sizes; without them there is no
                padding.
            batch_img_metas: one dict for each image; they are not changed.
        """
        # mmseg stores the size of a window as 'img_shape' of the first image. Heads such as
        # Mask2Former's would prefer the size of the padded image, and read every image's.
        metas = [{key: value for key, value in meta.items() if key not in _PADDED_SIZES}
                 for meta in batch_img_metas]
        full_hw = (inputs.shape[-2], inputs.shape[-1])
        shapes = getattr(inputs, 'img_shapes', None) or [full_hw] * len(inputs)
        if all(tuple(shape) == full_hw for shape in shapes):
            same = [metas[0]] * len(inputs)
            return super().slide_inference(inputs, same)
        logits = []
        for image, meta, (height, width) in zip(inputs, metas, shapes, strict=True):
            alone = super().slide_inference(image[None, :, :height, :width], [meta])
            logits.append(pad_map(alone, full_hw))
        return torch.cat(logits)
