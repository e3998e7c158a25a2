"""Configs that start from pretrained transformers: DINOv2, DINOv3, EVA-02, BEiT."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

import mmposenc  # noqa: F401
from mmposenc.checkpoint.vit_archs import ARCHS
from mmposenc.engine import load_config

ROOT = Path(__file__).resolve().parents[2] / 'configs'
CONFIGS = ('detection/pretrained/retinanet_dinov2-s_sfp_1x_coco.py',
           'detection/pretrained/dino-4scale_dinov3-s_sfp_8xb2-12e_coco.py',
           'segmentation/pretrained/linear_dinov2-s_8xb2-40k_ade20k-512x512.py',
           'segmentation/pretrained/fcn_dinov3-s_8xb2-40k_ade20k-512x512.py',
           'segmentation/pretrained/linear_dinov3-7b_8xb2-fsdp2-40k_ade20k-512x512.py',
           'segmentation/pretrained/mask2former_dinov3-s_8xb2-160k_ade20k-512x512.py',
           'segmentation/pretrained/upernet_eva02-b_8xb4-60k_ade20k-512x512.py',
           'segmentation/pretrained/upernet_beit-b_8xb2-160k_ade20k-512x512.py')
SIZE = {'s': 'small', 'b': 'base', 'l': 'large', '7b': '7b'}


def load(name):
    return load_config(f'mmposenc::{name}')


def names_of(name):
    return re.search(r'_(dinov2|dinov3|eva02|beit)-([sbl]|7b)_', name).groups()


@pytest.mark.parametrize('name', CONFIGS)
def test_config(name):
    text, cfg, (family, size) = (ROOT / name).read_text(), load(name), names_of(name)
    backbone = cfg.model.backbone
    arch = ARCHS[backbone.arch]
    assert backbone.type == 'mmposenc.ViT' and backbone.arch == f'{family}-{SIZE[size]}'
    assert backbone.mask_padding and 'mmposenc.' in cfg.model.data_preprocessor.type
    assert ('CHECKPOINT' in text) == (backbone.get('init_cfg') is None) == (family != 'dinov2')
    if family == 'dinov2':
        assert f'_vit{size}14_pretrain' in backbone.init_cfg.checkpoint
    assert max(backbone.out_indices) == arch['num_layers'] - 1
    neck = cfg.model.neck
    width = neck.get('in_channels', neck.get('embed_dim'))
    assert set(width if isinstance(width, list) else [width]) == {arch['embed_dims']}
    frozen = '/linear' in name or '/fcn' in name
    assert backbone.get('frozen_stages', -1) == (arch['num_layers'] if frozen else -1)
    if 'anchor_generator' in cfg.model.get('bbox_head', {}):
        patch = backbone.get('patch_size', arch.get('patch_size', 16))
        assert cfg.model.bbox_head.anchor_generator.strides == [patch * 2 ** i // 2
                                                                for i in range(5)]
