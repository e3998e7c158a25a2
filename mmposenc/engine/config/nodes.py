"""Reads nodes of a config, whatever they mean: keys, values and types."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmengine.config import Config, ConfigDict

from mmposenc.config_types import ReadOnlyConfig
from mmposenc.encodings.build import listed


def values_with_keys(key: str, value: object) -> Iterator[tuple[str, Any]]:
    """The values of a list, each with a key such as 'model.neck.0'; any other value with ``key``
    itself."""
    many = isinstance(value, (list, tuple))
    for i, each in enumerate(listed(value)):
        yield f'{key}.{i}' if many else key, each


def keys_and_values(node: object) -> list[tuple[Any, Any]]:
    """The names and values of a dict, or the numbers and values of a list; nothing for other
    values."""
    if isinstance(node, dict):
        return list(node.items())
    return list(enumerate(node)) if isinstance(node, (list, tuple)) else []


def flat_config(node: object, path: str = '') -> dict[str, Any]:
    """The dotted keys of all values in a config, in which lists and tuples count as equal."""
    parts = keys_and_values(node)
    if not parts:
        return {path: list(node) if isinstance(node, tuple) else node}
    return {name: leaf for key, value in parts
            for name, leaf in flat_config(value, f'{path}.{key}'.lstrip('.')).items()}


def value_at(node: object, key: str) -> Any:
    """The value at a dotted key such as 'model.neck.0.type', or None."""
    for part in key.split('.'):
        if isinstance(node, (list, tuple)):
            node = node[int(part)] if part.isdigit() and int(part) < len(node) else None
        else:
            node = node.get(part) if hasattr(node, 'get') else None
    return node


def type_name(node: ReadOnlyConfig) -> str:
    """The type of a node of a config as text; for a class, its name."""
    kind = node.get('type') or ''
    return kind if isinstance(kind, str) else kind.__name__


def type_without_library(node: ReadOnlyConfig) -> str:
    """The type of a node without the library or module in front of it."""
    return type_name(node).rpartition('.')[2]


def find_or_add_custom_hook(cfg: Config, name: str, *, add: bool = True) -> ConfigDict | None:
    """The hook ``mmposenc.NAME`` among a config's custom hooks, or None. With ``add`` it is added
    if it is not there."""
    hooks = cfg.get('custom_hooks') or []
    for hook in hooks:
        if isinstance(hook, dict) and type_without_library(hook) == name.rpartition('.')[2]:
            return hook
    if not add:
        return None
    cfg.custom_hooks = [*hooks, dict(type=name)]
    return cfg.custom_hooks[-1]


def typed_parts(node: object, path: tuple[str, ...] = ()
                ) -> Iterator[tuple[tuple[str, ...], ConfigDict]]:
    """The parts of a node that have a type, the outer ones first, with their keys."""
    if isinstance(node, dict) and 'type' in node:
        yield path, node
    for key, value in keys_and_values(node):
        yield from typed_parts(value, (*path, str(key)))
