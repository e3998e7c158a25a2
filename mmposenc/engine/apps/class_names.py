"""The names and colours of a model's classes."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mmengine.config import Config

from ...config_types import ReadOnlyConfig
from ..config.nodes import data_sets_with_keys, heads_with_classes, metainfo_entry, num_classes_of
from ..config.testing import scope_of


def class_names(cfg: Config, meta: ReadOnlyConfig) -> list[str]:
    """Names by label: those of the config's test data, else of its type, else of the checkpoint.

    Args:
        cfg: the whole config.
        meta: what a checkpoint says of itself; trainings leave the classes of their data in it.

    Returns:
        As many as the model has classes; those that nothing names are 'class 7'.

    Raises:
        ValueError: the config has no test data.
    """
    if not (cfg.get('test_dataloader') or {}).get('dataset'):
        raise ValueError('the config has no test_dataloader.dataset, whose pipeline says how '
                         'pictures are read')
    listed = _metainfo_of_test_data(cfg, 'classes') or (meta.get('dataset_meta')
                                                        or {}).get('classes') or ()
    names = [str(name) for name in listed]
    number = max([len(names), *(num_classes_of(head) or 0 for _, head in heads_with_classes(cfg))])
    return names + [f'class {i}' for i in range(len(names), number)]


def class_colours(cfg: Config, names: list[str]) -> list[tuple[int, int, int]]:
    """One RGB colour for each class: those of the test data, otherwise random ones that are always
    the same."""
    configured = [tuple(colour) for colour in _metainfo_of_test_data(cfg, 'palette') or ()]
    random = np.random.default_rng(42).integers(0, 256, (len(names), 3)).tolist()
    return configured if len(configured) == len(names) else [tuple(colour) for colour in random]


def _metainfo_of_test_data(cfg: Config, key: str) -> Sequence[Any] | None:
    """An entry of metainfo, of the first test data set that has it or whose class has it."""
    for _, node in data_sets_with_keys(cfg, 'test'):
        if value := metainfo_entry(node, scope_of(cfg), key):
            return value
    return None
