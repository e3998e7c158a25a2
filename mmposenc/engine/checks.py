"""Mistakes in a config, found before anything is built."""
from __future__ import annotations

import os.path as osp
from collections.abc import Iterator
from typing import Any

from mmengine.config import Config


def check_files(cfg: Config, phases: tuple[str, ...]) -> None:
    """Looks whether the annotation files and image folders of the data sets exist.

    Args:
        cfg: the whole config.
        phases: of 'train', 'val', 'test': the ones about to be used.

    Raises:
        FileNotFoundError: names every missing path together with its config key.
    """
    missing = []
    for phase in phases:
        dataset = (cfg.get(f'{phase}_dataloader') or {}).get('dataset')
        for key, node in _datasets(dataset, f'{phase}_dataloader.dataset'):
            missing += _missing_paths(key, node)
        evaluators = cfg.get(f'{phase}_evaluator') or []
        many = isinstance(evaluators, (list, tuple))
        for i, metric in enumerate(evaluators if many else [evaluators]):
            key = f'{phase}_evaluator.{i}' if many else f'{phase}_evaluator'
            missing += _missing_paths(key, metric)
    if missing:
        lines = '\n'.join(f'  {key}: {path}' for key, path in missing)
        raise FileNotFoundError(f'the config names files that do not exist:\n{lines}\n'
                                f'(relative paths are looked up from {osp.abspath(".")})')


def _datasets(node: Any, key: str) -> Iterator[tuple[str, Any]]:
    """The data sets inside wrappers such as RepeatDataset and ConcatDataset, with their keys."""
    if not isinstance(node, dict):
        return
    yield key, node
    yield from _datasets(node.get('dataset'), f'{key}.dataset')
    for i, child in enumerate(node.get('datasets') or []):
        yield from _datasets(child, f'{key}.datasets.{i}')


def _missing_paths(key: str, node: Any) -> list[tuple[str, str]]:
    root = node.get('data_root') or ''
    if str(node.get('type')).endswith(('CIFAR10', 'CIFAR100', 'MNIST')):
        # mmpretrain downloads these, unless told not to
        kept = node.get('download', True) or not root or '://' in root or osp.isdir(root)
        return [] if kept else [(f'{key}.data_root', root)]
    prefix = node.get('data_prefix') or {}
    prefixes = prefix if isinstance(prefix, dict) else {'': prefix}
    wanted = [(f'{key}.ann_file', node.get('ann_file'), osp.isfile)]
    wanted += [(f'{key}.data_prefix.{name}'.rstrip('.'), value, osp.isdir)
               for name, value in prefixes.items()]
    return [(name, osp.join(root, path)) for name, path, exists in wanted
            if isinstance(path, str) and path and '://' not in osp.join(root, path)
            and not exists(osp.join(root, path))]


def check_auto_scale_lr(cfg: Config) -> None:
    """Raises ValueError unless the config says for which batch size its learning rate is."""
    if not (cfg.get('auto_scale_lr') or {}).get('base_batch_size'):
        raise ValueError('--auto-scale-lr: the config has no auto_scale_lr.base_batch_size, the '
                         'total batch size that its learning rate is meant for; set it, for '
                         'example auto_scale_lr=dict(base_batch_size=16)')
