"""Whole models against the best peer: training steps and inference, paired.

    python benchmarks/models.py [--case 'DeiT-S 224'] [--batch 8] [--dtype float32 bfloat16]
    python benchmarks/models.py --device cuda --dtype bfloat16 --compile
    pip install transformers; python benchmarks/models.py --case 'RT-DETR-R18 640x640'

Both sides of a backbone hold the same weights and compute the same: drop path is off, and outputs
are compared before anything is timed (an encoding's tables start at zero). A detector's step is its
losses and their gradients, from random weights, the second image of two padded; its inference ends
before boxes are chosen. 'All pairs' is iRPE in the explicit formulation. Half precision is
autocast, weights are float32. '/ first dtype' compares with the same model in the first of
--dtype. --compile adds every model compiled, as rows of their own: this
project's block by block, as --compile of the tools does it, peers as a whole (of detectors:
backbone, neck, encoder).
"""
from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from operator import getitem
from typing import Any, NamedTuple

import torch
from measure import (
    Run,
    add_arguments,
    header,
    model_step,
    paired_times,
    parse,
    peak_memory,
    row,
)
from mmengine.logging import MMLogger
from torch import Tensor, nn

from mmposenc.backbones import PVT, DeiT, Swin, ViT, load_pretrained
from mmposenc.checkpoint import convert
from mmposenc.engine import load_config
from mmposenc.engine.training.compiling import compile_regions

LEARNED = dict(type='mmposenc.LearnedPositionEmbedding')
BILINEAR = dict(LEARNED, interpolation='bilinear')
IRPE = dict(type='mmposenc.IRPE')
#: iRPE-DETR's: contextual, on keys, 9 x 9 buckets.
IRPE_DETR = dict(IRPE, method='product', mode='contextual', rpe_on='k', ratio=2.0)
Models = dict[str, nn.Module]


def pvt(height: int, width: int) -> Models:
    from mmdet.models import PyramidVisionTransformer  # after mmposenc, which lets it import
    peer = PyramidVisionTransformer(num_layers=[2, 2, 2, 2], drop_path_rate=0.0)
    models = {'mmdet': peer,
              'ours': PVT('tiny', pos_encoding=BILINEAR, embed_norm_eps=1e-6, drop_path_rate=0.0)}
    load_pretrained(models['ours'], peer.state_dict())
    return {**models, 'ours, PEG': PVT('tiny', pos_encoding=dict(type='mmposenc.PEG'),
                                       drop_path_rate=0.0)}


def swin(height: int, width: int) -> Models:
    import timm
    peer = timm.create_model('swin_tiny_patch4_window7_224', num_classes=0, drop_path_rate=0.0,
                             img_size=(height, width))
    # timm lets tokens attend to the zeros that fill up the last windows.
    ours = Swin('tiny', pool='gap', drop_path_rate=0.0, mask_window_padding=False)
    load_pretrained(ours, peer.state_dict())
    return {'timm': peer, 'ours': ours}


def deit(height: int, width: int) -> Models:
    import timm
    peer = timm.create_model('deit_small_patch16_224', num_classes=0, drop_path_rate=0.0)
    models = {'timm': peer, 'ours': DeiT('small', pos_encoding=LEARNED)}
    for name, how in (('ours, iRPE k', 'auto'), ('all pairs, iRPE k', 'reference')):
        models[name] = DeiT('small', pos_encoding=LEARNED, rel_pos_encoding=IRPE,
                            implementation=how)
    for name, model in models.items():
        if name != 'timm':
            load_pretrained(model, peer.state_dict(), strict=name == 'ours')
    return models


def windows(height: int, width: int) -> Models:
    """RoPE-ViT, of which all blocks but four attend in windows, as ViTDet's. An image that is one
    window has the features of the whole grid."""
    models = {'whole grid': ViT('rope-vit-small-mixed', pool=None)}
    for side in (14, 16):
        models[f'windows of {side}'] = ViT('rope-vit-small-mixed', pool=None, window_size=side,
                                           global_blocks=(2, 5, 8, 11))
    for model in models.values():
        model.load_state_dict(models['whole grid'].state_dict())
    return models


def detector(cfg: Any) -> nn.Module:
    from mmdet.registry import MODELS
    cfg = copy.deepcopy(cfg)
    cfg.backbone.init_cfg = None
    return MODELS.build(cfg)


def configs(own: str, theirs: str) -> tuple[Any, Any]:
    """Of a detector here, and of mmdet's."""
    import mmdet.models  # noqa: F401
    from mmengine.registry import init_default_scope
    init_default_scope('mmdet')
    return load_config(f'mmposenc::{own}').model, load_config(f'mmdet::{theirs}').model


def detectors(own_name: str, their_name: str, encoding: dict, *attention: str) -> Models:
    """mmdet's detector and ours, also with an encoding in the part of its config whose keys are
    ``attention``."""
    own, theirs = configs(own_name, their_name)
    models = {'mmdet': detector(theirs), 'ours': detector(own)}
    for name, how in (('ours, iRPE k', 'auto'), ('all pairs, iRPE k', 'reference')):
        part = reduce(getitem, attention, own)
        part.update(rel_pos_encoding=encoding, implementation=how)
        models[name] = detector(own)
    return models


