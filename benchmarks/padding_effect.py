"""How far a detector's boxes move when an image lies in a padded batch instead of alone.

    python benchmarks/padding_effect.py CONFIG CHECKPOINT [--pad 1.28 1.6] [--images 12]

Each test image goes through the detector alone, and as the first of two where the second is
``--pad`` times as large: with padding kept out of the whole model (``KeepPaddingOut``), out of the
backbone (``mask_padding``, of a backbone of this project), and of neither (same weights). Compared
are the backbone's maps, the boxes and scores of every anchor that scores at least ``--score``
alone, and COCO AP. What is left with ``mask_padding`` comes from FPN and head, whose convolutions
(and GroupNorm, where they have it) see the padding.
"""
from __future__ import annotations

import argparse
import contextlib
import copy
import io
from typing import Any

import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from torch import Tensor, nn

import mmposenc  # noqa: F401  (before mmdet)
from mmposenc.engine import load_config, override
from mmposenc.padding import keep_padding_out

#: What is compared: neither, the backbone alone, the whole model.
SETTINGS = ('KeepPaddingOut', 'mask_padding', 'neither')


def masks(cfg: Config) -> bool:
    """Whether the backbone is one that can keep padding out by itself."""
    return str(cfg.model.backbone.type).startswith('mmposenc.')


def build(cfg: Config, checkpoint: str, setting: str) -> nn.Module:
    """The model in eval mode, with one of the settings."""
    from mmengine.registry import MODELS
    override(cfg, {'model.backbone.init_cfg': None})
    if masks(cfg):
        override(cfg, {'model.backbone.mask_padding': setting != 'neither'})
    model = MODELS.build(cfg.model)
    weights = torch.load(checkpoint, map_location='cpu', weights_only=False)
    model.load_state_dict(weights.get('state_dict', weights))
    return keep_padding_out(model.eval()) if setting == 'KeepPaddingOut' else model.eval()


def enlarged(item: dict[str, Any], factor: float) -> dict[str, Any]:
    """A sample resized, to be the larger neighbour in a batch."""
    image = item['inputs']
    size = [round(side * factor) for side in image.shape[-2:]]
    resized = nn.functional.interpolate(image[None].float(), size, mode='bilinear')[0]
    sample = copy.deepcopy(item['data_samples'])
    sample.set_metainfo({'img_shape': tuple(size)})  # nothing else of it is read
    return {'inputs': resized.round().to(image.dtype), 'data_samples': sample}


