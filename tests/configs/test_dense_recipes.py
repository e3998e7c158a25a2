"""Recipes of dense models: what takes no weight decay, rates, lengths, and views of a test."""
from __future__ import annotations

from functools import partial

import pytest
import torch
from mmengine.model.utils import revert_sync_batchnorm
from optimizer_checks import weight_decays
from scopes import scope_fixture
from tinymodels import build, shrink

import mmposenc  # noqa: F401
from mmposenc.engine import load_config, override
from mmposenc.engine.config.checks import check_num_classes
from mmposenc.engine.config.models import build_model

scope = scope_fixture('mmseg')
#: Rate, weight decay, epochs or steps, and images a step: PVT's, Swin's and the Twins release.
RECIPES = {
    'detection/pvt/retinanet_pvt-t_fpn_1x_coco': (1e-4, 1e-4, 12, 16),
    'detection/pvt/retinanet_pvt-t_fpn_ms-640-800-3x_coco': (1e-4, 0.05, 36, 16),
    'detection/pvt/retinanet_pvt-s-peg-gap_fpn_ms-480-800-crop-3x_coco': (1e-4, 0.05, 36, 16),
    'detection/retinanet/retinanet_deit-s_sfp_1x_coco': (1e-4, 0.1, 12, 16),
    'detection/mask_rcnn/mask-rcnn_swin-t_fpn_1x_coco': (1e-4, 0.05, 12, 16),
    'segmentation/sem_fpn/fpn_pvt-t_8xb4-40k_ade20k-512x512': (2e-4, 1e-4, 40000, 32),
    'segmentation/sem_fpn/fpn_pvt-t_8xb2-80k_ade20k-512x512': (1e-4, 1e-4, 80000, 16),
    'segmentation/upernet/upernet_swin-t_8xb2-160k_ade20k-512x512': (6e-5, 0.01, 160000, 16)}
#: Models that mmdet and mmseg have too, and theirs.
TWINS = {'pvt-m-peg-gap': 'pcpvt-b', 'pvt-l-peg-gap': 'pcpvt-l', 'svt-s': 'svt-s',
         'svt-b': 'svt-b', 'svt-l': 'svt-l'}
SAME = {
    **{f'detection/pvt/retinanet_pvt-v2-b{size}_fpn_1x_coco':
       f'mmdet::pvt/retinanet_pvtv2-b{size}_fpn_1x_coco' for size in range(6)},
    **{f'segmentation/segformer/segformer_mit-b{size}_8xb2-160k_ade20k-512x512':
       f'mmseg::segformer/segformer_mit-b{size}_8xb2-160k_ade20k-512x512' for size in range(6)},
    **{f'segmentation/sem_fpn/fpn_{name}_8xb4-80k_ade20k-512x512':
       f'mmseg::twins/twins_{theirs}_fpn_fpnhead_8xb4-80k_ade20k-512x512'
       for name, theirs in {'pvt-s-peg-gap': 'pcpvt-s', **TWINS}.items()},
    **{f'segmentation/upernet/upernet_{name}_8xb2-160k_ade20k-512x512':
       f'mmseg::twins/twins_{theirs}_uperhead_8xb2-160k_ade20k-512x512'
       for name, theirs in TWINS.items()}}


@pytest.mark.parametrize('name', SAME)
def test_models_and_recipes_of_openmmlab(name: str, monkeypatch) -> None:
    # Their backbones read rates of drop path from tensors.
    monkeypatch.setattr(torch, 'linspace', partial(torch.linspace, device='cpu'))
    both = [load_config(f'{each}.py') for each in (f'mmposenc::{name}', SAME[name])]
    parameters, recipes, rates = [], [], []
    for cfg in both:
        with torch.device('meta'):
            model = build_model(cfg)
        parameters.append(sum(each.numel() for each in model.parameters()))
        optimizer = cfg.optim_wrapper.optimizer
        recipes.append((optimizer.lr, optimizer.weight_decay, cfg.train_dataloader.batch_size,
                        cfg.train_cfg.get('max_epochs'), cfg.train_cfg.get('max_iters')))
        rates.append([round(float(each.drop_prob), 6) for each in model.backbone.modules()
                      if type(each).__name__ == 'DropPath' and each.drop_prob])
    assert parameters[0] == parameters[1] and recipes[0] == recipes[1]
    assert sorted({*rates[0]}) == sorted({*rates[1]}) and rates[0]


@pytest.mark.parametrize('name', RECIPES)
def test_recipe(name: str) -> None:
    cfg = load_config(f'mmposenc::{name}.py')
    optimizer, length = cfg.optim_wrapper.optimizer, RECIPES[name][2]
    assert optimizer.type == 'AdamW' and cfg.model.backbone.mask_padding
    assert cfg.param_scheduler[-1].end == length
    assert (optimizer.lr, optimizer.weight_decay, cfg.train_cfg.get('max_epochs') or
            cfg.train_cfg.max_iters, cfg.auto_scale_lr.base_batch_size) == RECIPES[name]
    assert cfg.train_dataloader.batch_size * 8 == cfg.auto_scale_lr.base_batch_size
    check_num_classes(cfg, ('train', 'val', 'test'))


@pytest.mark.parametrize('name', [
    'detection/pvt/retinanet_pvt-t_fpn_1x_coco',
    'segmentation/sem_fpn/fpn_pvt-m-peg_8xb2-80k_ade20k-512x512',
    'segmentation/sem_fpn/fpn_deit-s_irpe-k_8xb4-40k_ade20k-512x512',
    'segmentation/upernet/upernet_swin-t_irpe-qkv_8xb2-160k_ade20k-512x512'])
def test_no_weight_decay_on_norms_and_encodings(name: str) -> None:
    cfg = shrink(load_config(f'mmposenc::{name}.py'))
    model = revert_sync_batchnorm(build(cfg))
    free = {name for name, decay in weight_decays(model, cfg).items() if decay == 0}
    norms = {f'{n}.{p}' for n, m in model.named_modules() for p, _ in m.named_parameters()
             if isinstance(m, (torch.nn.LayerNorm, torch.nn.modules.batchnorm._BatchNorm))}
    encodings = {n for n, _ in model.named_parameters()
                 if '.pos_encodings.' in n or '.rel_pos_encoding.' in n}
    tokens = {n for n, _ in model.named_parameters() if 'cls_token' in n}
    assert encodings and norms and free == norms | encodings | tokens


def test_views_of_test_time_augmentation_are_rounded_to_the_last_stride() -> None:
    cfg = load_config('mmposenc::segmentation/sem_fpn/fpn_pvt-t_8xb4-40k_ade20k-512x512.py')
    from mmseg.registry import TRANSFORMS
    views = TRANSFORMS.build(cfg.tta_pipeline[-1])
    assert len(views.subroutines) == 12
    steps = cfg.tta_pipeline[-1].transforms
    assert steps[1][0] == dict(type='ResizeToMultiple', size_divisor=32)
    assert [step.scale[1] for step in steps[0]] == [256, 384, 512, 640, 768, 896]
    assert cfg.tta_model.type == 'SegTTAModel'


def test_weights_of_a_command_line_replace_no_weights() -> None:
    """The headers' command."""
    cfg = load_config('mmposenc::segmentation/sem_fpn/fpn_pvt-t-peg_8xb2-80k_ade20k-512x512.py')
    override(cfg, {'model.backbone.init_cfg.type': 'Pretrained',
                   'model.backbone.init_cfg.checkpoint': 'mine.pth'})
    assert cfg.model.backbone.init_cfg == dict(type='Pretrained', checkpoint='mine.pth')
