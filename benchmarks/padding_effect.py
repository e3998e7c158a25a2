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

import contextlib
import io
from typing import Any

import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from padded_batches import (
    SETTINGS,
    Moves,
    arguments,
    average_precision,
    batch_of,
    build,
    cropped,
    difference,
    masks,
    preprocessed,
)
from torch import Tensor, nn

from mmposenc.engine import load_config


class Run:
    """One pass of the detector over a batch; everything kept is of its first image."""

    def __init__(self, model: nn.Module, items: list[dict[str, Any]]) -> None:
        data = preprocessed(model, items)
        maps, outs = [], []
        handles = [part.register_forward_hook(lambda module, args, out, kept=kept: kept.append(out))
                   for part, kept in ((model.backbone, maps), (model.bbox_head, outs))]
        self.sample = model(**data, mode='predict')[0]
        for handle in handles:
            handle.remove()
        self.maps = [m[0] for m in maps[0]]
        self.sides = [-(-data['inputs'].shape[-2] // level.shape[-2]) for level in self.maps]
        self.outs = [[level[0] for level in kind] for kind in outs[0]]


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


@torch.no_grad()
def measure(cfg: Config, model: nn.Module, dataset: Any, factor: float, num_images: int,
            min_score: float) -> str:
    """One row of the table."""
    moves, seen, samples = Moves(min_score), 0.0, []
    for index in range(len(dataset)):
        batch = batch_of(dataset, index, factor)
        padded = Run(model, batch)
        samples.append(padded.sample.to_dict())
        if index >= num_images:
            continue
        alone, image_hw = Run(model, batch[:1]), tuple(batch[0]['inputs'].shape[-2:])
        seen = max(seen, *(difference(*maps, image_hw, side) for *maps, side in zip(
            alone.maps, padded.maps, padded.sides, strict=True)))
        moves.add(anchor_boxes(model, alone, image_hw), anchor_boxes(model, padded, image_hw))
    count, (median, most, furthest), (change, largest) = moves.summary()
    ap, ap50 = average_precision(cfg, dataset, samples)
    return (f'{seen:8.0e} {count:8d} {median:7.2f} {most:7.2f} {furthest:7.2f} {change:8.4f} '
            f'{largest:7.4f} {ap:7.3f} {ap50:7.3f}')


def main() -> None:
    parser = arguments(__doc__)
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
