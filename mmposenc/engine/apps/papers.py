"""Counts of the models in papers' tables, compared with the counts that the papers report."""
from __future__ import annotations

from collections.abc import Iterator

import torch

from mmposenc.backbones import count_macs
from mmposenc.encodings import ContextPool
from mmposenc.operators import papers

from ..config.config import load_config
from ..config.models import build_model

UNITS = {'M': 10 ** 6, 'G': 10 ** 9}


def count(name: str) -> dict[str, int]:
    """Parameters of a model, and of a classifier the multiply-accumulates of one image, to a
    million: values of iRPE as in its release; ContextPool without its means, as in its paper, and
    also with them."""
    cfg = load_config(str(papers.config_of(name)))
    cfg.model.pop('teacher', None)
    # mmdet's ResNet reads numbers from tensors while it is built.
    on_cpu = 'ResNet' in cfg.model.get('backbone', {}).get('type', '')
    with torch.device('cpu' if on_cpu else 'meta'):
        model = build_model(cfg)
    counted = {'params': sum(p.numel() for p in model.parameters())}
    dataset = cfg.test_dataloader.dataset
    size = next((step.crop_size for step in dataset.get('pipeline', ())
                 if step.type == 'CenterCrop'), 32 if dataset.type == 'CIFAR10' else None)
    if size is not None:
        pooled = any(isinstance(module, ContextPool) for module in model.modules())
        for name, means in (('macs', False), ('macs_with_means', True))[:1 + pooled]:
            macs = count_macs(model, (size, size), values_as_released=True, pooled_means=means)
            counted[name] = round(macs / 1e6) * 10 ** 6
    return counted


def as_number(said: papers.Number) -> tuple[float, float] | None:
    """A count as a paper gives it, and the unit of its last digit: '22.05M' is 22,050,000 to
    10,000. None where there is none."""
    if isinstance(said, int):
        return said, 1
    if not isinstance(said, str) or said[-1] not in UNITS:
        return None
    digits, unit = said[:-1], UNITS[said[-1]]
    return float(digits) * unit, unit / 10 ** len(digits.partition('.')[2])


def stale_counts() -> Iterator[str]:
    """Counts of configs/models.yaml that are not those of the models."""
    for name, entry in papers.models().items():
        said = entry.get('counted')
        if said is not None and (now := count(name)) != said:
            yield f'{name}: configs/models.yaml says {said}, the model has {now}'


def differences_to_papers() -> Iterator[str]:
    """Parameters of tables that are further from those here than a digit of their last place."""
    for table in papers.tables().values():
        for row in table.rows:
            number = as_number(row.numbers.get('params'))
            if number and row.counted and abs(row.counted['params'] - number[0]) > number[1]:
                yield (f'{table.id}, {row.name}: {row.numbers["params"]} parameters there, '
                       f'{row.counted["params"]:,} here')
