"""Parts of a config: their types, and the data sets that have a pipeline."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmengine.config import Config

from .checks import data_sets


def type_name(node: Any) -> str:
    """The type of a config's node; of a class, its name."""
    kind = node.get('type') or ''
    return kind if isinstance(kind, str) else kind.__name__


def bare_type(node: Any) -> str:
    """The same without the library or module in front of it."""
    return type_name(node).rpartition('.')[2]


def with_pipelines(cfg: Config, phase: str) -> Iterator[Any]:
    """The data sets of a phase that have a pipeline: in wrappers, the outermost last."""
    dataset = (cfg.get(f'{phase}_dataloader') or {}).get('dataset')
    found = {id(node): node for _, node in data_sets(dataset, '') if node.get('pipeline')}
    yield from reversed(list(found.values()))


def pipelines(cfg: Config, phase: str) -> list[list[Any]]:
    """The pipelines themselves."""
    return [list(node['pipeline']) for node in with_pipelines(cfg, phase)]
