"""Finds mistakes in a config before anything is built."""
from __future__ import annotations

import os
import os.path as osp
from difflib import get_close_matches
from importlib.util import find_spec

from mmengine.config import Config, ConfigDict

from .config import LIVE_KEYS
from .nodes import (
    class_folders,
    data_sets_with_keys,
    heads_with_classes,
    listed,
    metainfo_entry,
    num_classes_of,
    type_without_library,
    value_at,
    values_with_keys,
)

#: Keys that must be dicts if a config has them, and the smallest values of numbers. Listed are only
#: those whose mistakes would give no error, stop a run after hours, or give an error without a
#: name.
_DICTS = ('default_hooks', 'randomness', 'visualizer', 'train_dataloader.dataset',
          'val_dataloader.dataset', 'test_dataloader.dataset')
_LEAST = {'train_cfg.max_epochs': 1, 'train_cfg.max_iters': 1, 'train_cfg.val_interval': 1}

#: mmdet's heads with object queries, which take the best ``max_per_img`` of all predictions.
_QUERY_HEADS = ('DETRHead', 'ConditionalDETRHead', 'DABDETRHead', 'DeformableDETRHead', 'DINOHead',
                'DDQDETRHead')


def check_files(cfg: Config, phases: tuple[str, ...]) -> None:
    """Check that the annotation files and image folders of the data sets exist.

    Args:
        cfg: the whole config.
        phases: of 'train', 'val', 'test': the ones about to be used.

    Raises:
        FileNotFoundError: names every missing path together with its config key.
    """
    missing = []
    for key, node in (*data_sets_with_keys(cfg, *phases), *_metric_configs(cfg, phases)):
        missing += _missing_keys_and_paths(key, node)
    if missing:
        shown = '; '.join(f'{key}: {path}' for key, path in missing)
        raise FileNotFoundError('the config names files that do not exist (relative paths are '
                                f'looked up from {osp.abspath(".")}):\n{shown}')


def _metric_configs(cfg: Config, phases: tuple[str, ...]) -> list[tuple[str, ConfigDict]]:
    """The metrics of some phases, with their keys in the config."""
    return [each for phase in phases
            for each in values_with_keys(f'{phase}_evaluator', cfg.get(f'{phase}_evaluator'))]


def _missing_keys_and_paths(key: str, node: ConfigDict) -> list[tuple[str, str]]:
    """The paths of a data set or a metric that do not exist, with their keys."""
    root = node.get('data_root') or ''
    prefix = node.get('data_prefix') or {}
    prefixes = prefix if isinstance(prefix, dict) else {'': prefix}
    wanted = [(f'{key}.ann_file', node.get('ann_file'), osp.isfile)]
    wanted += [(f'{key}.data_prefix.{name}'.rstrip('.'), value, osp.isdir)
               for name, value in prefixes.items()]
    # These data sets are mmpretrain's.
    downloads = type_without_library(node).endswith(('CIFAR10', 'CIFAR100', 'MNIST'))
    if downloads or not any(isinstance(path, str) and path for _, path, _ in wanted):
        # The data set finds its files below the root by itself, as mmpretrain's ImageNet does.
        exists = not root or '://' in root or osp.isdir(root)
        return [] if exists or downloads and node.get('download', True) else [
            (f'{key}.data_root', root)]
    return [(name, osp.join(root, path)) for name, path, exists in wanted
            if isinstance(path, str) and path and '://' not in osp.join(root, path)
            and not exists(osp.join(root, path))]


def check_num_classes(cfg: Config, phases: tuple[str, ...]) -> None:
    """Checks that the heads of a model have as many classes as the data sets.

    Labels beyond the head's classes would stop training somewhere inside the loss, and a head with
    too many classes trains in silence (a classifier may have more, as those of larger data sets
    do). A data set that does not name its classes is skipped.

    Args:
        cfg: the whole config.
        phases: of 'train', 'val', 'test': the ones about to be used.

    Raises:
        ValueError: names every head's and every data set's number, with their config keys.
    """
    scope = cfg.get('default_scope')
    heads = _class_numbers_of_heads(cfg)
    if heads and scope == 'mmpretrain':
        _check_topk(cfg, phases, min(heads.values()))
    counts = {f'classes of {key}': len(classes) for key, node in data_sets_with_keys(cfg, *phases)
              if (classes := metainfo_entry(node, scope, 'classes') or class_folders(node))}
    if not heads or not counts:
        return
    wrong = (min(heads.values()) < max(counts.values()) if scope == 'mmpretrain'
             else len({*heads.values(), *counts.values()}) > 1)
    if wrong:
        shown = '; '.join(f'{key}: {count}' for key, count in {**heads, **counts}.items())
        raise ValueError('num_classes of the heads and the classes of the data sets must be the '
                         f'same number:\n{shown}')


