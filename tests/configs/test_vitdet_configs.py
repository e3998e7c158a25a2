"""ViTDet's config: a step and a test of a small version, rates and decays by layer."""
from __future__ import annotations

import pytest
import torch
from optimizer_checks import build_optimizer
from scopes import scope_fixture
from tinymodels import build, collated, samples, shrink

import mmposenc  # noqa: F401
from mmposenc.engine import load_config

scope = scope_fixture('mmdet')


def load(name: str):
    return load_config(f'mmposenc::detection/vitdet/{name}')


def test_a_step_and_a_test_of_a_small_version() -> None:
    cfg = shrink(load('mask-rcnn_vitdet-b_sfp_16xb4-lsj-100e_coco.py'))
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
