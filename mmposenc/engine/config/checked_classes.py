"""Builds data sets and metrics with this project's classes in place of those of the libraries that
read annotations without checks."""
from __future__ import annotations

from typing import Any

from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, DefaultScope, Registry, init_default_scope

from .nodes import type_name

#: The classes of this project that replace those of the libraries, which read annotations without
#: checks, and the arguments with which they leave to the user what the libraries' leave to them.
_CHECKED: dict[str, dict[str, Any]] = {
    'mmdet.CocoDataset': dict(type='mmposenc.CocoDataset', unknown_categories='drop',
                              check_images=False),
    'mmpretrain.CustomDataset': dict(type='mmposenc.CustomDataset', check_images=False),
    **{f'mmdet.{name}': dict(type='mmposenc.CocoMetric')
       for name in ('CocoMetric', 'FasterCocoMetric')}}


def with_checked_classes(described: Any) -> Any:
    """Replace the libraries' data sets and CocoMetric in a description of data sets or metrics by
    this project's classes, which check what they read and evaluate what was loaded.

    Args:
        described: a dict, a list of them, or something that is built already, which is returned.
    """
    if isinstance(described, (list, tuple)):
        return [with_checked_classes(each) for each in described]
    if not isinstance(described, dict):
        return described
    node = {key: with_checked_classes(value) if key in ('dataset', 'datasets', 'metrics') else value
            for key, value in described.items()}
    kind, name, scope = node.get('type'), type_name(node), DefaultScope.get_current_instance()
    if not isinstance(kind, str):
        name = f'{getattr(kind, "__module__", "").partition(".")[0]}.{name}'
    elif '.' not in name and scope is not None:
        name = f'{scope.scope_name}.{name}'
    if name in _CHECKED:
        node = {**_CHECKED[name], **node, 'type': _CHECKED[name]['type']}
    metainfo = node.get('metainfo')
    if isinstance(metainfo, dict) and isinstance(metainfo.get('palette'), (list, tuple)):
        # Visualizers take a list for several colours, and stop if a single colour is a list.
        colours = [tuple(each) if isinstance(each, list) else each for each in metainfo['palette']]
        node['metainfo'] = {**metainfo, 'palette': colours}
    return node


def build_checked() -> None:
    """Let all registries of data sets and metrics build these classes in this process, for scripts
    that do so without this project's runner."""
    build = Registry.build

    def build_ours(self: Registry, cfg: Any, *args: object, **kwargs: object) -> Any:
        return build(self, with_checked_classes(cfg) if self.name in ('dataset', 'metric') else cfg,
                     *args, **kwargs)

    Registry.build = build_ours


def build_data_set(cfg: Config, phase: str) -> BaseDataset:
    """Build the data set of a phase and read its annotations, which some data sets do only when
    they are asked for."""
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    dataset = DATASETS.build(with_checked_classes(cfg[f'{phase}_dataloader'].dataset))
    if hasattr(dataset, 'full_init'):
        dataset.full_init()
    return dataset
