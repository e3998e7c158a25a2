"""Writes a config as Python that reads back as it was."""
from __future__ import annotations

import math
from pprint import pformat
from typing import Any

#: Types whose ``repr`` is Python.
_PLAIN = (bool, int, str, complex, bytes, range, type(None), type(...))


class _Name:
    """Something that is written without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def config_text(cfg: dict[str, Any]) -> str:
    """The text of a config, with a statement for each key."""
    values = {key: pformat(_literal(value), width=100, compact=True, sort_dicts=False)
              for key, value in cfg.items()}
    text = ''.join(f'{key} = {value}\n' for key, value in values.items())
    # In double braces stand variables, which mmengine replaces in the text of a file. Only a string
    # can have them here.
    return text.replace('{{', '{\\x7b')


def _literal(value: Any) -> Any:
    """A value of types whose ``repr`` is Python. Of what is none of them, such as a path, the text
    is taken."""
    if isinstance(value, dict):
        return {_literal(key): _literal(each) for key, each in value.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(map(_literal, value))
    if getattr(value, 'ndim', None) == 0:  # A number of NumPy or torch.
        return _literal(value.item())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _Name(f"float('{float(value)}')")
    if isinstance(value, type):
        name = f'{value.__module__}.{value.__qualname__}'
        return _Name(value.__name__) if name == f'builtins.{value.__name__}' else name
    if type(value) in _PLAIN:
        return value
    return int(value) if isinstance(value, int) else str(value)
