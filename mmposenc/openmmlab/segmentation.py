"""mmseg's data preprocessor, with the images' sizes noted on the batch."""
from __future__ import annotations

from typing import Any

import torch
from mmengine.evaluator import DumpResults
from mmseg.evaluation import IoUMetric
from mmseg.models import EncoderDecoder as MMSegEncoderDecoder
from mmseg.models import SegDataPreProcessor as MMSegDataPreProcessor
from mmseg.utils import stack_batch
from torch import Tensor

from ..functional.image_sizes import note_img_shapes
from ..functional.masking import pad_map


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


# mmseg's EncoderDecoder, whose sliding windows stay inside each image.


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


# Intersection over union by class, as numbers of a test and not only in its log.


class ClassIoUMetric(IoUMetric):
    """mmseg's IoUMetric, whose results have 'IoU.<class>' of each class besides (in %; nan where
    neither labels nor predictions have it)."""

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        """As mmseg's; (intersections, unions, predicted, labelled) pixels by class, an image
        each."""
        metrics: dict[str, float] = super().compute_metrics(results)
        if self.format_only:
            return metrics
        areas = [sum(each) for each in zip(*results, strict=True)]
        for name, both, either in zip(self.dataset_meta['classes'], *areas[:2], strict=True):
            metrics[f'IoU.{name}'] = 100 * float(both) / float(either) if either else float('nan')
        return metrics


# Predictions written to a file for offline evaluation.


class DumpSegResults(DumpResults):
    """mmengine's DumpResults without the logits, which are float maps of every class per image."""

    def process(self, data_batch: Any, predictions: Any) -> None:
        kept = [{key: value for key, value in sample.items() if key != 'seg_logits'}
                for sample in predictions]
        super().process(data_batch, kept)
