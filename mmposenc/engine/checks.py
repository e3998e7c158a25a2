"""Mistakes in a config, found before anything is built."""
from __future__ import annotations

import os.path as osp
from collections.abc import Iterator, Sized
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
    if root and not any(isinstance(path, str) and path for _, path, _ in wanted):
        # the data set finds its files below the root by itself, as mmpretrain's ImageNet does
        return [] if '://' in root or osp.isdir(root) else [(f'{key}.data_root', root)]
    return [(name, osp.join(root, path)) for name, path, exists in wanted
            if isinstance(path, str) and path and '://' not in osp.join(root, path)
            and not exists(osp.join(root, path))]


def check_num_classes(cfg: Config, phases: tuple[str, ...]) -> None:
    """Looks whether the heads of a segmentor have as many classes as the data sets.

    Labels beyond the head's classes would stop training somewhere inside the loss, and a head with
    too many classes trains in silence. A data set that does not name its classes is passed over.

    Args:
        cfg: the whole config; of other libraries than mmseg nothing is checked.
        phases: of 'train', 'val', 'test': the ones about to be used.

    Raises:
        ValueError: names every head's and every data set's number, with their config keys.
    """
    if cfg.get('default_scope') != 'mmseg':
        return
    heads = {}
    for name in ('decode_head', 'auxiliary_head'):
        node = cfg.model.get(name) or []
        many = isinstance(node, (list, tuple))
        for i, head in enumerate(node if many else [node]):
            key = f'model.{name}.{i}' if many else f'model.{name}'
            if head.get('num_classes') is not None:
                heads[f'{key}.num_classes'] = head['num_classes']
    counts = {}
    for phase in phases:
        dataset = (cfg.get(f'{phase}_dataloader') or {}).get('dataset')
        for key, node in _datasets(dataset, f'{phase}_dataloader.dataset'):
            classes = (node.get('metainfo') or {}).get('classes') or _known_classes(node)
            if classes:
                counts[f'classes of {key}'] = len(classes)
    if heads and counts and len({*heads.values(), *counts.values()}) > 1:
        lines = '\n'.join(f'  {key}: {count}' for key, count in {**heads, **counts}.items())
        raise ValueError('num_classes of the heads and the classes of the data sets must be the '
                         f'same number:\n{lines}')


def _known_classes(dataset: Any) -> Sized | None:
    """Classes that a data set's type says by itself, as ADE20KDataset does."""
    if not isinstance(dataset.get('type'), str):
        return None
    from mmseg.registry import DATASETS
    known: Sized | None = getattr(DATASETS.get(dataset['type']), 'METAINFO', {}).get('classes')
    return known


def check_auto_scale_lr(cfg: Config) -> None:
    """Raises ValueError unless the config says for which batch size its learning rate is."""
    if not (cfg.get('auto_scale_lr') or {}).get('base_batch_size'):
        raise ValueError('--auto-scale-lr: the config has no auto_scale_lr.base_batch_size, the '
                         'total batch size that its learning rate is meant for; set it, for '
                         'example auto_scale_lr=dict(base_batch_size=16)')
