"""Every shipped config, with few channels, trains a step: a finite loss, and a gradient for every
trained weight, as several processes need it."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmengine.model.utils import revert_sync_batchnorm
from tinymodels import build, collated, samples, shrink

import mmposenc  # noqa: F401
from mmposenc.engine import load_config
from mmposenc.engine.gradients import without_gradient

ROOT = Path(__file__).resolve().parents[2] / 'configs'
CONFIGS = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob('*.py')
                 if '_base_' not in path.parts)


def step(model, data) -> tuple[list[str], bool]:
    """Weights without a gradient, and whether the loss is finite."""
    parse, losses = model.parse_losses, []

    def noted(found):
        losses.append(parse(found))
        return losses[-1]
    model.parse_losses = noted
    names = without_gradient(model, data)
    (loss, _), = losses
    return names, bool(loss.isfinite())


@pytest.mark.parametrize('folder', sorted({'/'.join(name.split('/')[:2]) for name in CONFIGS}))
def test_every_weight_gets_a_gradient(folder: str) -> None:
    wrong, seen = {}, set()
    for name in CONFIGS:
        if not name.startswith(f'{folder}/'):
            continue
        cfg = shrink(load_config(str(ROOT / name)))
        if str(cfg.model) in seen:  # the same model on another schedule or data set
            continue
        seen.add(str(cfg.model))
        # A detector's memory that nobody has written may hold NaN, which can't be matched.
        model = revert_sync_batchnorm(build(cfg, initialize=cfg.default_scope != 'mmpretrain'))
        names, is_finite = step(model, collated(samples(cfg, 2)))
        if names or not is_finite:
            wrong[name] = names, is_finite
    assert wrong == {}


def test_a_weight_without_a_gradient_is_found_and_nothing_changes() -> None:
    """RetinaNet on all four stages, the first of which FPN does not take."""
    cfg = shrink(load_config(str(
        ROOT / 'detection/context_pool/retinanet_swin-t_fpn_1x_coco.py')))
    cfg.model.backbone.out_indices = (0, 1, 2, 3)
    cfg.model.neck.update(in_channels=[4, 8, 16, 32], start_level=1)
    cfg.model.backbone.pos_encoding = dict(type='mmposenc.PEG', norm_act=True)
    model = build(cfg).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    found = without_gradient(model, collated(samples(cfg, 2)))
    assert found == ['backbone.norm0.weight', 'backbone.norm0.bias']
    assert torch.equal(state, torch.get_rng_state()) and not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
