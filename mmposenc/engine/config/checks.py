"""Finds mistakes in a config before anything is built."""
from __future__ import annotations

import os
import os.path as osp
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict

from mmposenc.terminal.messages import suggestion_text

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
        missing += _missing_paths(key, node)
    if missing:
        shown = '; '.join(f'{key}: {path}' for key, path in missing)
        raise FileNotFoundError('the config names files that do not exist (relative paths are '
                                f'looked up from {osp.abspath(".")}):\n{shown}')


def _metric_configs(cfg: Config, phases: tuple[str, ...]) -> list[tuple[str, ConfigDict]]:
    """The metrics of some phases, with their keys in the config."""
    return [each for phase in phases
            for each in values_with_keys(f'{phase}_evaluator', cfg.get(f'{phase}_evaluator'))]


def _missing_paths(key: str, node: ConfigDict) -> list[tuple[str, str]]:
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
    heads = {f'{key}.{_key_of_classes(head)}': number for key, head in heads_with_classes(cfg)
             if (number := num_classes_of(head)) is not None}
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


def _key_of_classes(head: ConfigDict) -> str:
    """What a head names the number of its classes: Mask2Former's counts objects and areas."""
    if head.get('num_things_classes') is None:
        return 'num_classes'
    return 'num_things_classes + num_stuff_classes'


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
        classes = fusion.get('num_things_classes', 0) + fusion.get('num_stuff_classes', 0)
        name, most = 'max_per_image', test_cfg.get('max_per_image', 100)
    else:
        return
    if queries and classes and most and most > queries * classes:
        raise ValueError(f'model.test_cfg.{name}={most} is more than the {queries * classes} '
                         f'predictions of {queries} queries (num_queries)'
                         + f' and {classes} classes' * (classes > 1))


def check_palette_lengths(cfg: Config, phases: tuple[str, ...]) -> None:
    """Check that data sets with colours have one for each class. Otherwise libraries stop with a
    bare assertion when the model is built, or when they draw.

    Args:
        cfg: the whole config.
        phases: of 'train', 'val', 'test': the ones about to be used.

    Raises:
        ValueError: names the data set, and both numbers.
    """
    for key, node in data_sets_with_keys(cfg, *phases):
        palette = value_at(node, 'metainfo.palette')
        if not isinstance(palette, (list, tuple)) or not palette:
            continue  # There is no palette, or it is the name of one of any length.
        classes = metainfo_entry(node, cfg.get('default_scope'), 'classes') or ()
        if not isinstance(palette[0], int) and len(palette) < len(classes):
            raise ValueError(f'{key}.metainfo.palette has {len(palette)} colours for '
                             f'{len(classes)} classes; give one for each')


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
    packs = value_at(cfg, 'model.data_preprocessor.pack') or value_at(cfg, 'data_preprocessor.pack')
    for key in wanted:
        kinds = (dict, list, tuple) if key.endswith('evaluator') else (dict,)
        if not isinstance(cfg[key], kinds) and not hasattr(cfg[key], 'update'):
            raise ValueError(f'{key}={cfg[key]!r} must be a dict')
        if packs and str(value_at(cfg, f'{key}.collate_fn.type')).endswith('default_collate'):
            raise ValueError(f'{key}.collate_fn={cfg[key].collate_fn!r} with data_preprocessor.'
                             f"pack=True stacks images of one size; use type='pseudo_collate'")


def _check_section_values(cfg: Config) -> None:
    for key in _DICTS:
        if isinstance(value := value_at(cfg, key), (str, int, float, list, tuple)):
            raise ValueError(f'{key}={value!r} must be a dict')
    for key, least in _LEAST.items():
        value = value_at(cfg, key)
        if value is not None and (not isinstance(value, (int, float)) or value < least):
            raise ValueError(f'{key}={value!r} must be a number of at least {least}')
    counts = value_at(cfg, 'optim_wrapper.accumulative_counts') or 1
    # Otherwise torch stops with an assertion in its backward pass.
    if value_at(cfg, 'model_wrapper_cfg.static_graph') and counts > 1:
        raise ValueError(f'model_wrapper_cfg.static_graph=True with optim_wrapper.'
                         f'accumulative_counts={counts}: torch cannot do both; leave one of them '
                         'out')


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


def check_outside_studies(cfg: Config) -> None:
    """Raise ValueError if a config would train in the folder of a run of ``mmposenc compare`` and
    so change its results."""
    work_dir = Path(cfg.work_dir).resolve()
    for runs in work_dir.parents:
        study = runs.parent
        if runs.name != 'runs' or not (study / 'study.json').is_file():
            continue
        if not cfg.filename or Path(cfg.filename).resolve() != study / 'config.py':
            raise ValueError(
                f'work_dir={cfg.work_dir!r} is a run of the study in {study}, whose results a '
                f'training there would change. Give another --work-dir; mmposenc compare --out '
                f'{study} goes on with the study')


#: For each metric: an option, its default, and for each value of the option the names of the
#: results without their prefix. Metrics that are not listed may return any names.
_RESULTS: dict[str, tuple[str, Any, dict[Any, tuple[str, ...]]]] = {
    'CocoMetric': ('metric', 'bbox', {
        'bbox': ('bbox_mAP', 'bbox_mAP_50', 'bbox_mAP_75', 'bbox_mAP_s', 'bbox_mAP_m',
                 'bbox_mAP_l'),
        'segm': ('segm_mAP', 'segm_mAP_50', 'segm_mAP_75', 'segm_mAP_s', 'segm_mAP_m',
                 'segm_mAP_l'),
        'proposal': ('AR@100', 'AR@300', 'AR@1000', 'AR_s@1000', 'AR_m@1000', 'AR_l@1000')}),
    'IoUMetric': ('iou_metrics', 'mIoU', {
        'mIoU': ('aAcc', 'mIoU', 'mAcc'), 'mDice': ('aAcc', 'mDice', 'mAcc'),
        'mFscore': ('aAcc', 'mFscore', 'mPrecision', 'mRecall')}),
    'Accuracy': ('topk', 1, {1: ('top1',), 2: ('top2',), 3: ('top3',), 5: ('top5',)})}
_PREFIXES = {'CocoMetric': 'coco', 'Accuracy': 'accuracy'}
#: Options with which a metric returns further names.
_OTHERS = ('classwise', 'metric_items', 'thrs')


def check_save_best(cfg: Config) -> None:
    """Check that validation computes the metric by which the best checkpoint is chosen.

    mmengine finds out after the first validation that gives results, with a KeyError.

    Raises:
        ValueError: names the key, its value and the metrics that validation gives.
    """
    names: list[str] = []
    for metric in listed(cfg.get('val_evaluator')):
        kind = type_without_library(metric) if isinstance(metric, dict) else ''
        if kind not in _RESULTS or any(metric.get(key) for key in _OTHERS):
            return
        option, usual, results = _RESULTS[kind]
        prefix = metric.get('prefix') or _PREFIXES.get(kind)
        for word in listed(metric.get(option, usual)):
            names += [f'{prefix}/{name}' if prefix else name for name in results.get(word, ())]
    for name in listed(value_at(cfg, 'default_hooks.checkpoint.save_best')):
        if names and name != 'auto' and name not in names:
            raise ValueError(f'default_hooks.checkpoint.save_best={name!r}: validation gives no '
                             f'such metric{suggestion_text(name, names)}; it gives '
                             f'{", ".join(names)}')