def detr(height: int, width: int) -> Models:
    return detectors('detection/detr/detr_r50_8xb2-150e_coco.py', 'detr/detr_r50_8xb2-150e_coco.py',
                     IRPE_DETR, 'encoder', 'layer_cfg', 'self_attn_cfg')


def retinanet(height: int, width: int) -> Models:
    return detectors('detection/pvt/retinanet_pvt-t_fpn_1x_coco.py',
                     'pvt/retinanet_pvt-t_fpn_1x_coco.py', IRPE, 'backbone')


class TransformersDetector(nn.Module):
    """A detector of transformers, called as mmdet's are."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, known: list[Any], mode: str) -> Any:
        from mmdet.structures.bbox import bbox_xyxy_to_cxcywh
        size = images.new_tensor(images.shape[:1:-1] * 2)
        labels = [dict(class_labels=each.gt_instances.labels,
                       boxes=bbox_xyxy_to_cxcywh(each.gt_instances.bboxes) / size)
                  for each in known] if mode == 'loss' else None
        out = self.model(images, labels=labels)
        return out if mode == 'loss' else (out.logits, out.pred_boxes)

    def parse_losses(self, out: Any) -> tuple[Tensor, dict[str, Tensor]]:
        return out.loss, out.loss_dict


def rt_detr(height: int, width: int) -> Models:
    from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig
    from transformers.utils.logging import set_verbosity_error
    set_verbosity_error()
    backbone = RTDetrResNetConfig(depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512],
                                  layer_type='basic', out_features=['stage2', 'stage3', 'stage4'])
    peer = RTDetrForObjectDetection(RTDetrConfig(
        backbone_config=backbone, encoder_in_channels=[128, 256, 512], hidden_expansion=0.5,
        decoder_in_channels=[256, 256, 256], decoder_layers=3, num_labels=80,
        anchor_image_size=None, eval_size=None, freeze_backbone_batch_norms=False))
    for module in peer.modules():
        if isinstance(module, nn.Conv2d):  # Maps vanish by the weights that it starts with.
            nn.init.kaiming_normal_(module.weight)
    own = load_config('mmposenc::detection/rt_detr/rt-detr_r18vd_4xb4-72e_coco.py').model
    own.data_preprocessor = None
    models = {'transformers': TransformersDetector(peer), 'ours': detector(own)}
    models['ours'].load_state_dict(convert(peer.state_dict(), 'huggingface-rt-detr'))
    images = torch.rand(1, 3, height, width)
    with torch.no_grad():  # Queries may change places, as their scores differ by rounding.
        theirs, scores = (model.eval()(images, samples(images, 0.0), mode='tensor')[0]
                          for model in models.values())
    torch.testing.assert_close(scores[-1].sort(1)[0], theirs.sort(1)[0], atol=1e-3, rtol=1e-3)
    return models


class Case(NamedTuple):
    """Models of one row, peer first, and the batch they take.

    ``padding`` is that of every second image of a detector's batch, as a share of each side; None
    for other models.
    """

    build: Callable[[int, int], Models]
    batch: int
    height: int
    width: int
    padding: float | None = None

    @property
    def is_detector(self) -> bool:
        return self.padding is not None


CASES = {'PVT-tiny 800x1344': Case(pvt, 1, 800, 1344), 'PVT-tiny 512': Case(pvt, 2, 512, 512),
         'PVT-tiny 224': Case(pvt, 8, 224, 224), 'Swin-T 800x1344': Case(swin, 1, 800, 1344),
         'Swin-T 224': Case(swin, 8, 224, 224),
         'DeiT-S 224': Case(deit, 8, 224, 224),
         'RoPE-ViT-S 1024': Case(windows, 1, 1024, 1024),
         # The peer knows no padding, and the release trains on squares.
         'RT-DETR-R18 640x640': Case(rt_detr, 2, 640, 640, 0.0),
         'RT-DETR-R18 800x1344': Case(rt_detr, 1, 800, 1344, 0.0),
         'DETR-R50 800x1344': Case(detr, 2, 800, 1344, 0.2),
         'RetinaNet PVT-tiny 800x1344': Case(retinanet, 2, 800, 1344, 0.2)}
#: The side of the images whose outputs are compared. Windows divide it: elsewhere timm's Swin rolls
#: the map before it fills it up, and the release fills it up first.
CHECKED = 224
MODES = ('training', 'inference')
PEERS = ('mmdet', 'timm', 'transformers')


def outputs(model: nn.Module, images: Tensor) -> Sequence[Tensor]:
    out = model(images)
    return (out,) if isinstance(out, Tensor) else out


def samples(images: Tensor, padding: float) -> list[Any]:
    """Eight boxes in each image; of each side of every second one, this share is padding."""
    from mmdet.structures import DetDataSample
    from mmengine.structures import InstanceData
    full, found = tuple(images.shape[-2:]), []
    for index in range(len(images)):
        size = tuple(round(side * (1 - padding * (index % 2))) for side in full)
        corners = torch.rand(8, 2, device=images.device) * 0.7
        boxes = torch.cat((corners, corners + 0.2), 1) * corners.new_tensor(size[::-1] * 2)
        found.append(DetDataSample(
            metainfo=dict(img_shape=size, batch_input_shape=full, pad_shape=full),
            gt_instances=InstanceData(bboxes=boxes, labels=torch.arange(8, device=images.device))))
    return found


def loss_of(model: nn.Module, images: Tensor, padding: float | None, mode: str
            ) -> Callable[[], Tensor]:
    """A number that depends on all outputs."""
    if padding is None:
        return lambda: sum(out.float().square().mean() for out in outputs(model, images))
    known = samples(images, padding)
    if mode == 'training':
        return lambda: model.parse_losses(model(images, known, mode='loss'))[0]
    return lambda: model(images, known, mode='tensor')


def compiled(model: nn.Module, is_detector: bool, is_peer: bool) -> nn.Module:
    """A copy that compiles itself when it is called."""
    model = copy.deepcopy(model)
    if not is_peer:
        compile_regions(model, dynamic=False)
        return model
    parts = [getattr(model, name, None) for name in ('backbone', 'neck', 'encoder')]
    for part in parts if is_detector else [model]:
        if part is not None:
            part.compile(dynamic=False)
    return model


def check_equal(models: Models) -> None:
    """All models with the peer's weights give its outputs."""
    images = torch.randn(2, 3, CHECKED, CHECKED)
    with torch.no_grad():
        expected, *others = (outputs(model.eval(), images) for name, model in models.items()
                             if 'PEG' not in name)
    for outs in others:
        for out, right in zip(outs, expected, strict=True):
            torch.testing.assert_close(out, right, atol=2e-4, rtol=1e-3)