def _class_numbers_of_heads(cfg: Config) -> dict[str, int]:
    """The number of classes of each head that says it, by the key of the number.

    Beside a head of areas, heads of boxes and masks know the classes of objects alone, so those of
    areas are added.
    """
    num_stuff = value_at(cfg, 'model.panoptic_fusion_head.num_stuff_classes') or 0
    numbers = {}
    for key, head in heads_with_classes(cfg):
        number = num_classes_of(head)
        if number is not None and head.get('num_things_classes') is not None:
            numbers[f'{key}.num_things_classes + num_stuff_classes'] = number
        elif number is not None and num_stuff:
            numbers[f'{key}.num_classes + num_stuff_classes'] = number + num_stuff
        elif number is not None:
            numbers[f'{key}.num_classes'] = number
    return numbers


def _check_topk(cfg: Config, phases: tuple[str, ...], classes: int) -> None:
    """Refuse an accuracy among more classes than the model has: it would be an IndexError after an
    epoch."""
    asking = [each for each in heads_with_classes(cfg) if each[1].get('cal_acc')]
    asking += [each for each in _metric_configs(cfg, phases) if type_without_library(each[1])
               == 'Accuracy']
    for key, node in asking:
        if max(listed(node.get('topk')), default=0) > classes:
            raise ValueError(f'{key}.topk={node.topk!r} must be at most {classes}, the num_classes '
                             'of the model')


def check_enough_queries(cfg: Config) -> None:
    """Check that a model with object queries predicts as many objects as its test asks for.

    Otherwise it would stop at the first image of the first validation.

    Args:
        cfg: the whole config.

    Raises:
        ValueError: names both numbers, with their config keys.
    """
    model = cfg.model.get('module') or cfg.model
    head, test_cfg = model.get('bbox_head') or {}, model.get('test_cfg')
    if isinstance(head, dict) and type_without_library(head) in _QUERY_HEADS:
        loss, queries = head.get('loss_cls') or {}, model.get('num_queries')
        by_class = loss.get('use_sigmoid', type_without_library(loss) == 'FocalLoss')
        classes = head.get('num_classes') if by_class else 1
        name, most = 'max_per_img', 100 if test_cfg is None else test_cfg.get('max_per_img')
    elif 'panoptic_head' in model and (test_cfg or {}).get('instance_on'):
        fusion, queries = model.get('panoptic_fusion_head') or {}, model.panoptic_head.num_queries
        classes = num_classes_of(fusion)
        name, most = 'max_per_image', test_cfg.get('max_per_image', 100)
    else:
        return
    if queries and classes and most and most > queries * classes:
        raise ValueError(f'model.test_cfg.{name}={most} is more than the {queries * classes} '
                         f'predictions of {queries} queries (num_queries)'
                         + f' and {classes} classes' * (classes > 1))


def check_same_class_folders(cfg: Config, phases: tuple[str, ...]) -> None:
    """Checks that data sets that number their folders have the same ones.

    If one lacks a folder, all later folders get other labels, and a test is wrong without an error.

    Args:
        cfg: the whole config.
        phases: of 'train', 'val', 'test': the ones about to be used; compared with training's.

    Raises:
        ValueError: names the data sets and what only one of them has.
    """
    folders_of = {key: folders for key,
                  node in data_sets_with_keys(cfg, *dict.fromkeys(('train', *phases)))
                  if (folders := class_folders(node))}
    for key, folders in folders_of.items():
        first = next(iter(folders_of))
        if differ := sorted({*folders} ^ {*folders_of[first]}):
            raise ValueError(f'{first} and {key} must have the same folders, whose order is that '
                             f'of the labels; only one has {", ".join(map(repr, differ[:10]))}')


