"""Configs that start from pretrained transformers: DINOv2, DINOv3, EVA-02, BEiT."""
from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from mmengine.model.utils import revert_sync_batchnorm
from mmengine.registry import DefaultScope
from optimizer_checks import build_optimizer
from scripts import short
from tinymodels import collated, samples, shrink

import mmposenc  # noqa: F401
from mmposenc.checkpoint.vit_archs import ARCHS
from mmposenc.engine import load_config
from mmposenc.engine.config.models import build_bare

ROOT = Path(__file__).resolve().parents[2] / 'configs'
CONFIGS = ('detection/pretrained/retinanet_dinov2-s_sfp_1x_coco.py',
           'detection/pretrained/dino-4scale_dinov3-s_sfp_8xb2-12e_coco.py',
           'segmentation/pretrained/linear_dinov2-s_8xb2-40k_ade20k-512x512.py',
           'segmentation/pretrained/fcn_dinov3-s_8xb2-40k_ade20k-512x512.py',
           'segmentation/pretrained/linear_dinov3-7b_8xb2-fsdp2-40k_ade20k-512x512.py',
           'segmentation/pretrained/mask2former_dinov3-s_8xb2-160k_ade20k-512x512.py',
           'segmentation/pretrained/upernet_eva02-b_8xb4-60k_ade20k-512x512.py',
           'segmentation/pretrained/upernet_beit-b_8xb2-160k_ade20k-512x512.py')
FAMILY = {'dinov2': 'dinov2', 'dinov3': 'dinov3', 'eva02': 'eva02', 'beit': 'beit'}
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


@pytest.mark.parametrize('name', short(CONFIGS, *CONFIGS[:2], CONFIGS[3], *CONFIGS[6:]))
def test_a_small_version_trains_and_predicts(name):
    """Every weight that is trained gets a gradient, and no other."""
    cfg = shrink(load(name))
    # Without its weights, but with numbers: mmdet leaves embeddings of levels as memory was.
    model = revert_sync_batchnorm(build_bare(cfg)).train()
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        items = samples(cfg, 2)
        data = model.data_preprocessor(collated(items), training=True)
        loss, _ = model.parse_losses(model(**data, mode='loss'))
        loss.backward()
        assert torch.isfinite(loss)
        assert [n for n, p in model.named_parameters() if (p.grad is None) == p.requires_grad] == []
        assert any(n.startswith('backbone.') for n, p in model.named_parameters()
                   if p.requires_grad) == (cfg.model.backbone.frozen_stages < 0)
        optimizer = build_optimizer(model, cfg).optimizer
        rates = {group['lr'] for group in optimizer.param_groups}
        assert (len(rates) > 3) == ('/upernet' in name or '/retinanet' in name)
        found = model.eval()(**model.data_preprocessor(collated(items), training=False),
                             mode='predict')
    assert len(found) == 2