def prepared(case: Case, batch: int, height: int, width: int) -> tuple[Models, Tensor]:
    """The models of a case, whose outputs were compared, and images (batch, 3, height, width)."""
    torch.manual_seed(0)
    if not case.is_detector:
        check_equal(case.build(CHECKED, CHECKED))
    return case.build(height, width), torch.randn(batch, 3, height, width)


def measure(name: str, args: argparse.Namespace) -> None:
    """The rows of one case."""
    case = CASES[name]
    batch, height, width = args.batch or case.batch, case.height, case.width
    if args.tiny:  # the backbones of timm take no other size with their tables
        batch, height, width = (2, 128, 160) if case.is_detector else (1, 224, 224)
    models, images = prepared(case, batch, height, width)
    models = {key: model for key, model in models.items() if not args.only or key in args.only}
    images = images.to(args.device)
    for each in models.values():
        each.to(args.device)
    peer = next(iter(models))
    if args.compile:
        models.update({f'{key}, compiled': compiled(model, case.is_detector, key in PEERS)
                       for key, model in models.items()})
    dtypes = [getattr(torch, dtype) for dtype in args.dtype]
    for mode in args.mode or MODES:
        runs: dict[tuple[str, torch.dtype], Run] = {
            (key, dtype): model_step(model, loss_of(model, images, case.padding, mode), mode,
                                     args.device, dtype)
            for dtype, (key, model) in product(dtypes, models.items())}
        times = paired_times({repr(key): run for key, run in runs.items()}, args.repeats,
                             args.device)
        peaks = {key: 0.0 if args.no_memory else peak_memory(run, args.device)
                 for key, run in runs.items()}
        for model, dtype in runs:
            own, base, plain = (times[repr(key)].seconds for key in (
                (model, dtype), (peer, dtype), (model, dtypes[0])))
            print(f'| {name}, B={batch} | {mode} | {str(dtype)[6:]} | {model} | {own:.4f} | '
                  f'{batch / own:.1f} | {own / base:.2f} | {own / plain:.2f} | '
                  f'{peaks[model, dtype] / 2 ** 20:.0f} | '
                  f'{peaks[model, dtype] / (peaks[peer, dtype] or 1):.2f} |', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, repeats=9, dtypes=('float32', 'bfloat16'))
    parser.add_argument('--case', choices=sorted(CASES), action='append')
    parser.add_argument('--batch', type=int, help="images, instead of the case's")
    parser.add_argument('--mode', choices=MODES, action='append', help='instead of both')
    parser.add_argument('--only', nargs='+', metavar='MODEL', help='of a case, as its rows call '
                        'them; ratios are to the first')
    parser.add_argument('--compile', action='store_true', help='also every model compiled')
    parser.add_argument('--no-memory', action='store_true')
    args = parse(parser)
    MMLogger.get_current_instance().setLevel('ERROR')  # which weights an encoding adds
    print(header(args))
    print('| case | mode | dtype | model | s | images/s | / peer | / first dtype | MiB | '
          '/ peer |')
    print('|---|---|---|---|---|---|---|---|---|---|')
    for name in args.case or CASES:
        with row(name):
            measure(name, args)


if __name__ == '__main__':
    main()
