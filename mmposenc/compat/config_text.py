"""Writes a config as Python that reads back as it was."""
from __future__ import annotations

import math
from collections.abc import Sequence
from keyword import iskeyword
from typing import Any

_WIDTH = 100
#: Types whose ``repr`` is Python.
_PLAIN = (bool, int, complex, bytes, range, type(None), type(...))


def config_text(cfg: dict[str, Any]) -> str:
    """The text of a config, with a statement for each key."""
    text = ''.join(f'{key} = {_written(value)}\n' for key, value in cfg.items())
    # In double braces stand variables, which mmengine replaces in the text of a file. Only a string
    # can have them here.
    return text.replace('{{', '{\\x7b')


def _written(value: Any, pad: str = '') -> str:
    """A value as Python, whose lines but the first begin with ``pad``. What no literal can stand
    for, such as a path, is written as its text."""
    deeper = pad + '    '
    if isinstance(value, dict):
        named = all(isinstance(key, str) and key.isidentifier() and not iskeyword(key)
                    for key in value)
        items = [(f'{key}=' if named else f'{_written(key)}: ') + _written(each, deeper)
                 for key, each in value.items()]
        return _in_brackets('dict(' if named else '{', items, ')' if named else '}', pad)
    if isinstance(value, (list, tuple)):
        items = [_written(each, deeper) for each in value]
        if isinstance(value, list):
            return _in_brackets('[', items, ']', pad)
        return f'({items[0]},)' if len(items) == 1 else _in_brackets('(', items, ')', pad)
    if isinstance(value, (set, frozenset)):
        return f'{"set" if isinstance(value, set) else "frozenset"}({_written([*value], pad)})'
    if getattr(value, 'ndim', None) == 0:  # A number of NumPy or torch.
        return _written(value.item())
    if isinstance(value, float):
        return float.__repr__(value) if math.isfinite(value) else f"float('{float(value)}')"
    if isinstance(value, type):
        if value.__module__ == 'builtins':
            return value.__name__
        value = f'{value.__module__}.{value.__qualname__}'
    if isinstance(value, int) and type(value) not in _PLAIN:
        value = int(value)
    return repr(value if type(value) in _PLAIN else str(value))


def _in_brackets(opening: str, items: Sequence[str], closing: str, pad: str) -> str:
    """Items in one line, or else each in its own."""
    line = f'{opening}{", ".join(items)}{closing}'
    if '\n' not in line and len(pad) + len(line) <= _WIDTH:
        return line
    lines = ''.join(f'{pad}    {item},\n' for item in items)
    return f'{opening}\n{lines}{pad}{closing}'
