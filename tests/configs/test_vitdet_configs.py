"""ViTDet's configs: the model and the recipe of detectron2's release, a step and a test."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from optimizer_checks import build_optimizer
from scopes import scope_fixture
from tinymodels import build, collated, samples, shrink

import mmposenc  # noqa: F401
from mmposenc.engine import load_config

ROOT = Path(__file__).resolve().parents[2] / 'configs' / 'detection' / 'vitdet'
CONFIGS = sorted(path.name for path in ROOT.glob('*.py'))
SIZES = {'b': ('base', 0.7, 12, 0.1), 'l': ('large', 0.8, 24, 0.4)}
scope = scope_fixture('mmdet')


def load(name: str):
    return load_config(f'mmposenc::detection/vitdet/{name}')


@pytest.mark.parametrize('name', CONFIGS)
def test_recipe(name: str) -> None:
    """Numbers of projects/ViTDet/configs/COCO/mask_rcnn_vitdet_{b,l}_100ep.py."""
    cfg = load(name)
    arch, rate, layers, drop_path = SIZES[name.split('vitdet-')[1][0]]
    assert cfg.model.backbone.arch == f'vitdet-{arch}'
    assert cfg.model.backbone.drop_path_rate == drop_path
    assert f'mae_pretrain_vit_{arch}.pth' in cfg.model.backbone.init_cfg.checkpoint
    assert cfg.optim_wrapper.paramwise_cfg.layer_decay_rate == rate
    assert cfg.optim_wrapper.paramwise_cfg.num_layers == layers
    assert cfg.optim_wrapper.optimizer == dict(type='AdamW', lr=1e-4, weight_decay=0.1,
                                               betas=(0.9, 0.999))
    assert cfg.train_cfg.max_iters == 184375 and cfg.train_dataloader.batch_size == 4
    assert cfg.param_scheduler[1].milestones == [163889, 177546]
    scales = [step for loader in (cfg.train_dataloader, cfg.test_dataloader)
              for step in loader.dataset.pipeline if 'Resize' in step['type']]
    assert [step.scale for step in scales] == [(1024, 1024)] * 2
    strides = cfg.model.rpn_head.anchor_generator.strides
    assert len(strides) == cfg.model.neck.num_outs


def test_a_step_and_a_test_of_a_small_version() -> None:
    cfg = shrink(load(CONFIGS[0]))
    cfg.optim_wrapper.paramwise_cfg.num_layers = 2
    model = build(cfg).train()
    wrapper = build_optimizer(model, cfg)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = {names[id(group['params'][0])]: group for group in wrapper.optimizer.param_groups}
    rate = cfg.optim_wrapper.paramwise_cfg.layer_decay_rate
    table = 'backbone.pos_encodings.at.before.0.pos_embed'
    relative = 'backbone.blocks.1.attn.rel_pos_encoding.row_table'
    decays = {table: (3, 0.0), relative: (1, 0.1), 'backbone.blocks.0.attn.qkv.bias': (2, 0.1),
              'backbone.blocks.0.norm1.weight': (2, 0.0), 'neck.levels.0.0.weight': (0, 0.1),
              'roi_head.mask_head.convs.0.ln.weight': (0, 0.0)}
    for parameter, (depth, decay) in decays.items():
        assert groups[parameter]['lr'] == pytest.approx(1e-4 * rate ** depth)
        assert groups[parameter]['weight_decay'] == decay, parameter
    before = {name: value.clone() for name, value in model.named_parameters()}
    batch = model.data_preprocessor(collated(samples(cfg, 2)), True)
    loss, _ = model.parse_losses(model(**batch, mode='loss'))
    wrapper.update_params(loss)
    assert loss.isfinite()
    assert [n for n, value in model.named_parameters() if torch.equal(value, before[n])] == []
    found = model.eval()(**model.data_preprocessor(collated(samples(cfg, 2)), False),
                         mode='predict')
    assert len(found) == 2 and found[0].pred_instances.masks.shape[-2:] == (64, 64)
