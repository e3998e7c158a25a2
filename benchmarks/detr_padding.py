"""What a DETR sees of the padding: an image alone, and as the smaller of two in a batch.

    python benchmarks/detr_padding.py CONFIG [CHECKPOINT] [--pad 1.28 1.6] [--images 20]

Compared are the backbone's last map, the encoder's memory (both relative to the largest value, on
the image's own cells), the boxes of every object query that scores at least ``--score`` alone, and
COCO AP of the padded batches. Weights are random without a checkpoint.
"""
from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope
from padded_batches import (
    Moves,
    arguments,
    average_precision,
    batch_of,
    build,
    difference,
    preprocessed,
)
from torch import nn

from mmposenc.engine import load_config


def run(model: nn.Module, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the first image: backbone map, memory as a map, scores and boxes of every query."""
    data = preprocessed(model, items)
    images, samples = data['inputs'], data['data_samples']
    seen = model.backbone(images)
    maps = model.neck(seen)
    encoder_inputs, decoder_inputs = model.pre_transformer(maps, samples)
    encoded = model.forward_encoder(**encoder_inputs)
    more, _ = model.pre_decoder(**encoded)
    states = model.forward_decoder(**decoder_inputs, **more)
    outputs = model.bbox_head(**states)
    metas = [sample.metainfo for sample in samples]
    samples[0].pred_instances = model.bbox_head.predict_by_feat(
        *outputs, batch_img_metas=metas, rescale=True)[0]
    height, width = samples[0].metainfo['img_shape'][:2]
    boxes = outputs[1][-1][0]
    scores = outputs[0][-1][0]
    if model.bbox_head.loss_cls.use_sigmoid:
        scores = scores.sigmoid()
    else:
        scores = scores.softmax(-1)[:, :-1]
    hw = maps[-1].shape[-2:]
    memory = encoded['memory'][0][-hw[0] * hw[1]:].unflatten(0, hw).permute(2, 0, 1)
    return dict(sample=samples[0], map=seen[-1][0], memory=memory, scores=scores.amax(1),
                boxes=boxes * boxes.new_tensor([width, height, width, height]))


@torch.no_grad()
def measure(model: nn.Module, cfg: Any, dataset: Any, factor: float, num_images: int,
            min_score: float) -> str:
    """One row of the table."""
    moves, samples = Moves(min_score), []
    seen = memory = 0.0
    for index in range(len(dataset)):
        batch = batch_of(dataset, index, factor)
        padded = run(model, batch)
        samples.append(padded['sample'].to_dict())
        if index >= num_images:
            continue
        alone, hw = run(model, batch[:1]), tuple(batch[0]['inputs'].shape[-2:])
        side = 2 ** round(float(torch.tensor(hw[0] / alone['map'].shape[-2]).log2()))
        seen = max(seen, difference(alone['map'], padded['map'], hw, side))
        memory = max(memory, difference(alone['memory'], padded['memory'], hw, side))
        moves.add(*((each['boxes'], each['scores']) for each in (alone, padded)))
    count, distances, changes = moves.summary()
    ap, ap50 = average_precision(cfg, dataset, samples)
    return (f'| {factor or "alone"} | {seen:.0e} | {memory:.0e} | {count} | '
            f'{", ".join(f"{x:.2f}" for x in distances)} | '
            f'{", ".join(f"{x:.4f}" for x in changes)} | {ap:.3f}, {ap50:.3f} |')


def main() -> None:
    parser = arguments(__doc__, checkpoint='?')
    parser.add_argument('--images', type=int, default=20, help='compared image by image')
    parser.add_argument('--score', type=float, default=0.3, help='queries compared')
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    init_default_scope('mmdet')
    MMLogger.get_current_instance().setLevel('ERROR')
    import mmdet.models  # noqa: F401
    from mmdet.registry import DATASETS
    cfg = load_config(args.config)
    with contextlib.redirect_stdout(io.StringIO()):
        dataset = DATASETS.build(cfg.test_dataloader.dataset)
    model = build(cfg, args.checkpoint)
    print('| batch | backbone | memory | queries | box moved by, pixels: median, 99%, max | '
          'score changed by: median, max | AP, AP50 |\n|---|---|---|---|---|---|---|')
    for factor in (0.0, *args.pad):
        print(measure(model, cfg, dataset, factor, args.images, args.score), flush=True)


if __name__ == '__main__':
    main()
