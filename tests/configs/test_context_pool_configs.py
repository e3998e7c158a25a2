"""The ContextPool configs: what they build, count and change. Steps: test_gradients.py."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tinymodels import build, shrink

import mmposenc  # noqa: F401
from mmposenc.encodings import ContextPool
from mmposenc.engine import load_config
from mmposenc.operators import papers

pytest.importorskip('mmpretrain')
COUNTED = {name: entry.get('counted') for name, entry in papers.models().items()}

def load(name: str):
    return load_config(f'mmposenc::classification/context_pool/{name}')


def pools(model: torch.nn.Module) -> list[ContextPool]:
    return [module for module in model.modules() if isinstance(module, ContextPool)]


@pytest.mark.parametrize('name', [
    'vit-b_8xb128_in1k.py', 'cp-vit-b_8xb128_in1k-384px.py', 'cp-vit-b-10_8xb128_in1k-384px.py',
    'cp-vit-b-wide_8xb128_in1k-384px.py', 'cp-vit-b-ratio-0.2_8xb128_in1k.py',
    'swin-b_8xb128_in1k.py',
    'cp-swin-b_8xb128_in1k-384px.py', 'cp-resnet-50_8xb32_in1k.py',
    'deform-resnet-50_8xb32_in1k.py',
    'cp-resnet-44-similarity_1xb128_cifar10.py'])
def test_classifiers_are_what_was_counted(name: str) -> None:
    cfg, stem = load(name), name.removesuffix('.py')
    with torch.device('cpu' if 'resnet' in name else 'meta'):
        model = build(cfg, initialize=False)
    assert sum(p.numel() for p in model.parameters()) == COUNTED[stem]['params']
    found = pools(model)
    assert bool(found) == stem.startswith('cp-')
    assert {pool.ratio for pool in found} <= {0.05 if 'resnet' in stem or '0.05' in stem
                                              else 0.2 if '0.2' in stem else 0.1}
    side = 384 if '384' in stem else 32 if 'cifar' in stem else 224
    steps = cfg.test_dataloader.dataset.get('pipeline', ())
    assert next((step.crop_size for step in steps if step.type == 'CenterCrop'), 32) == side
    if 'swin' in stem:
        assert len(found) == (23 if 'cp' in stem else 0)
        window = model.backbone.stages[0].blocks[0].attn.w_msa.window_size
        assert tuple(window) == (side // 32,) * 2
    if 'vit-b' in stem:
        assert len(model.backbone.blocks) == (10 if '-10_' in stem else 12)
        places = 1 if 'wide' in stem else len(model.backbone.blocks) - 1
        assert len(found) == (places if stem.startswith('cp-') else 0)
        assert len({id(pool) for pool in found}) == len(found)


@pytest.mark.parametrize('name', [
    'vit-b_8xb128_in1k-384px.py', 'cp-vit-b-10_8xb128_in1k-384px.py',
    'cp-vit-b-sequence_8xb128_in1k-384px.py', 'cp-swin-b_8xb128_in1k-384px.py'])
def test_models_at_384_start_from_the_run_at_224(name: str) -> None:
    """Sec. 4.1: 300 epochs, 20 of warm-up, then 30; clipped at 1; the same model but its size."""
    cfg, first = (load(each) for each in (name, name.replace('-384px', '')))
    start = f"work_dirs/{name.removesuffix('-384px.py')}/epoch_300.pth"
    for part in (cfg.model.backbone, cfg.model.head):
        assert part.init_cfg.type == 'Pretrained' and part.init_cfg.checkpoint == start
    kept = {'num_layers', 'pos_encoding', 'arch'}
    assert {key: cfg.model.backbone.get(key) for key in kept} == {
        key: first.model.backbone.get(key) for key in kept}
    assert (first.train_cfg.max_epochs, cfg.train_cfg.max_epochs) == (300, 30)
    warm_up, cosine = first.param_scheduler
    assert (warm_up.end, cosine.T_max) == (20, 280)
    for each, rate, decay in ((first, .001, .05), (cfg, 1e-5, 1e-8)):
        optimizer = each.optim_wrapper
        assert optimizer.clip_grad.max_norm == 1 and optimizer.optimizer.type == 'AdamW'
        assert (optimizer.optimizer.lr, optimizer.optimizer.weight_decay) == (rate, decay)
        assert each.auto_scale_lr.base_batch_size == 1024


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
