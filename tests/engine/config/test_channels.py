"""Channels of a neck or head that are not those of the backbone's maps."""
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


#: A config of another library, an option of it, and what the error says.
OTHERS = [
    ('mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py',
     'decode_head.in_channels', [64, 128, 320, 512],
     r'model.decode_head.in_channels=\[64, 128, 320, 512\] are not the channels of the maps of '
     r'model.backbone \(SwinTransformer\), \[96, 192, 384, 768\]; write in_channels=\[96, 192, '),
    ('mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py',
     'auxiliary_head.in_channels', 320, r'model.auxiliary_head.in_channels=320 .*_channels=384$'),
    ('mmdet::dino/dino-4scale_r50_8xb2-12e_coco.py', 'neck.in_channels', [128, 320, 512],
     r'\(ResNet\), \[512, 1024, 2048\]; write in_channels=\[512, 1024, 2048\]$'),
    ('mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py', 'head.in_channels', 384,
     r'model.head.in_channels=384 .* \[768\]; write in_channels=768$'),
    ('mmpretrain::vision_transformer/vit-base-p16_32xb128-mae_in1k.py', 'head.in_channels', 384,
     r'model.head.in_channels=384 .* \[768\]; write in_channels=768$')]


@pytest.mark.parametrize('name, key, value, message', OTHERS)
def test_backbones_necks_and_heads_of_other_libraries(name, key, value, message) -> None:
    cfg = load_config(name)
    check_channels(cfg)
    cfg.merge_from_dict({f'model.{key}': value})
    with pytest.raises(ValueError, match=message):
        check_channels(cfg)


def test_what_is_not_known_is_not_refused() -> None:
    cfg = load_config(FPN)
    cfg.model.neck.in_channels = None
    check_channels(cfg)
    cfg.model.neck.in_channels = [1, 2, 3, 4]
    cfg.model.backbone.type = 'NoSuchBackbone'  # said where it is built
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
