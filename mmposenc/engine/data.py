"""The data sets of a config, without a runner."""
from __future__ import annotations

from typing import Any

from mmengine.registry import DATASETS


def build_data_set(described: Any) -> Any:
    """A data set of the default scope, with its annotations read: some read them when asked."""
    dataset = DATASETS.build(described)
    if hasattr(dataset, 'full_init'):
        dataset.full_init()
    return dataset
