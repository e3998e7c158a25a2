"""Finds data sets inside wrappers."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def unwrapped_datasets(dataset: Any) -> Iterator[Any]:
    """The data sets inside wrappers such as ConcatDataset and RepeatDataset."""
    if hasattr(dataset, 'datasets'):
        for each in dataset.datasets:
            yield from unwrapped_datasets(each)
    elif hasattr(dataset, 'dataset'):
        yield from unwrapped_datasets(dataset.dataset)
    else:
        yield dataset
