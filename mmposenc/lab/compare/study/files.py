"""Writes the files of a study so that there is always either the whole new file or the old one."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

from mmposenc.writing import writing_whole_file

#: The content of a JSON file of a study, or a part of it.
Record: TypeAlias = dict[str, Any]


def write_text(path: Path, text: str, *, safe: bool = True) -> None:
    """Write a file so that no reader, and no other process that writes it, ever sees half of it.

    Args:
        path: of the file.
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
