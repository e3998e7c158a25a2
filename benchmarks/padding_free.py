"""What KeepPaddingOut costs: a training step and a prediction with it and without it, paired.

    python benchmarks/padding_free.py [--case 'RetinaNet mixed'] [--repeats 5]
    python benchmarks/padding_free.py --case 'RetinaNet mixed' --compile --task training
    python benchmarks/padding_free.py --device cuda      # never tried

mmdet's RetinaNet on a ResNet-50 and mmseg's Semantic FPN, two images: of one size (where nothing
has to be kept out), and of two, the second of which fills .8 of the height and .9 of the width.
With --compile the model with it is compiled; behind the times stand how long its first training
step took, and how far its gradients are from those of the same model uncompiled.
"""
from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path
from typing import Any

import torch
from measure import Run, add_arguments, header, model_step, paired_times, parse, row
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import InstanceData, PixelData
from torch import Tensor, nn

import mmposenc  # noqa: F401  (before mmdet)
from mmposenc.engine.training.compiling import compile_regions
from mmposenc.padding import keep_padding_out

CONFIGS = {'RetinaNet': ('mmdet', 'retinanet/retinanet_r50_fpn_1x_coco.py'),
           'Semantic FPN': ('mmseg', 'sem_fpn/fpn_r50_4xb4-160k_ade20k-512x512.py')}
SIZES = {'RetinaNet': (480, 640), 'Semantic FPN': (512, 512)}
TASKS = ('training', 'inference')
CASES = [f'{name} {sizes}' for name in CONFIGS for sizes in ('one size', 'mixed')]


def build(name: str) -> nn.Module:
    """The model of mmdet's or mmseg's own config, random weights, one process."""
    scope, path = CONFIGS[name]
    package = __import__(f'{scope}.models').__path__[0]
    model = Config.fromfile(Path(package) / '.mim' / 'configs' / path).model
    model.backbone.init_cfg = None
    if 'pretrained' in model:
        model.pretrained = None
    if scope == 'mmseg':
        model.backbone.norm_cfg = model.decode_head.norm_cfg = dict(type='BN')
    with DefaultScope.overwrite_default_scope(scope):
        torch.manual_seed(0)
        built: nn.Module = MODELS.build(model)
    return built


def samples(name: str, sizes: list[tuple[int, int]], device: str) -> list[Any]:
    """Ten boxes, or a label map, of each image."""
    found = []
    for height, width in sizes:
        info = dict(img_shape=(height, width), ori_shape=(height, width), scale_factor=(1.0, 1.0),
                    batch_input_shape=sizes[0], pad_shape=sizes[0])
        if name == 'RetinaNet':
            from mmdet.structures import DetDataSample
            sample = DetDataSample(metainfo=info)
            corners = torch.rand(10, 2, device=device) * 0.5
            scale = torch.tensor([width, height] * 2, device=device)
            sample.gt_instances = InstanceData(
                bboxes=torch.cat((corners, corners + 0.3), 1) * scale,
                labels=torch.zeros(10, dtype=torch.long, device=device))
        else:
            from mmseg.structures import SegDataSample
            sample = SegDataSample(metainfo=info)
            sample.gt_sem_seg = PixelData(data=torch.zeros(1, *sizes[0], dtype=torch.long,
                                                           device=device))
        found.append(sample)
    return found


def loss_of(model: nn.Module, batch: Tensor, data: list[Any]) -> Tensor:
    """The sum of the losses."""
    losses = model.loss(batch, copy.deepcopy(data))
    return sum(sum(value) if isinstance(value, list) else value
               for key, value in losses.items() if 'loss' in key)


def runs(model: nn.Module, batch: Tensor, data: list[Any], args: argparse.Namespace
         ) -> dict[str, Run]:
    """A training step and a prediction."""
    dtype = getattr(torch, args.dtype)
    return {'training': model_step(model, lambda: loss_of(model, batch, data), 'training',
                                   args.device, dtype),
            'inference': model_step(model, lambda: model.predict(batch, copy.deepcopy(data)),
                                    'inference', args.device, dtype)}


def first_step(compiled: nn.Module, eager: nn.Module, batch: Tensor, data: list[Any]) -> str:
    """Seconds that compiling takes, and the largest difference of a gradient over the largest value
    of its parameter's, in float32."""
    start, found = time.perf_counter(), []
    for model in (compiled, eager):
        weights = [p for p in model.train().parameters() if p.requires_grad]
        found.append(torch.autograd.grad(loss_of(model, batch, data), weights))
        if model is compiled:
            taken = time.perf_counter() - start
    apart = max(float((one - other).abs().max() / other.abs().max().clamp(min=1e-12))
                for one, other in zip(*found, strict=True))
    return f'{taken:.0f} s, {apart:.0e}'


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, repeats=5)
    parser.add_argument('--case', choices=CASES, nargs='+', default=CASES)
    parser.add_argument('--task', choices=TASKS, nargs='+', default=TASKS)
    parser.add_argument('--compile', action='store_true', help='what --compile makes of the model '
                        'with it')
    args = parse(parser, argv)
    print(header(args))
    print('| model, images | | without, s | with, of that | first compiled step, differs by |\n'
          '|---|---|---|---|---|')
    for case in args.case:
        name = next(name for name in CONFIGS if case.startswith(name))
        full = (64, 96) if args.tiny else SIZES[name]
        second = full if 'one size' in case else (int(.8 * full[0]), int(.9 * full[1]))
        plain = build(name).to(args.device)
        kept = keep_padding_out(copy.deepcopy(plain))
        batch = torch.randn(2, 3, *full, device=args.device)
        batch[1, :, second[0]:], batch[1, :, :, second[1]:] = 0, 0
        data = samples(name, [full, second], args.device)
        eager = copy.deepcopy(kept)
        if args.compile:
            compile_regions(kept, dynamic=True)
        ours, theirs = (runs(model, batch, data, args) for model in (kept, plain))
        for task in args.task:
            with row(case, task):  # which forgets what was compiled before
                first = (first_step(kept, eager, batch, data)
                         if args.compile and task == 'training' else '')
                times = paired_times({'without': theirs[task], 'with': ours[task]}, args.repeats,
                                     args.device)
                print(f'| {case} | {task} | {times["without"].seconds:.2f} '
                      f'| {times["with"].ratio:.2f} | {first} |', flush=True)


if __name__ == '__main__':
    main()
