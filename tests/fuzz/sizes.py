"""Images of any size through a detector and a segmentor, in training and in a test.

    python tests/fuzz/sizes.py [NUMBER]     # 1,000 when nothing is given

Sides from 32 to 1,333 pixels, up to 1:20. Nothing raises, nothing is NaN, and afterwards the
process holds no more memory than after the first 100, the largest among them: within 1 %. Until
then caches fill. torch's own, of what oneDNN needs for each shape of an input, is kept small: it
holds 1,024 shapes otherwise, which nearly all sizes would add to.
"""
from __future__ import annotations

import ctypes
import gc
import math
import os
import random
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault('LRU_CACHE_CAPACITY', '1')  # read when torch first needs it

import torch
from mmengine.model.utils import revert_sync_batchnorm
from mmengine.registry import DefaultScope

import mmposenc  # noqa: F401
from mmposenc.engine import load_config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tinymodels import build, collated, shrink  # noqa: E402

SHORTEST, LONGEST, RATIO = 32, 1333, 20
WARM = 100
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


def load(name: str) -> torch.nn.Module:
    cfg = shrink(load_config(f'mmposenc::{MODELS[name]}'))
    cfg.model.data_preprocessor.pop('size', None)
    if name == 'segmentor':
        cfg.model.data_preprocessor.size_divisor = 32
    return revert_sync_batchnorm(build(cfg))


def sample(name: str, size: tuple[int, int]) -> dict:
    height, width = size
    meta = dict(img_shape=size, ori_shape=size, pad_shape=size, scale_factor=(1.0, 1.0))
    image = torch.randint(0, 256, (3, height, width), dtype=torch.uint8)
    if name == 'detector':
        from mmdet.structures import DetDataSample
        from mmengine.structures import InstanceData
        boxes = torch.tensor([[1.0, 1, width / 2, height / 2], [width / 4, height / 4, width - 1.0,
                                                                height - 1.0]])
        truth = InstanceData(bboxes=boxes, labels=torch.tensor([0, 1]))
        return dict(inputs=image, data_samples=DetDataSample(metainfo=meta, gt_instances=truth))
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample
    truth = PixelData(data=torch.randint(0, 3, (1, height, width)))
    return dict(inputs=image, data_samples=SegDataSample(metainfo=meta, gt_sem_seg=truth))


def check(name: str, model: torch.nn.Module, size: tuple[int, int]) -> None:
    """A training step on a batch of two sizes, and a test."""
    other = (max(SHORTEST, size[0] * 3 // 4), size[1])
    items = [sample(name, size), sample(name, other)]
    data = model.train().data_preprocessor(collated(items), training=True)
    losses = model(**data, mode='loss')
    loss, parts = model.parse_losses(losses)
    loss.backward()
    assert all(value.isfinite() for value in parts.values()), f'{name} {size}: {parts}'
    for key, p in model.named_parameters():
        assert p.grad is None or p.grad.isfinite().all(), f'{name} {size}: gradient of {key}'
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        data = model.eval().data_preprocessor(collated(items[:1]), training=False)
        found = model(**data, mode='predict')[0]
    if name == 'detector':
        assert found.pred_instances.bboxes.isfinite().all(), f'{name} {size}'
        assert found.pred_instances.scores.isfinite().all(), f'{name} {size}'
    else:
        assert found.pred_sem_seg.data.shape[-2:] == size, f'{name} {size}'
        assert found.seg_logits.data.isfinite().all(), f'{name} {size}'


def resident() -> int:
    """Bytes that this process holds, with what is free given back to the system."""
    gc.collect()
    try:
        ctypes.CDLL('libc.so.6').malloc_trim(0)
    except OSError:
        pass
    return int(Path('/proc/self/statm').read_text().split()[1]) * 4096


def run(name: str, number: int, seed: int = 0) -> float:
    """Checks that many sizes; returns the growth of the memory after the first, as a share."""
    torch.manual_seed(seed)
    scope = 'mmdet' if name == 'detector' else 'mmseg'
    with DefaultScope.overwrite_default_scope(scope), warnings.catch_warnings():
        warnings.simplefilter('ignore')
        model, wanted = load(name), sizes(number, seed)
        before = resident()
        for done, size in enumerate(wanted, 1):
            check(name, model, size)
            if done == min(WARM, number):
                before = resident()
            elif done % 100 == 0:
                print(f'{name}: {done} sizes; memory {100 * (resident() / before - 1):+.2f} %',
                      flush=True)
        return resident() / before - 1


if __name__ == '__main__':
    torch.set_num_threads(1)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for each in MODELS:
        start = time.perf_counter()
        growth = run(each, count)
        print(f'{each}: {count} sizes, no error, nothing that is not finite; memory '
              f'{100 * growth:+.2f} % ({time.perf_counter() - start:.0f} s)', flush=True)
        assert growth <= 0.01, f'{each}: memory grew by {100 * growth:.2f} %'
