"""Dense models: those of OpenMMLab, and what takes no weight decay."""
from __future__ import annotations

from functools import partial

import pytest
import torch
from scopes import scope_fixture
from scripts import short

import mmposenc  # noqa: F401
from mmposenc.engine import load_config
from mmposenc.engine.config.models import build_model

scope = scope_fixture('mmseg')
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


@pytest.mark.parametrize('name', short(
    SAME, 'detection/pvt/retinanet_pvt-v2-b0_fpn_1x_coco',
    'segmentation/segformer/segformer_mit-b1_8xb2-160k_ade20k-512x512',
    'segmentation/sem_fpn/fpn_pvt-s-peg-gap_8xb4-80k_ade20k-512x512',
    'segmentation/upernet/upernet_svt-s_8xb2-160k_ade20k-512x512'))
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
