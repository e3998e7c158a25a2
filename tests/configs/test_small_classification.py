"""The micro classifiers: each learns, and takes other sizes."""
from __future__ import annotations

import pytest
import torch

pytest.importorskip('mmpretrain', reason='needs mmpretrain')
from mmposenc import engine  # noqa: E402
from mmposenc.registry import MODELS  # noqa: E402


def load(name: str):
    return engine.load_config(f'mmposenc::classification/small/{name}')


@pytest.mark.parametrize('config', [
    'deit-micro-cp-every_1xb32-40e_mnist5k.py', 'deit-micro-irpe-k_1xb32-2e_fashion.py',
    'pvt-micro-peg_1xb32-40e_mnist5k.py'])
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