def check_sections(cfg: Config, phases: tuple[str, ...]) -> None:
    """Check that a config has what training or testing needs.

    Args:
        cfg: the whole config.
        phases: of 'train', 'val', 'test': the ones about to be used.

    Raises:
        ValueError: names what is missing, or a key that is probably another one's misspelling.
    """
    scope = cfg.get('default_scope')
    if scope is not None and find_spec(str(scope)) is None:
        raise ValueError(f'default_scope={scope!r}: there is no such package')
    for key in set(cfg) - LIVE_KEYS:
        near = get_close_matches(key, LIVE_KEYS, n=1, cutoff=0.9)
        if near and isinstance(cfg[key], (dict, list, tuple)):
            raise ValueError(f'the config has {key!r}, which nothing reads; did you mean '
                             f'{near[0]!r}?')
    wanted = ['model', *(f'{phase}_{part}' for phase in phases for part in ('cfg', 'dataloader'))]
    wanted += ['optim_wrapper'] * ('train' in phases)
    wanted += [f'{phase}_evaluator' for phase in phases if phase != 'train']
    missing = [key for key in wanted if not cfg.get(key) and not isinstance(cfg.get(key), dict)]
    if missing:
        raise ValueError(f'the config has no {", ".join(missing)} (phases: {", ".join(phases)})')
    _check_section_values(cfg)
    for key in wanted:
        kinds = (dict, list, tuple) if key.endswith('evaluator') else (dict,)
        if not isinstance(cfg[key], kinds) and not hasattr(cfg[key], 'update'):
            raise ValueError(f'{key}={cfg[key]!r} must be a dict')


def _check_section_values(cfg: Config) -> None:
    for key in _DICTS:
        if isinstance(value := value_at(cfg, key), (str, int, float, list, tuple)):
            raise ValueError(f'{key}={value!r} must be a dict')
    for key, least in _LEAST.items():
        value = value_at(cfg, key)
        if value is not None and (not isinstance(value, (int, float)) or value < least):
            raise ValueError(f'{key}={value!r} must be a number of at least {least}')


def check_checkpoint(path: str, name: str) -> None:
    """Check by its first bytes that a file can be a checkpoint.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds something else.
    """
    if '://' in path:
        return
    if not osp.isfile(path):
        raise FileNotFoundError(f'{name}: there is no checkpoint {path!r}')
    with open(path, 'rb') as file:
        start = file.read(9)
    # The file begins as a zip archive, as a pickle of torch before 1.6, or as the JSON header of a
    # safetensors file.
    if not start.startswith((b'PK', b'\x80')) and start[8:9] != b'{':
        what = 'is empty' if not start else 'is no checkpoint of PyTorch and no safetensors file'
        raise ValueError(f'{name}: {path!r} {what}')


def check_writable_folder(path: str, name: str) -> None:
    """Check that a folder exists or can be made, and that files can be written into it.

    Raises:
        ValueError: names the option and the file that is in the way.
    """
    existing = osp.abspath(path)
    while not osp.lexists(existing):
        existing = osp.dirname(existing)
    if not osp.isdir(existing):
        raise ValueError(f'{name} {path}: {existing} is no folder')
    if not os.access(existing, os.W_OK):
        raise ValueError(f'{name} {path}: {existing} may not be written to')


def check_drawings_replace_no_images(cfg: Config, phase: str, path: str, name: str) -> None:
    """Check that drawn pictures, which have the names of their images, do not replace these.

    Raises:
        ValueError: names the option and the data set whose folder it is.
    """
    check_writable_folder(path, name)
    for key, node in data_sets_with_keys(cfg, phase):
        prefix = node.get('data_prefix') or {}
        for value in prefix.values() if isinstance(prefix, dict) else [prefix]:
            images = osp.join(node.get('data_root') or '', value or '')
            if osp.exists(path) and osp.exists(images) and osp.samefile(path, images):
                raise ValueError(f'{name} {path}: pictures would replace files of {key}, which '
                                 f'lie there; give another folder')
