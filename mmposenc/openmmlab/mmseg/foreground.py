"""Segmentors with one channel, which tell foreground from background."""
from __future__ import annotations

import torch
from mmengine.structures import PixelData
from mmseg.models import SegTTAModel as _SegTTAModel
from mmseg.structures import SegDataSample
from torch import nn


def foreground_threshold(model: nn.Module) -> float | None:
    """The probability (sigmoid of the logit) above which a segmentor with one channel takes a pixel
    as foreground. None for a segmentor with a channel for each class, of which the largest wins.

    Args:
        model: a segmentor of mmseg.
    """
    head = getattr(model, 'decode_head', None)
    head = head[-1] if isinstance(head, nn.ModuleList) else head
    if getattr(head, 'out_channels', None) != 1 or not hasattr(head, 'threshold'):
        return None
    return float(head.threshold)


class SegTTAModel(_SegTTAModel):
    """mmseg's SegTTAModel (same arguments), right for a segmentor of one channel too.

    Its views have probabilities where others have logits. mmseg takes the sigmoid of these again,
    which is above one half for every pixel. Here they are averaged as they are.
    """

    def merge_preds(self, data_samples_list: list[list[SegDataSample]]) -> list[SegDataSample]:
        """Merge the predictions for the views of each image."""
        threshold = foreground_threshold(self.module)
        if threshold is None:
            return super().merge_preds(data_samples_list)
        merged = []
        for views in data_samples_list:
            mean = torch.stack([view.seg_logits.data for view in views]).mean(0)
            views[0].set_data({'seg_logits': PixelData(data=mean),
                               'pred_sem_seg': PixelData(data=(mean > threshold).long())})
            merged.append(views[0])
        return merged
