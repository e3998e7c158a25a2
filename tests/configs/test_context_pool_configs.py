"""The ContextPool configs: what they build, count and change. Steps: test_gradients.py."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tinymodels import build, shrink

import mmposenc  # noqa: F401
from mmposenc.engine import load_config

pytest.importorskip('mmpretrain')


def load(name: str):
    return load_config(f'mmposenc::classification/context_pool/{name}')


@pytest.mark.parametrize('name', ['cp-vit-b', 'cp-swin-b'])
def test_a_small_model_goes_on_at_another_size(name: str, tmp_path: Path) -> None:
    """Head and pools come along as they are; tables are resized to the new grid."""
    models = []
    for size, at in ((224, ''), (384, '-384px')):
        cfg = shrink(load(f'{name}_8xb128_in1k{at}.py'))
        cfg.model.backbone.img_size = size // 7
        if 'swin' in name:
            cfg.model.backbone.window_size = size // 112
        if size == 384:
            torch.save(dict(state_dict=models[0].state_dict()), tmp_path / 'epoch_300.pth')
            for part in (cfg.model.backbone, cfg.model.head):
                part.init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'epoch_300.pth'),
                                     **({'prefix': 'head.'} if part is cfg.model.head else {}))
        models.append(build(cfg, seed=size))
    first, second = (model.state_dict() for model in models)
    assert set(first) == set(second)
    differ = {key for key in first if first[key].shape != second[key].shape}
    assert differ and all('pos_embed' in key or 'bias_table' in key for key in differ)
    assert all(torch.equal(first[key], second[key]) for key in set(first) - differ)
