"""Detectors and segmentors of OpenMMLab train and predict on the PyTorch forms of the operators."""
import numpy as np
import pytest
import torch

import mmposenc  # noqa: F401  (before mmdet)

pytest.importorskip('mmdet')
pytest.importorskip('mmseg')

SIZE = (96, 64)
FPN = dict(in_channels=[8, 16, 16, 32], out_channels=16)
PVT = dict(type='PyramidVisionTransformer', embed_dims=8, num_layers=[1, 1, 1, 1],
           num_heads=[1, 2, 2, 4], out_indices=(0, 1, 2, 3), pretrain_img_size=64, init_cfg=None)


@pytest.fixture(autouse=True)
def scope():
    from mmengine.registry import DefaultScope
    with DefaultScope.overwrite_default_scope('mmdet'):
        torch.manual_seed(0)
        yield


def load(name):
    from mmengine.hub import get_config
    model = get_config(f'mmdet::{name}').model
    model.backbone.init_cfg = None
    return model


def retinanet_pvt():
    model = load('pvt/retinanet_pvt-t_fpn_1x_coco.py')
    model.backbone = dict(PVT)
    model.neck.update(FPN)
    model.bbox_head.update(num_classes=2, in_channels=16, feat_channels=16, stacked_convs=1)
    return model


def mask_rcnn():
    model = load('_base_/models/mask-rcnn_r50_fpn.py')
    model.backbone = dict(PVT)
    model.neck.update(FPN)
    model.rpn_head.update(in_channels=16, feat_channels=16)
    head = model.roi_head
    for extractor in (head.bbox_roi_extractor, head.mask_roi_extractor):
        extractor.out_channels = 16
    head.bbox_head.update(in_channels=16, fc_out_channels=32, num_classes=2)
    head.mask_head.update(in_channels=16, conv_out_channels=16, num_convs=1, num_classes=2)
    model.test_cfg.rcnn.score_thr = 0.0
    return model


def deformable_detr():
    model = load('deformable_detr/deformable-detr_r50_16xb2-50e_coco.py')
    model.backbone = dict(PVT, out_indices=(1, 2, 3))
    model.neck.update(in_channels=[16, 16, 32], out_channels=32, norm_cfg=dict(
        type='GN', num_groups=4))
    for part, layers in ((model.encoder, 1), (model.decoder, 2)):
        part.num_layers = layers
        part.layer_cfg.self_attn_cfg.update(embed_dims=32, num_heads=4)
        part.layer_cfg.ffn_cfg.update(embed_dims=32, feedforward_channels=32)
    model.decoder.layer_cfg.self_attn_cfg.num_heads = 4
    model.decoder.layer_cfg.cross_attn_cfg.update(embed_dims=32, num_heads=4)
    model.positional_encoding.num_feats = 16
    model.bbox_head.update(embed_dims=32, num_classes=2)
    model.num_queries = 10
    model.test_cfg.max_per_img = 10
    return model


def samples():
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks
    from mmengine.structures import InstanceData
    result = []
    for boxes in ([[4., 5, 60, 40], [20, 30, 50, 90]], [[8., 8, 40, 60]]):
        meta = dict(img_shape=SIZE, ori_shape=SIZE, pad_shape=SIZE, batch_input_shape=SIZE,
                    scale_factor=(1.0, 1.0))
        sample = DetDataSample(metainfo=meta)
        masks = BitmapMasks(np.ones((len(boxes), *SIZE), dtype=np.uint8), *SIZE)
        sample.gt_instances = InstanceData(bboxes=torch.tensor(boxes), masks=masks,
                                           labels=torch.arange(len(boxes)))
        result.append(sample)
    return result


def total(losses):
    parts = [part for name, value in losses.items() if 'loss' in name
             for part in (value if isinstance(value, list) else [value])]
    return sum(part.sum() for part in parts)


@pytest.mark.parametrize('config', [retinanet_pvt, mask_rcnn, deformable_detr])
def test_detector_learns_and_predicts(config):
    """Ten steps on two images lower the loss; every parameter gets a finite gradient."""
    from mmdet.registry import MODELS
    model = MODELS.build(config())
    model.init_weights()
    model.train()
    images = torch.rand(2, 3, *SIZE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, without = [], None
    for _ in range(10):
        torch.manual_seed(1)  # the same sampled regions at every step
        loss = total(model.loss(images, samples()))
        optimizer.zero_grad()
        loss.backward()
        used = {name for name, p in model.named_parameters() if p.grad is not None}
        assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
        without = {name for name, p in model.named_parameters() if p.requires_grad} - used
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0], losses
    assert not without, without

    model.eval()
    with torch.no_grad():
        predictions = model.predict(images, samples())
    for sample in predictions:
        found = sample.pred_instances
        assert bool(found.bboxes.isfinite().all()) and bool((found.scores.diff() <= 0).all())
        assert len(found) <= 100
        if 'masks' in found:
            assert found.masks.shape == (len(found), *SIZE)


def test_segmentor_trains():
    from mmengine.registry import DefaultScope
    from mmengine.structures import PixelData
    from mmseg.registry import MODELS
    from mmseg.structures import SegDataSample
    with DefaultScope.overwrite_default_scope('mmseg'):
        model = MODELS.build(dict(
            type='EncoderDecoder',
            backbone=dict(type='MixVisionTransformer', embed_dims=8, num_layers=[1, 1, 1, 1],
                          num_heads=[1, 2, 2, 4], sr_ratios=[8, 4, 2, 1]),
            decode_head=dict(type='SegformerHead', in_channels=[8, 16, 16, 32],
                             in_index=[0, 1, 2, 3], channels=16, num_classes=3,
                             norm_cfg=dict(type='BN'), loss_decode=dict(type='CrossEntropyLoss'))))
        batch = []
        for _ in range(2):
            sample = SegDataSample(metainfo=dict(img_shape=SIZE, ori_shape=SIZE, pad_shape=SIZE))
            sample.gt_sem_seg = PixelData(data=torch.randint(0, 3, (1, *SIZE)))
            batch.append(sample)
        loss = model.loss(torch.rand(2, 3, *SIZE), batch)['decode.loss_ce']
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
