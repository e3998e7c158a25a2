"""Configs that start from pretrained transformers: DINOv2, DINOv3, EVA-02, BEiT."""
from __future__ import annotations

import pytest

import mmposenc  # noqa: F401
from mmposenc.checkpoint.vit_archs import ARCHS
from mmposenc.engine import load_config

CONFIGS = ('detection/pretrained/retinanet_dinov2-s_sfp_1x_coco.py',
           'detection/pretrained/dino-4scale_dinov3-s_sfp_8xb2-12e_coco.py',
           'segmentation/pretrained/linear_dinov2-s_8xb2-40k_ade20k-512x512.py',
           'segmentation/pretrained/fcn_dinov3-s_8xb2-40k_ade20k-512x512.py',
           'segmentation/pretrained/linear_dinov3-7b_8xb2-fsdp2-40k_ade20k-512x512.py',
           'segmentation/pretrained/mask2former_dinov3-s_8xb2-160k_ade20k-512x512.py',
           'segmentation/pretrained/upernet_eva02-b_8xb4-60k_ade20k-512x512.py',
           'segmentation/pretrained/upernet_beit-b_8xb2-160k_ade20k-512x512.py')


@pytest.mark.parametrize('name', CONFIGS)
def test_config(name):
    cfg = load_config(f'mmposenc::{name}')
    backbone, neck = cfg.model.backbone, cfg.model.neck
    family, arch = backbone.arch.partition('-')[0], ARCHS[backbone.arch]
    assert f'_{family}-{backbone.arch.partition("-")[2][0]}' in name
    assert backbone.mask_padding and 'mmposenc.' in cfg.model.data_preprocessor.type
    assert (backbone.get('init_cfg') is None) == (family != 'dinov2')  # others ask for an account
    assert max(backbone.out_indices) == arch['num_layers'] - 1
    width = neck.get('in_channels', neck.get('embed_dim'))
    assert set(width if isinstance(width, list) else [width]) == {arch['embed_dims']}
    frozen = '/linear' in name or '/fcn' in name
    assert backbone.get('frozen_stages', -1) == (arch['num_layers'] if frozen else -1)
    if 'anchor_generator' in cfg.model.get('bbox_head', {}):
        patch = backbone.get('patch_size', arch.get('patch_size', 16))
        assert cfg.model.bbox_head.anchor_generator.strides == [patch * 2 ** i // 2
                                                                for i in range(5)]
