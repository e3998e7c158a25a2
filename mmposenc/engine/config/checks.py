"""Finds mistakes in a config before anything is built."""
from __future__ import annotations

import os.path as osp
from collections.abc import Sequence
from difflib import get_close_matches

from mmengine.config import ConfigDict

from mmposenc.backbones.optional_mmengine import is_pretrained
from mmposenc.config_types import ReadOnlyConfig
from mmposenc.openmmlab.logs import warn
from mmposenc.signatures import accepted_arguments

from .config import LIVE_KEYS
from .nodes import flat_config, listed, type_name, type_without_library, value_at
from .parsed import (
    ParsedConfig,
    class_folders,
    folders_in,
    metainfo_entry,
    model_class,
    num_classes_of,
)

#: Numbers that must be at least 1: a training of fewer steps would end without an error.
_COUNTS = ('train_cfg.max_epochs', 'train_cfg.max_iters', 'train_cfg.val_interval')


def check_files(parsed: ParsedConfig, phases: tuple[str, ...]) -> None:
    """Check that the annotation files and image folders of the data sets exist.

    Args:
        parsed: the whole config.
        phases: those of 'train', 'val', 'test' that are about to be used.

    Raises:
        FileNotFoundError: names every missing path together with its config key.
    """
    nodes = {**parsed.data_sets(*phases), **parsed.metrics(*phases)}
    _refuse_missing([each for key, node in nodes.items()
                     for each in _missing_keys_and_paths(key, node)])


def check_weights(parsed: ParsedConfig) -> None:
    """Check that the files or folders of pretrained weights, which a training reads, exist.

    Args:
        parsed: the whole config.

    Raises:
        FileNotFoundError: as :func:`check_files`.
    """
    missing = []
    for key, value in flat_config(parsed.model, 'model').items():
        node, _, name = key.rpartition('.')
        is_file = name == 'pretrained' or (name == 'checkpoint'
                                           and is_pretrained(value_at(parsed.cfg, node)))
        if (is_file and isinstance(value, str) and '://' not in value
                and not osp.exists(osp.expanduser(value))):
            missing.append((key, value))
    _refuse_missing(missing)


def _refuse_missing(missing: list[tuple[str, str]]) -> None:
    """Raise an error if there are keys whose paths do not exist."""
    if missing:
        shown = '; '.join(f'{key}: {path}' for key, path in missing)
        raise FileNotFoundError('the config names files that do not exist (relative paths are '
                                f'looked up from {osp.abspath(".")}):\n{shown}')


def _missing_keys_and_paths(key: str, node: ConfigDict) -> list[tuple[str, str]]:
    """The paths of a data set or a metric that do not exist, with their keys."""
    root = node.get('data_root') or ''
    wanted = [(f'{key}.ann_file', node.get('ann_file'), osp.isfile)]
    wanted += [(f'{key}.data_prefix.{name}'.rstrip('.'), value, osp.isdir)
               for name, value in folders_in(node).items()
               if name != 'seg' or _loads_label_maps(node)]
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


def _loads_label_maps(node: ConfigDict) -> bool:
    """Whether a data set's pipeline reads the folder ``seg``, which mmdet's configs of instances
    inherit from those of panoptic segmentation."""
    return any(step.get('with_seg', 'Panoptic' in type_name(step))
               for step in node.get('pipeline') or [{'with_seg': True}])


def check_num_classes(parsed: ParsedConfig, phases: tuple[str, ...]) -> None:
    """Checks that the heads of a model have as many classes as the data sets.

    Labels beyond the head's classes would stop training somewhere inside the loss, and a head with
    too many classes trains in silence (a classifier may have more, as those of larger data sets
    do). A data set that does not name its classes is skipped.

    Args:
        parsed: the whole config.
        phases: those of 'train', 'val', 'test' that are about to be used.

    Raises:
        ValueError: names every head's and every data set's number, with their config keys; or a
            segmentor is trained on one class.
    """
    heads = _class_numbers_of_heads(parsed)
    counts = {
        f'classes of {key}': len(classes) for key, node in parsed.data_sets(*phases).items()
        if (classes := metainfo_entry(node, parsed.scope, 'classes') or class_folders(node))}
    one = [key for key, count in {**heads, **counts}.items() if count == 1]
    if parsed.scope == 'mmseg' and 'train' in phases and one:
        raise ValueError(f'{one[0]}: 1, but one class alone is not learned: each pixel with a '
                         'label is of it. Add a class for the rest, give its pixels the label 0 '
                         'and those of your class 1, and set num_classes=2')
    if not heads or not counts:
        return
    wrong = (min(heads.values()) < max(counts.values()) if parsed.scope == 'mmpretrain'
             else len({*heads.values(), *counts.values()}) > 1)
    if wrong:
        shown = '; '.join(f'{key}: {count}' for key, count in {**heads, **counts}.items())
        raise ValueError('num_classes of the heads and the classes of the data sets must be the '
                         f'same number:\n{shown}')


