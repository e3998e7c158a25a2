"""mmseg's data preprocessor, with the images' sizes noted on the batch."""
from typing import Any

from mmseg.models import SegDataPreProcessor as MMSegDataPreProcessor
from mmseg.utils import stack_batch

from .recording import note_img_shapes


class SegDataPreProcessor(MMSegDataPreProcessor):
    """mmseg's SegDataPreProcessor (same arguments), whose batches carry their images' sizes."""

    def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
        """As mmseg's, but images of several sizes may form a batch in a test too: they are padded
        to the largest. The batch's ``img_shapes`` are the samples' sizes before batching."""
        shapes = [tuple(image.shape[-2:]) for image in data['inputs']]
        if training or len(set(shapes)) == 1:
            return note_img_shapes(super().forward(data, training), shapes)
        return note_img_shapes(self._padded_test_batch(data, shapes), shapes)

    def _padded_test_batch(self, data: dict[str, Any], shapes: list[tuple[int, ...]]
                           ) -> dict[str, Any]:
        """A test batch of several sizes; each sample says what of it is padding."""
        samples = data.get('data_samples')
        # mmseg's own code converts channels and normalises one image; its padding is cut off.
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