class Run:
    """One pass of the detector over a batch; everything kept is of its first image."""

    def __init__(self, model: nn.Module, items: list[dict[str, Any]]) -> None:
        data = model.data_preprocessor({'inputs': [item['inputs'] for item in items],
                                        'data_samples': [copy.deepcopy(item['data_samples'])
                                                         for item in items]}, False)
        maps, outs = [], []
        handles = [part.register_forward_hook(lambda module, args, out, kept=kept: kept.append(out))
                   for part, kept in ((model.backbone, maps), (model.bbox_head, outs))]
        self.sample = model(**data, mode='predict')[0]
        for handle in handles:
            handle.remove()
        self.maps = [m[0] for m in maps[0]]
        self.sides = [-(-data['inputs'].shape[-2] // level.shape[-2]) for level in self.maps]
        self.outs = [[level[0] for level in kind] for kind in outs[0]]


def cropped(level: Tensor, image_hw: tuple[int, int], side: int) -> Tensor:
    """Cells of a map (C, H, W) that the image reaches, cells being ``side`` pixels wide."""
    return level[:, :-(-image_hw[0] // side), :-(-image_hw[1] // side)]


def anchor_boxes(model: nn.Module, run: Run, image_hw: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Boxes (N, 4) and best scores (N,) of all anchors in the image."""
    head = model.bbox_head
    boxes, scores = [], []
    strides = [stride[0] for stride in head.prior_generator.strides]
    levels = list(zip(*run.outs, strides, strict=True))
    sizes = [cropped(score, image_hw, stride).shape[-2:] for score, _, stride in levels]
    priors = head.prior_generator.grid_priors(sizes, device=run.outs[0][0].device)
    for (score, box, stride), prior in zip(levels, priors, strict=True):
        score = cropped(score, image_hw, stride).permute(1, 2, 0).reshape(len(prior), -1)
        box = cropped(box, image_hw, stride).permute(1, 2, 0).reshape(len(prior), 4)
        scores.append(score.sigmoid().amax(1))
        boxes.append(head.bbox_coder.decode(prior, box))
    return torch.cat(boxes), torch.cat(scores)


def average_precision(cfg: Config, dataset: Any, samples: list[Any]) -> tuple[float, float]:
    """COCO AP and AP50 of predicted samples, over the whole data set."""
    with contextlib.redirect_stdout(io.StringIO()):
        evaluator = Evaluator(cfg.test_evaluator)
        evaluator.dataset_meta = dataset.metainfo
        evaluator.process(samples)
        metrics = evaluator.evaluate(len(dataset))
    return metrics['coco/bbox_mAP'], metrics['coco/bbox_mAP_50']


@torch.no_grad()
def measure(cfg: Config, model: nn.Module, dataset: Any, factor: float, num_images: int,
            min_score: float) -> str:
    """One row of the table."""
    moved, changed, difference, samples = [], [], 0.0, []
    for index in range(len(dataset)):
        item = dataset[index]
        batch = [item]
        if factor:
            batch.append(enlarged(dataset[(index + 1) % len(dataset)], factor))
        padded = Run(model, batch)
        samples.append(padded.sample.to_dict())
        if index >= num_images:
            continue
        alone, image_hw = Run(model, [item]), tuple(item['inputs'].shape[-2:])
        for stage, (a, b) in enumerate(zip(alone.maps, padded.maps, strict=True)):
            a, b = (cropped(m, image_hw, padded.sides[stage]) for m in (a, b))
            difference = max(difference, float((a - b).abs().max() / a.abs().max()))
        boxes_a, scores_a = anchor_boxes(model, alone, image_hw)
        boxes_b, scores_b = anchor_boxes(model, padded, image_hw)
        keep = scores_a >= min_score
        moved.append((boxes_a - boxes_b)[keep].abs().amax(1))
        changed.append((scores_a - scores_b)[keep].abs())
    distance, change = torch.cat(moved), torch.cat(changed)
    ap, ap50 = average_precision(cfg, dataset, samples)
    return (f'{difference:8.0e} {len(distance):8d} {distance.median():7.2f} '
            f'{distance.quantile(0.99):7.2f} {distance.max():7.2f} {change.median():8.4f} '
            f'{change.max():7.4f} {ap:7.3f} {ap50:7.3f}')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config')
    parser.add_argument('checkpoint')
    parser.add_argument('--pad', type=float, nargs='+', default=[1.28, 1.6])
    parser.add_argument('--images', type=int, default=12, help='compared image by image')
    parser.add_argument('--score', type=float, default=0.3, help='anchors compared')
    args = parser.parse_args()
    torch.manual_seed(0)
    init_default_scope('mmdet')
    MMLogger.get_current_instance().setLevel('ERROR')
    import mmdet.models  # noqa: F401
    from mmdet.registry import DATASETS
    print('                       maps,  anchors    box moved by, pixels    score changed      COCO'
          '\nsetting          pad  rel. max compared  median     99%     max   median     max'
          '      AP    AP50')
    for setting in SETTINGS:
        cfg = load_config(args.config)
        if setting == 'mask_padding' and not masks(cfg):
            continue
        with contextlib.redirect_stdout(io.StringIO()):
            dataset = DATASETS.build(cfg.test_dataloader.dataset)
        model = build(cfg, args.checkpoint, setting)
        for factor in (0.0, *args.pad):
            row = measure(cfg, model, dataset, factor, args.images, args.score)
            print(f'{setting:14s} {factor or "none":>5} {row}', flush=True)


if __name__ == '__main__':
    main()
