"""Builds a config of each family of mmdet and mmseg, makes a training step and predicts, on a CPU.

    python tools/families.py                     # all, as a table
    python tools/families.py dyhead psanet       # some
    python tools/families.py --narrow            # ResNets with a quarter of the channels

Images and boxes are random, 128 x 128 pixels, two to a step and one to a prediction, of which no
score is too low; weights are random too. The last column is the operators of mmcv that ran.
"""
from __future__ import annotations

import argparse
import contextlib
import io
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

SIDE = 128


class Family(NamedTuple):
    """A config, and what its data have: a map of classes of this stride, and masks."""

    config: str
    stride: int = 1
    masks: bool = True


FAMILIES = {
    'atss': Family('mmdet::atss/atss_r50_fpn_1x_coco.py'),
    'autoassign': Family('mmdet::autoassign/autoassign_r50-caffe_fpn_1x_coco.py'),
    'boxinst': Family('mmdet::boxinst/boxinst_r50_fpn_ms-90k_coco.py'),
    'carafe': Family('mmdet::carafe/faster-rcnn_r50_fpn-carafe_1x_coco.py'),
    'cascade-rcnn': Family('mmdet::cascade_rcnn/cascade-rcnn_r50_fpn_1x_coco.py'),
    'cascade-rpn': Family('mmdet::cascade_rpn/cascade-rpn_faster-rcnn_r50-caffe_fpn_1x_coco.py'),
    'centernet': Family('mmdet::centernet/centernet_r18-dcnv2_8xb16-crop512-140e_coco.py'),
    'condinst': Family('mmdet::condinst/condinst_r50_fpn_ms-poly-90k_coco_instance.py'),
    'cornernet': Family('mmdet::cornernet/cornernet_hourglass104_8xb6-210e-mstest_coco.py'),
    'centripetalnet': Family(
        'mmdet::centripetalnet/centripetalnet_hourglass104_16xb6-crop511-210e-mstest_coco.py'),
    'crowddet': Family('mmdet::crowddet/crowddet-rcnn_r50_fpn_8xb2-30e_crowdhuman.py'),
    'dcn': Family('mmdet::dcn/faster-rcnn_r50-dconv-c3-c5_fpn_1x_coco.py'),
    'dcn-pool': Family('mmdet::dcn/faster-rcnn_r50_fpn_dpool_1x_coco.py'),
    'dcnv2': Family('mmdet::dcnv2/faster-rcnn_r50-mdconv-group4-c3-c5_fpn_1x_coco.py'),
    'dcnv2-pool': Family('mmdet::dcnv2/faster-rcnn_r50_fpn_mdpool_1x_coco.py'),
    'deformable-detr': Family('mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco.py'),
    'detr': Family('mmdet::detr/detr_r50_8xb2-150e_coco.py'),
    'ddod': Family('mmdet::ddod/ddod_r50_fpn_1x_coco.py'),
    'dyhead': Family('mmdet::dyhead/atss_r50-caffe_fpn_dyhead_1x_coco.py'),
    'fcos': Family('mmdet::fcos/fcos_r50-dcn-caffe_fpn_gn-head-center-normbbox-centeronreg-giou_'
                   '1x_coco.py'),
    'foveabox': Family('mmdet::foveabox/fovea_r50_fpn_gn-head-align_4xb4-2x_coco.py'),
    'fsaf': Family('mmdet::fsaf/fsaf_r50_fpn_1x_coco.py'),
    'gfl': Family('mmdet::gfl/gfl_r50_fpn_1x_coco.py'),
    'grid-rcnn': Family('mmdet::grid_rcnn/grid-rcnn_r50_fpn_gn-head_1x_coco.py'),
    'guided-anchoring': Family('mmdet::guided_anchoring/ga-retinanet_r50_fpn_1x_coco.py'),
    'htc': Family('mmdet::htc/htc_r50_fpn_1x_coco.py', 8),
    'libra-rcnn': Family('mmdet::libra_rcnn/libra-faster-rcnn_r50_fpn_1x_coco.py'),
    'mask-rcnn': Family('mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'),
    'nas-fcos': Family('mmdet::nas_fcos/nas-fcos_r50-caffe_fpn_nashead-gn-head_4xb4-1x_coco.py'),
    'point-rend': Family('mmdet::point_rend/point-rend_r50-caffe_fpn_ms-1x_coco.py'),
    'reppoints': Family('mmdet::reppoints/reppoints-moment_r50_fpn-gn_head-gn_1x_coco.py'),
    'rtmdet': Family('mmdet::rtmdet/rtmdet_s_8xb32-300e_coco.py', masks=False),
    'sabl': Family('mmdet::sabl/sabl-faster-rcnn_r50_fpn_1x_coco.py'),
    'solov2': Family('mmdet::solov2/solov2-light_r50_fpn_ms-3x_coco.py'),
    'sparse-rcnn': Family('mmdet::sparse_rcnn/sparse-rcnn_r50_fpn_1x_coco.py'),
    'tood': Family('mmdet::tood/tood_r50_fpn_1x_coco.py'),
    'vfnet': Family('mmdet::vfnet/vfnet_r50-mdconv-c3-c5_fpn_ms-2x_coco.py'),
    'yolact': Family('mmdet::yolact/yolact_r50_1xb8-55e_coco.py'),
    'yolox': Family('mmdet::yolox/yolox_s_8xb8-300e_coco.py'),
    'ccnet': Family('mmseg::ccnet/ccnet_r50-d8_4xb4-80k_ade20k-512x512.py'),
    'encnet': Family('mmseg::encnet/encnet_r50-d8_4xb4-80k_ade20k-512x512.py'),
    'point-rend-seg': Family('mmseg::point_rend/pointrend_r50_4xb4-160k_ade20k-512x512.py'),
    'psanet': Family('mmseg::psanet/psanet_r50-d8_4xb4-80k_ade20k-512x512.py'),
    'segformer': Family('mmseg::segformer/segformer_mit-b0_8xb2-160k_ade20k-512x512.py'),
}


