"""Channels of a neck or head that are not those of the backbone's maps."""
from __future__ import annotations

import pytest
import torch
from mmengine.config import Config

from mmposenc.engine import load_config
from mmposenc.engine.config.channels import check_channels

FPN = 'mmposenc::detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py'


def test_a_neck() -> None:
    cfg = load_config(FPN)
    check_channels(cfg)
    cfg.model.neck.in_channels = [256, 512, 1024, 2048]
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match=r'model.neck.in_channels=\[256, 512, 1024, 2048\] are not '
                       r'the channels .* of model.backbone \(PVT\), \[64, 128, 320, 512\]; '
                       r'write in_channels=\[64, 128, 320, 512\]'):
        check_channels(cfg)
    assert torch.equal(torch.get_rng_state(), before)
    cfg.model.neck = [cfg.model.neck]
    with pytest.raises(ValueError, match=r'model.neck.0.in_channels'):
        check_channels(cfg)
    cfg.model.backbone.out_indices = (1, 3)
    with pytest.raises(ValueError, match=r'write in_channels=\[128, 512\]'):
        check_channels(cfg)


def test_a_head_without_a_neck() -> None:
    cfg = Config(dict(default_scope='mmseg', model=dict(
        backbone=load_config(FPN).model.backbone,
        decode_head=dict(type='FCNHead', in_channels=512))))
    check_channels(cfg)
    cfg.model.decode_head.update(in_channels=[1, 2], in_index=[0, 1])
    with pytest.raises(ValueError, match=r'decode_head.in_channels=\[1, 2\] .*=\[64, 128\]'):
        check_channels(cfg)
    cfg.model.decode_head.update(in_channels=320, in_index=2)
    check_channels(cfg)
    cfg.model.decode_head.in_index = 1
    with pytest.raises(ValueError, match=r'in_channels=320 are not .*; write in_channels=128'):
        check_channels(cfg)


@pytest.mark.parametrize('change', [
    lambda model: model.neck.update(type='YOLOV3Neck'),  # whose maps have another order
    lambda model: model.neck.pop('in_channels'),
    lambda model: model.backbone.update(type='NoSuchBackbone')])  # said where it is built
def test_what_is_not_known_is_not_refused(change) -> None:
    cfg = load_config(FPN)
    cfg.model.neck.in_channels = [1, 2, 3, 4]
    change(cfg.model)
    check_channels(cfg)


@pytest.mark.parametrize('config', [
    'mmposenc::detection/small/dino_r18-w16_1xb4-15e_bccd.py',
    'mmposenc::detection/small/retinanet_vit-s14_sfp_1xb4-10e_trees.py',
    'mmposenc::segmentation/sem_fpn/fpn_swin-t_8xb2-80k_ade20k-512x512.py',
    'mmposenc::segmentation/small/fpn_pvt-micro-peg_1xb4-10e_camvid-192x256.py',
    'mmposenc::segmentation/small/linear_vit-s14_1xb4-10e_camvid-252x336.py',
    'mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py',
    'mmseg::deeplabv3plus/deeplabv3plus_r50-d8_4xb2-40k_cityscapes-512x1024.py'])
def test_configs_that_fit(config) -> None:
    check_channels(load_config(config))