def _class_numbers_of_heads(parsed: ParsedConfig) -> dict[str, int]:
    """The number of classes of each head that says it, by the key of the number.

    Beside a head of areas, heads of boxes and masks know the classes of objects alone, so those of
    areas are added.
    """
    num_stuff = value_at(parsed.model, 'panoptic_fusion_head.num_stuff_classes') or 0
    numbers = {}
    for key, head in parsed.heads.items():
        if key.startswith('model.detector.'):
            continue  # It is a tracker's, whose test data name more classes than it finds.
        has_both = head.get('num_things_classes') is not None
        if (number := num_classes_of(head)) is not None:
            name = 'num_things_classes' if has_both else 'num_classes'
            alone = num_stuff and not has_both and key != 'model.backbone'
            more = ' + num_stuff_classes' * bool(has_both or alone)
            numbers[f'{key}.{name}{more}'] = number + num_stuff * bool(alone)
    return numbers


def check_ignored_label(parsed: ParsedConfig, phases: tuple[str, ...]) -> None:
    """Check that heads, data sets and metrics of a segmentor leave out the same label.

    Args:
        parsed: the whole config.
        phases: those of 'train', 'val', 'test' that are about to be used.

    Raises:
        ValueError: names each value with its config key.
    """
    if parsed.scope != 'mmseg':
        return
    nodes = {**{key: head for key, head in parsed.heads.items() if 'ignore_index' in (
        accepted_arguments(model_class(head.get('type'), 'mmseg')) or ['ignore_index'])},
        **parsed.metrics(*phases), **{key: node for key, node in parsed.data_sets(*phases).items()
                                      if 'ignore_index' in node}}
    said = {f'{key}.ignore_index': node.get('ignore_index', 255) for key, node in nodes.items()}
    if len({*said.values()}) > 1:
        shown = '; '.join(f'{key}: {value}' for key, value in said.items())
        raise ValueError(f'one label must be left out by all of them:\n{shown}')


def check_topk(parsed: ParsedConfig, phases: tuple[str, ...]) -> None:
    """Check that mmpretrain's accuracies count no more classes than the head has, which it refuses
    at the end of the first validation.

    Args:
        parsed: the whole config.
        phases: those of 'train', 'val', 'test' that are about to be used.

    Raises:
        ValueError: names both numbers, with their config keys.
    """
    for head, classes in _class_numbers_of_heads(parsed).items():
        for key, metric in parsed.metrics(*phases).items():
            if (topk := metric.get('topk')) and max(listed(topk)) > classes:
                raise ValueError(f'{key}.topk={topk} is more than {head}={classes}; write '
                                 'topk=(1,)')


def check_enough_queries(parsed: ParsedConfig) -> None:
    """Check that a DETR or a Mask2Former predicts as many objects as its test asks for.

    Otherwise it would stop at the first image of the first validation.

    Args:
        parsed: the whole config.

    Raises:
        ValueError: names both numbers, with their config keys.
    """
    model, test_cfg = parsed.model, parsed.model.get('test_cfg')
    limit, most = 'max_per_img', None
    head = _head_of(parsed, 'bbox_head', 'DETRHead', 'predict_by_feat', '_predict_by_feat_single')
    if head is not None:
        loss, queries = head.get('loss_cls') or {}, model.get('num_queries')
        by_class = loss.get('use_sigmoid', type_without_library(loss) == 'FocalLoss')
        classes = head.get('num_classes') if by_class else 1
        most = 100 if test_cfg is None else test_cfg.get(limit)
    elif (_head_of(parsed, 'panoptic_fusion_head', 'MaskFormerFusionHead', 'predict',
                   'instance_postprocess')
          and (head := _head_of(parsed, 'panoptic_head', 'MaskFormerHead'))):
        limit, queries = 'max_per_image', head.get('num_queries', 100)
        classes = head.get('num_things_classes', 80) + head.get('num_stuff_classes', 0)
        most = (test_cfg or {}).get('instance_on') and test_cfg.get(limit, 100)
    if most and queries and classes and most > queries * classes:
        raise ValueError(f'model.test_cfg.{limit}={most} is more than the {queries * classes} '
                         f'predictions of {queries} queries (num_queries)'
                         + f' and {classes} classes' * (classes > 1))