class Run(NamedTuple):
    """What became of a family."""

    loss: float
    predicted: str
    operators: str
    seconds: float


def load(name: str, narrow: bool = False) -> tuple[str, Any]:
    """The package of a family and its model's config, which loads no file."""
    from mmengine.config import Config
    package, config = FAMILIES[name].config.split('::')
    root = __import__(package).__path__[0]
    cfg = Config.fromfile(f'{root}/.mim/configs/{config}', import_custom_modules=False).model
    for part in dicts(cfg):
        part.update({key: None for key in ('init_cfg', 'pretrained') if key in part})
        part.update({key: 0.0 for key in ('score_thr',) if key in part})
    if cfg.get('data_preprocessor', {}).get('size'):
        cfg.data_preprocessor.size = (SIDE, SIDE)
    if narrow:
        make_narrow(cfg)
    return package, cfg


def dicts(cfg: Any) -> Iterator[Any]:
    """All dicts of a config."""
    if isinstance(cfg, dict):
        yield cfg
    for value in cfg.values() if isinstance(cfg, dict) else cfg if isinstance(
            cfg, (list, tuple)) else ():
        yield from dicts(value)


def make_narrow(cfg: Any) -> None:
    """A quarter of the channels of a ResNet and of what follows it; 64 at least, two for each of
    GroupNorm's groups."""
    cfg.backbone.update(base_channels=16, stem_channels=16)

    def less(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [less(each) for each in value]
        return max(value // 4, 64) if isinstance(value, int) and value >= 64 else value

    for part in dicts(cfg):
        if part is cfg.backbone:
            continue
        for key in ('in_channels', 'out_channels', 'feat_channels', 'fc_out_channels', 'channels',
                    'conv_out_channels', 'output_channels', 'point_feat_channels',
                    'deform_fc_channels', 'c1_in_channels'):
            if key in part:
                part[key] = less(part[key])


def inputs(name: str, package: str, classes: int) -> dict[str, Any]:
    """Two random images with what a data set would tell of them."""
    import torch
    if package == 'mmdet':
        from mmdet.testing import demo_mm_inputs
        return demo_mm_inputs(  # type: ignore[no-any-return]
            2, (3, SIDE, SIDE), num_items=[3, 2], num_classes=min(classes, 3),
            with_mask=FAMILIES[name].masks, with_semantic=True, use_box_type=False,
            sem_seg_output_strides=FAMILIES[name].stride)
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample
    shape = (SIDE, SIDE)
    sample = [SegDataSample(metainfo=dict(img_shape=shape, ori_shape=shape, pad_shape=shape),
                            gt_sem_seg=PixelData(data=torch.randint(0, 4, (1, *shape))))
              for _ in range(2)]
    return dict(inputs=[torch.randint(0, 255, (3, *shape), dtype=torch.uint8) for _ in sample],
                data_samples=sample)


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the operators that run."""
    from mmposenc.operators.ext import OPS
    calls: Counter[str] = Counter()

    def counting(name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return operator(*args, **kwargs)
        return call

    before = dict(OPS)
    OPS.update({name: counting(name, operator) for name, operator in before.items()})
    try:
        yield calls
    finally:
        OPS.update(before)


def run(name: str, narrow: bool = False) -> Run:
    """Builds, trains a step and predicts.

    Raises:
        ValueError: where the loss or a gradient is not finite, or no parameter has one.
    """
    import torch
    from mmengine.logging import MessageHub
    from mmengine.model import revert_sync_batchnorm
    from mmengine.registry import DefaultScope
    package, cfg = load(name, narrow)
    __import__(f'{package}.models')
    registry = __import__(f'{package}.registry', fromlist=['MODELS']).MODELS
    torch.manual_seed(0)
    for noted in ('iter', 'epoch'):  # by a runner; BoxInst and TOOD ask for it
        MessageHub.get_current_instance().update_info(noted, 0)
    start = time.process_time()
    with DefaultScope.overwrite_default_scope(package), counted() as calls:
        model = revert_sync_batchnorm(registry.build(cfg))
        model.init_weights()
        model.train()
        data = inputs(name, package, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        loss, _ = model.parse_losses(model(**model.data_preprocessor(data, True), mode='loss'))
        loss.backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        if not (loss.isfinite() and grads and all(bool(g.isfinite().all()) for g in grads)):
            raise ValueError(f'{name}: the loss is {loss.item()}, or a gradient is not finite')
        optimizer.step()
        model.eval()
        with torch.no_grad():
            one = {key: value[:1] for key, value in data.items()}  # GA's layers take one
            found = model(**model.data_preprocessor(one, False), mode='predict')
    if package == 'mmseg':
        predicted = 'maps ' + 'x'.join(map(str, found[0].pred_sem_seg.data.shape[1:]))
    else:
        predicted = f'{sum(len(each.pred_instances) for each in found)} boxes'
    used = sorted({each.removesuffix('_forward') for each in calls if 'backward' not in each})
    return Run(loss.item(), predicted, ', '.join(used), time.process_time() - start)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', help='families (default: all)')
    parser.add_argument('--narrow', action='store_true')
    args = parser.parse_args(argv)
    if unknown := set(args.names) - set(FAMILIES):
        parser.error(f'names must be of {", ".join(FAMILIES)}; got {", ".join(sorted(unknown))}')
    warnings.simplefilter('ignore')
    import mmposenc  # noqa: F401  (before mmdet)
    print('| family | config | loss | predicted | operators that ran |\n|---|---|---|---|---|')
    failed = 0
    for name in args.names or FAMILIES:
        config = FAMILIES[name].config.rsplit('/', 1)[-1].removesuffix('.py')
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                done = run(name, args.narrow)
            print(f'| {name} | {config} | {done.loss:.2f} | {done.predicted} | {done.operators} |',
                  flush=True)
        except Exception as error:
            failed += 1
            said = (str(error).strip() or 'no message').splitlines()[-1]
            print(f'| {name} | {config} | failed | {type(error).__name__}: {said[:200]} | |',
                  flush=True)
    print(f'\n{len(args.names or FAMILIES) - failed} of {len(args.names or FAMILIES)} ran')
    raise SystemExit(failed > 0)


if __name__ == '__main__':
    main()
