"""The ContextPool configs: what they build, count and change. Steps: test_gradients.py."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tinymodels import build, shrink

import mmposenc  # noqa: F401
from mmposenc.encodings import ContextPool
from mmposenc.engine import load_config

pytest.importorskip('mmpretrain')


def load(name: str):
    return load_config(f'mmposenc::classification/context_pool/{name}')


@pytest.mark.parametrize('name, ratio', [
    ('cp-vit-b_8xb128_in1k-384px', 0.1), ('cp-vit-b-ratio-0.2_8xb128_in1k', 0.2),
    ('cp-resnet-50_8xb32_in1k', 0.05)])
def test_ratios_of_sizes(name: str, ratio: float) -> None:
    """Where pools are, and how many: by what they count, in test_papers.py."""
    with torch.device('cpu' if 'resnet' in name else 'meta'):
        model = build(load(f'{name}.py'), initialize=False)
    assert {module.ratio for module in model.modules() if isinstance(module, ContextPool)} == {
        ratio}


@pytest.mark.parametrize('name', [
    'vit-b_8xb128_in1k-384px.py', 'cp-vit-b-10_8xb128_in1k-384px.py',
    'cp-vit-b-sequence_8xb128_in1k-384px.py', 'cp-swin-b_8xb128_in1k-384px.py'])
def test_models_at_384_start_from_the_run_at_224(name: str) -> None:
    """The same model but its size."""
    cfg, first = (load(each) for each in (name, name.replace('-384px', '')))
    start = f"work_dirs/{name.removesuffix('-384px.py')}/epoch_{first.train_cfg.max_epochs}.pth"
    for part in (cfg.model.backbone, cfg.model.head):
        assert part.init_cfg.type == 'Pretrained' and part.init_cfg.checkpoint == start
    kept = {'num_layers', 'pos_encoding', 'arch'}
    assert {key: cfg.model.backbone.get(key) for key in kept} == {
        key: first.model.backbone.get(key) for key in kept}


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