def _head_of(parsed: ParsedConfig, name: str, kind: str, *methods: str) -> ConfigDict | None:
    """The head under this name in a model, if its class is one of mmdet's ``kind`` or a subclass,
    and these methods are not a user's own."""
    head = parsed.model.get(name)
    if not isinstance(head, dict):
        return None
    cls = model_class(head.get('type'), parsed.scope or 'mmdet')
    if not cls or kind not in (each.__name__ for each in cls.__mro__):
        return None
    theirs = (getattr(cls, each).__module__.startswith(('mmdet.', 'mmposenc.')) for each in methods)
    return head if all(theirs) else None


def check_trained_classes(meta: ReadOnlyConfig, classes: Sequence[str], name: str) -> None:
    """Check that the labels of a checkpoint mean the classes of the data that it is used with.

    Args:
        meta: what the checkpoint says of itself; without the classes of its training nothing is
            checked. A warning says so where they have other names.
        classes: those of the data, in the order of the labels.
        name: the name of the checkpoint.

    Raises:
        ValueError: they are those of the training in another order.
    """
    trained = list((meta.get('dataset_meta') or {}).get('classes') or ())
    differ = [(label, before, now) for label, (before, now)
              in enumerate(zip(trained, classes, strict=False)) if before != now]
    if differ and sorted(trained) == sorted(classes):
        raise ValueError(f'{name} was trained with the classes {trained}, and the data has them in '
                         f'another order, {[*classes]}: each label would mean another class. '
                         'Prepare the data in the order of the training (--classes), or use the '
                         'config that it was trained with')
    if differ:
        label, before, now = differ[0]
        warn(f'{name} was trained with other classes: label {label} was {before!r}, and is '
             f'{now!r} in the data')


def check_same_class_folders(parsed: ParsedConfig, phases: tuple[str, ...]) -> None:
    """Checks that data sets that number their folders have the same ones.

    If one lacks a folder, all later folders get other labels, and a test is wrong without an error.

    Args:
        parsed: the whole config.
        phases: those of 'train', 'val', 'test' that are about to be used; compared with training's.

    Raises:
        ValueError: names the data sets and what only one of them has; or there is one folder.
    """
    folders_of = {key: folders for key, node in parsed.data_sets('train', *phases).items()
                  if (folders := class_folders(node))}
    for key, folders in folders_of.items():
        first = next(iter(folders_of))
        if differ := sorted({*folders} ^ {*folders_of[first]}):
            raise ValueError(f'{first} and {key} must have the same folders, whose order is that '
                             f'of the labels; only one has {", ".join(map(repr, differ[:10]))}')
        if len(folders) == 1 and 'train' in phases:
            raise ValueError(f'{key} has one folder, {folders[0]!r}, but a classifier needs two '
                             'classes: put pictures of what is not in it into a second one')


def check_sections(parsed: ParsedConfig, phases: tuple[str, ...]) -> None:
    """Check that a config has what training or testing needs.

    Args:
        parsed: the whole config.
        phases: those of 'train', 'val', 'test' that are about to be used.

    Raises:
        ValueError: names what is missing, or a key that is probably another one's misspelling.
    """
    cfg = parsed.cfg
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
    for key in _COUNTS:
        value = value_at(cfg, key)
        if value is not None and (not isinstance(value, (int, float)) or value < 1):
            raise ValueError(f'{key}={value!r} must be a number of at least 1')


def check_checkpoint(path: str, name: str) -> None:
    """Check that a checkpoint is there, before a model is built for it.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if '://' not in path and not osp.isfile(path):
        raise FileNotFoundError(f'{name}: there is no checkpoint {path!r}')
