"""The micro classifiers: each learns, and takes other sizes."""
from __future__ import annotations

import pytest
import torch

pytest.importorskip('mmpretrain', reason='needs mmpretrain')
from mmposenc import engine  # noqa: E402
from mmposenc.registry import MODELS  # noqa: E402

#: Variants of one encoding, on one of the two data sets.
VARIANTS = ('deit-micro-cp-every', 'deit-micro-cp-every-fixed', 'deit-micro-cp-every-uniform')
#: The encoding's own parameters of width 48 on 4x4 cells with 3 heads and a class token, and of
#: widths 48 and 96 on 8x8 and 4x4 cells.
#: Two 3x3 convolutions, 48 -> 12 -> 2.
CONTEXT_POOL = 12 * (9 * 48 + 1) + 2 * (9 * 12 + 1)
ADDED = {'deit-micro-none': 0, 'deit-micro-learned': 48 * (16 + 1), 'deit-micro-sincos': 0,
         'deit-micro-peg': 48 * (9 + 1), 'deit-micro-irpe-k': 3 * 16 * (49 + 1),
         'deit-micro-shaw': 3 * 16 * (25 + 1), 'pvt-micro-none': 0,
         # After two blocks: 48 -> 4 -> 2, and 48 -> 2 -> 1.
         'deit-micro-cp-every': 2 * (4 * (9 * 48 + 1) + 2 * (9 * 4 + 1)),
         **dict.fromkeys(VARIANTS[1:], 2 * (2 * (9 * 48 + 1) + 9 * 2 + 1)),
         'deit-micro-cp': CONTEXT_POOL, 'deit-micro-cp-peg': CONTEXT_POOL + 48 * (9 + 1),
         'pvt-micro-learned': 48 * 64 + 96 * 16, 'pvt-micro-peg': (48 + 96) * (9 + 1)}


def load(name: str):
    return engine.load_config(f'mmposenc::classification/small/{name}')


def parameters(name: str) -> int:
    cfg = load(name)
    return sum(p.numel() for p in MODELS.build(cfg.model.backbone).parameters())


@pytest.mark.parametrize('name', ADDED)
def test_only_the_encoding_differs(name):
    plain = f"{name.split('-')[0]}-micro-none_1xb32-40e_mnist5k.py"
    assert parameters(f'{name}_1xb32-40e_mnist5k.py') - parameters(plain) == ADDED[name]


def test_scale_augmentation_changes_scale_and_nothing_else():
    plain, scaled = (load(f'deit-micro-none{kind}_1xb32-40e_mnist5k.py')
                     for kind in ('', '-scales'))
    pipelines = [cfg.train_dataloader.dataset.pipeline for cfg in (plain, scaled)]
    steps = [[dict(step) for step in pipeline if 'RandomAffine' not in step['type']]
             for pipeline in pipelines]
    assert steps[0] == steps[1]
    affine = [next(dict(step) for step in pipeline if 'RandomAffine' in step['type'])
              for pipeline in pipelines]
    assert {key for key in affine[1] if affine[0].get(key) != affine[1][key]} == {
        'scale', 'interpolation'}
    assert plain.test_dataloader == scaled.test_dataloader and plain.model == scaled.model


@pytest.mark.parametrize('config', [
    'deit-micro-cp-every_1xb32-40e_mnist5k.py', 'deit-micro-irpe-k_1xb32-2e_fashion.py',
    'deit-micro-shaw_1xb32-40e_mnist5k.py',
    'deit-micro-none-p4-scales_1xb32-40e_mnist5k.py', 'deit-micro-learned_1xb32-40e_mnist5k.py',
    'pvt-micro-peg_1xb32-40e_mnist5k.py', 'pvt-micro-learned_1xb32-2e_fashion.py'])
def test_every_parameter_learns_and_other_sizes_pass(config):
    cfg = load(config)
    torch.manual_seed(0)
    cfg.model.data_preprocessor = cfg.data_preprocessor
    cfg.model._scope_ = 'mmpretrain'
    model = MODELS.build(cfg.model)
    labels = torch.tensor([1, 2])
    images = torch.randn(2, 1, 32, 32)
    torch.nn.functional.cross_entropy(model(images, mode='tensor'), labels).backward()
    missing = [name for name, p in model.named_parameters()
               if p.grad is None or not bool(p.grad.abs().sum() > 0)]
    assert not missing
    model.eval()
    with torch.no_grad():
        for side in (24, 42, 48, 64):
            assert torch.isfinite(model(torch.randn(1, 1, side, side), mode='tensor')).all()
