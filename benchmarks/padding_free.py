"""What KeepPaddingOut costs: a prediction with it and without it, paired.

    python benchmarks/padding_free.py [--case 'RetinaNet mixed'] [--repeats 5]

mmdet's RetinaNet on a ResNet-50 and mmseg's Semantic FPN, two images: of one size (where there is
no padding), and of two, the second of which fills 0.8 of the height and 0.9 of the width.
"""
from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from measure import Run, add_arguments, header, model_step, paired_times, parse, row
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from torch import Tensor, nn

import mmposenc  # noqa: F401  (before mmdet)
from mmposenc.padding import keep_padding_out

CONFIGS = {'RetinaNet': ('mmdet', 'retinanet/retinanet_r50_fpn_1x_coco.py'),
           'Semantic FPN': ('mmseg', 'sem_fpn/fpn_r50_4xb4-160k_ade20k-512x512.py')}
SIZES = {'RetinaNet': (480, 640), 'Semantic FPN': (512, 512)}
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


def samples(name: str, sizes: list[tuple[int, int]]) -> list[Any]:
    """The sample of each image, without targets."""
    if name == 'RetinaNet':
        from mmdet.structures import DetDataSample as Sample
    else:
        from mmseg.structures import SegDataSample as Sample
    return [Sample(metainfo=dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0),
                                 batch_input_shape=sizes[0], pad_shape=sizes[0]))
            for size in sizes]


def prediction(model: nn.Module, batch: Tensor, data: list[Any], args: argparse.Namespace) -> Run:
    """A function that predicts the batch."""
    return model_step(model, lambda: model.predict(batch, copy.deepcopy(data)), 'inference',
                      args.device, getattr(torch, args.dtype))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, repeats=5)
    parser.add_argument('--case', choices=CASES, nargs='+', default=CASES)
    args = parse(parser, argv)
    print(header(args))
    print('| model, images | without, s | with, of that |\n|---|---|---|')
    for case in args.case:
        name = next(name for name in CONFIGS if case.startswith(name))
        full = (64, 96) if args.tiny else SIZES[name]
        second = full if 'one size' in case else (int(.8 * full[0]), int(.9 * full[1]))
        plain = build(name).to(args.device)
        kept = keep_padding_out(copy.deepcopy(plain))
        batch = torch.randn(2, 3, *full, device=args.device)
        batch[1, :, second[0]:], batch[1, :, :, second[1]:] = 0, 0
        data = samples(name, [full, second])
        runs = {'without': prediction(plain, batch, data, args),
                'with': prediction(kept, batch, data, args)}
        with row(case):
            times = paired_times(runs, args.repeats, args.device)
            print(f'| {case} | {times["without"].seconds:.2f} | {times["with"].ratio:.2f} |',
                  flush=True)


if __name__ == '__main__':
    main()
