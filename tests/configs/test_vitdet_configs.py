"""ViTDet's config: rates and decays by layer. Steps: test_gradients.py."""
from __future__ import annotations

import pytest
from optimizer_checks import build_optimizer
from scopes import scope_fixture
from tinymodels import build, shrink

import mmposenc  # noqa: F401
from mmposenc.engine import load_config

scope = scope_fixture('mmdet')


def load(name: str):
    return load_config(f'mmposenc::detection/vitdet/{name}')


def test_rates_and_decays_by_layer() -> None:
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
