"""What the labels of a model are called, and in which colours they are drawn."""
from __future__ import annotations

from typing import Any

import numpy as np
from mmengine.config import Config

from .checks import data_sets, heads_of, known_metainfo
from .testing import scope_of


def class_names(cfg: Config, meta: dict[str, Any]) -> list[str]:
    """Names by label: those of the config's test data, else of its type, else of the checkpoint.

    Args:
        cfg: the whole config.
        meta: what a checkpoint says of itself; trainings leave the classes of their data in it.

    Returns:
        As many as the model has classes; those that nothing names are 'class 7'.
    """
    told = _of_test_data(cfg, 'classes') or (meta.get('dataset_meta') or {}).get('classes') or ()
    names = [str(name) for name in told]
    number = max([len(names), *(head['num_classes'] for _, head in heads_of(cfg)
                                if head.get('num_classes') is not None)])
    return names + [f'class {i}' for i in range(len(names), number)]


def palette(cfg: Config, names: list[str]) -> list[tuple[int, int, int]]:
    """An RGB colour a class: the test data's, else the same random ones each time."""
    told = [tuple(colour) for colour in _of_test_data(cfg, 'palette') or ()]
    drawn = np.random.default_rng(42).integers(0, 256, (len(names), 3)).tolist()
    return told if len(told) == len(names) else [tuple(colour) for colour in drawn]


def _of_test_data(cfg: Config, key: str) -> Any:
    """An entry of the first test data set's metainfo that has it, or of its type's."""
    for _, node in data_sets(cfg.test_dataloader.dataset, ''):
        value = ((node.get('metainfo') or {}).get(key)
                 or known_metainfo(node, scope_of(cfg)).get(key))
        if value:
            return value
    return None
