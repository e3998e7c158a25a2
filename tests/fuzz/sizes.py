"""Images of any size through a detector and a segmentor, in training and in a test.

Sides from 32 to 1,333 pixels, up to 1:20. Nothing raises, nothing is NaN.
"""
from __future__ import annotations

import math
import random
import sys
import warnings
from pathlib import Path

import torch
from mmengine.model.utils import revert_sync_batchnorm
from mmengine.registry import DefaultScope

import mmposenc  # noqa: F401
from mmposenc.engine import load_config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tinymodels import build, collated, samples, shrink  # noqa: E402

SHORTEST, LONGEST, RATIO = 32, 1333, 20
MODELS = {'detector': 'detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py',
          'segmentor': 'segmentation/sem_fpn/fpn_pvt-t-peg_8xb2-80k_ade20k-512x512.py'}


def sizes(number: int, seed: int = 0) -> list[tuple[int, int]]:
    """(height, width); the largest and the longest first."""
    rng = random.Random(seed)
    found = [(LONGEST, LONGEST), (LONGEST // RATIO, LONGEST), (SHORTEST, SHORTEST)]
    while len(found) < number:
        long = round(math.exp(rng.uniform(math.log(SHORTEST), math.log(LONGEST))))
        short = max(SHORTEST, round(long / math.exp(rng.uniform(0, math.log(RATIO)))))
        found.append((short, long) if rng.random() < 0.5 else (long, short))
    return found[:number]


def finite(value: object) -> bool:
    """Whether all numbers in a result are."""
    if isinstance(value, torch.Tensor):
        return bool(value.isfinite().all())
    items = value.all_items() if hasattr(value, 'all_items') else ()
    return all(finite(each) for _, each in items)


def run(name: str, number: int, seed: int = 0) -> None:
    """Training steps on batches of two of that many sizes, and tests."""
    torch.manual_seed(seed)
    cfg = shrink(load_config(f'mmposenc::{MODELS[name]}'))
    if name == 'segmentor':
        cfg.model.data_preprocessor.update(size=None, size_divisor=32)
    model = revert_sync_batchnorm(build(cfg))
    with DefaultScope.overwrite_default_scope(cfg.default_scope), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        for size in sizes(number, seed):
            items = samples(cfg, 2, sizes=[size, (max(SHORTEST, size[0] * 3 // 4), size[1])])
            data = model.train().data_preprocessor(collated(items), training=True)
            loss, parts = model.parse_losses(model(**data, mode='loss'))
            loss.backward()
            assert all(map(finite, parts.values())), f'{name} {size}: {parts}'
            for key, p in model.named_parameters():
                assert p.grad is None or finite(p.grad), f'{name} {size}: gradient of {key}'
            model.zero_grad(set_to_none=True)
            with torch.no_grad():
                data = model.eval().data_preprocessor(collated(items[:1]), training=False)
                found, = model(**data, mode='predict')
            assert finite(found), f'{name} {size}'
            assert name == 'detector' or found.pred_sem_seg.data.shape[-2:] == size, f'{size}'
