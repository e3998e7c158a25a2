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
ABLATIONS = {
    'weights-unnormalized': dict(weights='unnormalized'), 'weights-uniform': dict(
        weights='uniform'), 'weights-nonlocal': dict(weights='nonlocal'),
    'locality-none': dict(locality='none'), 'locality-fixed': dict(locality='fixed_window'),
    'locality-adaptive': dict(locality='adaptive_window'), 'locality-random': dict(
        locality='random_sparse'), 'predictor-mlp': dict(predictor='mlp'),
    'predictor-attention': dict(predictor='attention'), 'sizes-softmax': dict(
        size_norm='softmax'), 'sequence': dict(dims=1), 'ratio-0.05': dict(ratio=0.05),
    'ratio-0.2': dict(ratio=0.2)}
VIT_B = 86_567_656 + (577 - 197) * 768


def convs(dims: int, hidden: int, outputs: int = 2) -> int:
    """Parameters of two 3x3 convolutions."""
    return hidden * (9 * dims + 1) + outputs * (9 * hidden + 1)


PARAMETERS = {
    'vit-b_8xb128_in1k': 86_567_656, 'vit-b_8xb128_in1k-384px': VIT_B,
    'cp-vit-b_8xb128_in1k-384px': VIT_B + 11 * convs(768, 26),
    'cp-vit-b-weights-uniform_8xb128_in1k-384px': VIT_B + 11 * convs(768, 13, 1),
    'cp-vit-b-weights-nonlocal_8xb128_in1k-384px': VIT_B + 11 * (
        convs(768, 13, 1) + 2 * 768 * 769),
    'cp-vit-b-predictor-mlp_8xb128_in1k-384px': VIT_B + 11 * (192 * 769 + 2 * 193),
    'cp-vit-b-wide_8xb128_in1k-384px': VIT_B + convs(768, 192),
    'cp-vit-b-every_8xb128_in1k-384px': VIT_B + 11 * convs(768, 192),
    'swin-b_8xb128_in1k': 87_768_224, 'cp-swin-b_8xb128_in1k': 87_768_224 + sum(
        blocks * convs(dims, 18) for blocks, dims in ((2, 128), (2, 256), (18, 512), (1, 1024))),
    'resnet-50_8xb32_in1k': 25_557_032, 'resnet-101_8xb32_in1k': 44_549_160,
    'resnet-44_1xb128_cifar10': 661_338,
    'cp-resnet-50_8xb32_in1k': 25_557_032 + sum(convs(dims, 16) for dims in (64, 256, 512, 1024)),
    'deform-resnet-50_8xb32_in1k': 25_557_032 + 3 * 18 * (9 * 512 + 1),  # the steps of three layers
    'cp-resnet-44_1xb128_cifar10': 661_338 + convs(16, 40) + convs(32, 40),
    'cp-resnet-44-similarity_1xb128_cifar10': 661_338 + sum(
        convs(dims, 20, 1) + 2 * dims * (dims + 1) for dims in (16, 32)),
    'resnet-46_1xb128_cifar10': 661_338 + 2 * (9 * 32 * 32 + 2 * 32)}
#: Columns of Tables 2, 3 and 6 that are met within 1 percent: million parameters, GFLOPs.
COLUMNS = {
    'vit-b': (None, 55.4), 'cp-vit-b': (88, 56.7), 'cp-vit-b-10': (75, None),
    'cp-vit-b-weights-unnormalized': (None, 56.6), 'cp-vit-b-weights-uniform': (None, 56.1),
    'cp-vit-b-weights-nonlocal': (None, 68.8), 'cp-vit-b-locality-none': (None, 56.0),
    'cp-vit-b-locality-fixed': (None, 56.0), 'cp-vit-b-locality-adaptive': (None, 56.7),
    'cp-vit-b-locality-random': (None, 56.0), 'cp-vit-b-predictor-mlp': (None, 56.5),
    'swin-b': (88, 47.0), 'cp-swin-b': (89, 48.9)}
#: Those of Tables S1 and S2, to the last digit; S2 by what ContextPool adds, as its baselines have
#: a million parameters more than a ResNet has.
SMALL = {'resnet-44': .66, 'cp-resnet-44': .68, 'cp-resnet-44-sizes': .67,
         'cp-resnet-44-similarity': .67, 'cp-resnet-44-mlp': .67, 'cp-resnet-46': .70}


def load(name: str):
    return load_config(f'mmposenc::classification/context_pool/{name}')


def pools(model: torch.nn.Module) -> list[ContextPool]:
    return [module for module in model.modules() if isinstance(module, ContextPool)]


def test_counts_are_the_papers_parameters() -> None:
    assert {name: COUNTED[name]['params'] for name in PARAMETERS} == PARAMETERS


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


@pytest.mark.parametrize('name', COLUMNS)
def test_costs_are_the_papers_within_a_percent(name: str) -> None:
    counted = COUNTED[f'{name}_8xb128_in1k-384px']
    parameters, gflops = COLUMNS[name]
    if parameters:
        assert counted['params'] == pytest.approx(parameters * 1e6, rel=0.01)
    if gflops:
        assert counted['macs'] == pytest.approx(gflops * 1e9, rel=0.01)


def test_costs_of_convnets_are_the_papers() -> None:
    assert {name: round(COUNTED[f'{name}_1xb128_cifar10']['params'] / 1e6, 2)
            for name in SMALL} == SMALL
    for depth, least, most in ((50, .1, .3), (101, .2, .4)):
        cp, deform, without = (
            COUNTED[f'{kind}resnet-{depth}_8xb32_in1k']['params'] / 1e6
            for kind in ('cp-', 'deform-', ''))
        assert least < cp - without < most and least < deform - without < most


@pytest.mark.parametrize('ablation', ABLATIONS)
def test_ablations_change_one_thing(ablation: str) -> None:
    """But for the width: 13 hidden channels an output of two convolutions."""
    plain = load('cp-vit-b_8xb128_in1k.py')
    cfg = load(f'cp-vit-b-{ablation}_8xb128_in1k.py')
    pool = cfg.model.backbone.pos_encoding[1]
    outputs = 1 if ablation in ('weights-uniform', 'weights-nonlocal', 'locality-none',
                                'locality-fixed', 'locality-random') else 2
    assert pool.get('hidden_dims') == (None if 'predictor' in ablation else 13 * outputs)
    for key, value in ABLATIONS[ablation].items():
        assert pool.pop(key) == value
    pool.hidden_dims = 26
    assert cfg.model == plain.model and cfg.train_dataloader == plain.train_dataloader


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
