"""How far mIoU moves when an image lies in a padded batch instead of alone.

    python benchmarks/padding_miou.py CONFIG CHECKPOINT [--pad 1.28 1.6] [--images 101]

Each test image goes through the segmentor alone, and as the first of two where the second is
``--pad`` times as large: with padding kept out of the whole model (``KeepPaddingOut``), out of the
backbone (``mask_padding``), and of neither (same weights). Compared are the backbone's maps, the
label of every pixel, and mIoU. What is left with ``mask_padding`` comes from FPN and head, whose
convolutions and norms see the padding. ``--slide`` tests with windows
instead, which stay inside each image.
"""
from __future__ import annotations

import logging
from typing import Any

import torch
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger
from mmengine.registry import DATASETS, init_default_scope
from padded_batches import (
    SETTINGS,
    arguments,
    batch_of,
    build,
    difference,
    preprocessed,
    sides,
)
from torch import Tensor, nn

from mmposenc.engine import load_config, override


def run(model: nn.Module, items: list[dict[str, Any]]) -> tuple[list[Tensor], Any]:
    """Maps (C, H, W) of the first image of a batch, and its sample with the prediction."""
    maps: list[Tensor] = []

    def keep(module: nn.Module, args: Any, outs: tuple[Tensor, ...]) -> None:
        maps[:] = [out[0] for out in outs]
    handle = model.backbone.register_forward_hook(keep)
    samples = model(**preprocessed(model, items), mode='predict')
    handle.remove()
    return maps, samples[0]


@torch.no_grad()
def measure(cfg: Any, model: nn.Module, dataset: Any, factor: float, num_images: int,
            whole: bool) -> str:
    """One row of the table."""
    evaluator = Evaluator(cfg.test_evaluator)
    evaluator.dataset_meta = dataset.metainfo
    cells = sides(model.backbone) if whole else []
    seen, changed, pixels = 0.0, 0, 0
    for index in range(num_images):
        batch = batch_of(dataset, index, factor)
        alone_maps, alone = run(model, batch[:1])
        maps, sample = run(model, batch) if factor else (alone_maps, alone)
        hw_shape = tuple(batch[0]['inputs'].shape[-2:])
        if whole:
            seen = max(seen, *(difference(*levels, hw_shape, side) for *levels, side in zip(
                alone_maps, maps, cells, strict=True)))
        labels, expected = (each.pred_sem_seg.data for each in (sample, alone))
        changed += int((labels != expected).sum())
        pixels += labels.numel()
        evaluator.process([sample.to_dict()])
    metrics = evaluator.evaluate(num_images)
    maps_text = f'{seen:8.0e}' if whole else '       -'
    return f'{maps_text} {100 * changed / pixels:12.3f} {metrics["mIoU"]:8.2f}'


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument('--settings', nargs='+', choices=SETTINGS, default=SETTINGS)
    parser.add_argument('--images', type=int, help='the first so many; default all')
    parser.add_argument('--data-root', help='of the test data; default as in the config')
    parser.add_argument('--slide', type=int, metavar='SIDE', help='windows of this side, half '
                        'overlapping')
    args = parser.parse_args()
    init_default_scope('mmseg')
    MMLogger.get_instance('padding', log_level='ERROR')
    logging.disable(logging.WARNING)
    import mmseg.datasets  # noqa: F401
    import mmseg.evaluation  # noqa: F401
    import mmseg.models  # noqa: F401
    print('                       maps,  pixels with\n'
          'setting          pad  rel. max  other label, %     mIoU')
    for setting in args.settings:
        cfg = load_config(args.config)
        if args.data_root:
            override(cfg, {'test_dataloader.dataset.data_root': args.data_root})
        if args.slide:
            cfg.model.test_cfg = dict(mode='slide', crop_size=(args.slide,) * 2,
                                      stride=(args.slide // 2,) * 2)
        dataset = DATASETS.build(cfg.test_dataloader.dataset)
        model = build(cfg, args.checkpoint, setting)
        for factor in (0.0, *args.pad):
            row = measure(cfg, model, dataset, factor, args.images or len(dataset),
                          whole=not args.slide)
            print(f'{setting:14s} {factor or "none":>5} {row}', flush=True)


if __name__ == '__main__':
    main()
