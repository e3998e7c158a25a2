"""Writes and reads the files of a study.

There is always either a whole new file or the old one. A folder may come from somebody else, or
from another version, so each value is checked when its file is read.
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from mmposenc.writing import writing_whole_file

#: The content of a JSON file of a study, or a part of it.
Record: TypeAlias = dict[str, Any]
SCHEMA = 1
_PIXELS = re.compile('[1-9][0-9]{0,4}x[1-9][0-9]{0,4}')


def _is_number(value: Any, least: float = -1e18) -> bool:
    return type(value) in (int, float) and least <= value < 1e18


#: What a value must be, in the words of an error, and whether it is.
KINDS: dict[str, Callable[[Any], bool]] = {
    f'{SCHEMA}, as in this version': lambda value: value == SCHEMA,
    'text': lambda value: isinstance(value, str),
    'an object': lambda value: isinstance(value, dict),
    'a list': lambda value: isinstance(value, list),
    'a number': _is_number,
    'a number of at least 0': lambda value: _is_number(value, 0),
    'a number above 0': lambda value: _is_number(value, 1e-9),
    "a factor above 0, or 'HEIGHTxWIDTH'": lambda value: (
        _is_number(value, 1e-9) or isinstance(value, str) and bool(_PIXELS.fullmatch(value))),
    'a seed': lambda value: type(value) is int and 0 <= value < 2 ** 32,
    'text or a number': lambda value: isinstance(value, str) or _is_number(value),
    'a height and a width': lambda value: isinstance(value, list) and len(value) == 2 and all(
        type(side) is int and side > 0 for side in value),
    "a path in the study's folder": lambda value: isinstance(value, str) and not (
        Path(value).is_absolute() or '..' in Path(value).parts),
    'the status of a run': lambda value: value in (
        'waiting', 'running', 'finished', 'failed', 'diverged')}
_AMOUNT, _SIZE = 'a number of at least 0', "a factor above 0, or 'HEIGHTxWIDTH'"
#: For each file the kinds of its values, where '*' stands for any key and '?' means "or null".
STUDY = {'schema': next(iter(KINDS)), 'config': 'text', 'command': 'text', 'created': 'text',
         'entries': [{'name': 'text', 'label': 'text', 'changes': 'an object'}],
         'seeds': ['a seed'], 'sizes': [_SIZE], 'margin': 'a number above 0'}
RUN = {'status': 'the status of a run', 'note': 'text', 'share': _AMOUNT,
       'parameters?': _AMOUNT, 'train_seconds?': _AMOUNT, 'train_cpu_seconds?': _AMOUNT,
       'peak_bytes?': _AMOUNT,
       'tests': [{'factor': _SIZE, 'value': 'a number', 'without_images?': ['a number']}],
       'checkpoint?': "a path in the study's folder", 'environment?': {'*': 'text or a number'},
       'class_hashes': {'*': 'text'}}
COSTS = {'*': [{'factor': _SIZE, 'hw?': 'a height and a width',
                'parameters?': _AMOUNT, 'macs?': _AMOUNT, 'seconds?': _AMOUNT,
                'peak_bytes?': _AMOUNT}]}


def write_text(path: Path, text: str, *, safe: bool = True) -> None:
    """Write a file so that no reader, and no other process that writes it, ever sees half of it.

    Args:
        path: the path of the file.
        text: what it holds.
        safe: have it on the disk when this returns.
    """
    with writing_whole_file(path, durable=safe) as partial:
        partial.write_text(text, encoding='utf-8')


def write_json(path: Path, content: object, *, safe: bool = True) -> None:
    """Write what JSON can hold as :func:`write_text` does; numbers that are not finite become null.
    """
    write_text(path, json.dumps(with_none_for_not_finite(content), indent=1, allow_nan=False)
               + '\n', safe=safe)


def read_text(path: Path) -> str:
    """Read a file, and nothing that would keep a reader waiting, such as a pipe.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it is something else, or not UTF-8.
    """
    if path.exists() and not path.is_file():
        raise ValueError('it is no file')
    return path.read_text(encoding='utf-8')


def with_none_for_not_finite(content: object) -> Any:
    """The same value in the form in which JSON returns it, with None for numbers that JSON lacks.
    """
    return json.loads(json.dumps(content), parse_constant=lambda name: None)


def check_values(value: Any, kind: Any, key: str) -> None:
    """Raise ValueError, with the key and the value, for what is of another kind."""
    word = ('an object' if isinstance(kind, dict) else 'a list' if isinstance(kind, list)
            else kind)
    if not KINDS[word](value):
        raise ValueError(f'{key}={value!r} must be {word}')
    if isinstance(kind, list):
        for number, each in enumerate(value):
            check_values(each, kind[0], f'{key}.{number}')
    elif isinstance(kind, dict):
        for name, each in kind.items():
            for found in value if name == '*' else [name.rstrip('?')]:
                if not (name.endswith('?') and value.get(found) is None):
                    check_values(value.get(found), each, f'{key}.{found}')


def read_json_if_any(path: Path, kinds: object, remedy: str = 'or remove it: what it tells is then '
                     'made again') -> Any:
    """Read the content of a JSON file of a study; None if there is no file.

    Args:
        path: the path of the file.
        kinds: the kinds of its values, such as :data:`RUN`.
        remedy: the end of the error's message.

    Raises:
        ValueError: it is damaged, or its values are of other kinds.
    """
    try:
        content = json.loads(read_text(path))
        check_values(content, kinds, path.stem)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{path} is damaged or of another version ({error}); put a copy of it '
                         f'back, {remedy}') from error
    return content
