"""What measures of padding share: images alone and in padded batches, and how far things move."""
from __future__ import annotations

import argparse
import contextlib
import copy
import io
from typing import Any

import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from torch import Tensor, nn

import mmposenc  # noqa: F401  (before mmdet and mmseg)
from mmposenc.engine import override
from mmposenc.padding import keep_padding_out

#: What is compared: padding kept out of the whole model, of the backbone alone, of neither.
SETTINGS = ('KeepPaddingOut', 'mask_padding', 'neither')


def arguments(doc: str | None, checkpoint: str | None = None) -> argparse.ArgumentParser:
    """What every measure takes; ``checkpoint='?'`` takes none too."""
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config')
    parser.add_argument('checkpoint', nargs=checkpoint)
    parser.add_argument('--pad', type=float, nargs='+', default=[1.28, 1.6])
    return parser


def masks(cfg: Config) -> bool:
    """Whether the backbone is one that can keep padding out by itself."""
    return str(cfg.model.backbone.type).startswith('mmposenc.')


def build(cfg: Config, checkpoint: str | None, setting: str | None = None) -> nn.Module:
    """The model in eval mode, with one of the settings; None leaves the config as it is. Weights
    are random without a checkpoint."""
    from mmengine.registry import MODELS
    override(cfg, {'model.backbone.init_cfg': None})
    if setting is not None and masks(cfg):
        override(cfg, {'model.backbone.mask_padding': setting != 'neither'})
    model = MODELS.build(cfg.model).eval()
    if checkpoint is None:
        model.init_weights()
    else:
        file = torch.load(checkpoint, map_location='cpu', weights_only=False)
        # With EMAHook, 'state_dict' is the average of the weights.
        model.load_state_dict(file.get('state_dict', file))
    return keep_padding_out(model) if setting == 'KeepPaddingOut' else model


def batch_of(dataset: Any, index: int, factor: float) -> list[dict[str, Any]]:
    """An image, and where there is a factor the next one enlarged by it, so that the first is
    padded."""
    item = dataset[index]
    return [item, enlarged(dataset[(index + 1) % len(dataset)], factor)] if factor else [item]


def enlarged(item: dict[str, Any], factor: float) -> dict[str, Any]:
    """A sample resized, to be the larger neighbour in a batch."""
    image = item['inputs']
    size = [round(side * factor) for side in image.shape[-2:]]
    resized = nn.functional.interpolate(image[None].float(), size, mode='bilinear')[0]
    sample = copy.deepcopy(item['data_samples'])
    sample.set_metainfo({'img_shape': tuple(size)})  # nothing else of it is read
    return {'inputs': resized.round().to(image.dtype), 'data_samples': sample}


def preprocessed(model: nn.Module, items: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch as the model takes it; samples are copied, predictions are written to them."""
    return model.data_preprocessor(  # type: ignore[no-any-return, operator]
        {'inputs': [item['inputs'] for item in items],
         'data_samples': [copy.deepcopy(item['data_samples']) for item in items]}, False)


def sides(backbone: nn.Module) -> list[int]:
    """Pixels of a cell's side in each of a backbone's maps, told by a picture: ``strides`` of
    mmdet's and mmseg's backbones are of each stage, not of its map."""
    side = 448  # a multiple of 64 and of 14
    with torch.no_grad():
        return [side // level.shape[-1] for level in backbone(torch.ones(1, 3, side, side))]


def cropped(level: Tensor, image_hw: tuple[int, int], side: int) -> Tensor:
    """Cells of a map (C, H, W) that the image reaches, cells being ``side`` pixels wide."""
    return level[:, :-(-image_hw[0] // side), :-(-image_hw[1] // side)]


def difference(alone: Tensor, padded: Tensor, image_hw: tuple[int, int], side: int) -> float:
    """Largest difference of two maps on the image's cells, relative to the largest value."""
    alone, padded = (cropped(level, image_hw, side) for level in (alone, padded))
    return float((alone - padded).abs().max() / alone.abs().max())


class Moves:
    """How far boxes (N, 4), and their scores (N,), lie from those of the image alone; of boxes that
    score at least ``min_score`` there."""

    def __init__(self, min_score: float) -> None:
        self.min_score = min_score
        self._boxes: list[Tensor] = []
        self._scores: list[Tensor] = []

    def add(self, alone: tuple[Tensor, Tensor], padded: tuple[Tensor, Tensor]) -> None:
        """Boxes and scores of one image."""
        keep = alone[1] >= self.min_score
        self._boxes.append((alone[0] - padded[0])[keep].abs().amax(1))
        self._scores.append((alone[1] - padded[1])[keep].abs())

    def summary(self) -> tuple[int, list[float], list[float]]:
        """Boxes counted; median, 99 % and maximum of their distances in pixels; median and maximum
        of the changes of their scores. NaN where there is no box."""
        boxes, scores = torch.cat(self._boxes), torch.cat(self._scores)
        count = len(boxes)
        if not count:
            boxes = scores = torch.full((1,), float('nan'))
        return (count, [float(x) for x in (boxes.median(), boxes.quantile(0.99), boxes.max())],
                [float(x) for x in (scores.median(), scores.max())])


def average_precision(cfg: Config, dataset: Any, samples: list[Any]) -> tuple[float, float]:
    """COCO AP and AP50 of predicted samples, over the whole data set."""
    with contextlib.redirect_stdout(io.StringIO()):
        evaluator = Evaluator(cfg.test_evaluator)
        evaluator.dataset_meta = dataset.metainfo
        evaluator.process(samples)
        metrics = evaluator.evaluate(len(dataset))
    return metrics['coco/bbox_mAP'], metrics['coco/bbox_mAP_50']
