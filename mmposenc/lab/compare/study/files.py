"""Files that are whole or the old ones at any time, and JSON in them; imports neither torch nor
OpenMMLab."""
from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

#: What a JSON file of a study holds, or a part of it.
Record: TypeAlias = dict[str, Any]


def write_text(path: Path, text: str, *, safe: bool = True) -> None:
    """Writes a file so that a reader, and another process that writes it, never sees half of it.

    Args:
        path: of the file; its folder is made.
        text: what it holds.
        safe: have it on the disk when this returns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f'{path.name}.{socket.gethostname()}.{os.getpid()}.partial')
    try:
        partial.unlink(missing_ok=True)  # of a process that was killed; a link is not followed
        with open(partial, 'x', encoding='utf-8') as file:
            file.write(text)
        if safe:
            from mmposenc.checkpoint.integrity import put_in_place  # whose package imports torch
            put_in_place(partial, path)
        else:
            os.replace(partial, path)
    except OSError as error:  # a full disk names no file, or the partial one
        error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # it is not there, or the disk takes no changes at all
            partial.unlink()


def write_json(path: Path, content: object, *, safe: bool = True) -> None:
    """As :func:`write_text`, of what json can hold; numbers that are not finite become null."""
    write_text(path, json.dumps(finite(content), indent=1, allow_nan=False) + '\n', safe=safe)


def finite(content: object) -> Any:
    """The same as json gives it back, with None for every number that json has no word for."""
    return json.loads(json.dumps(content), parse_constant=lambda name: None)


def read_json(path: Path) -> Any:
    """What a file holds; None where there is none.

    Raises:
        ValueError: it is damaged.
    """
    try:
        return json.loads(path.read_text(encoding='utf-8'))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f'{path} is damaged ({error}); put a copy of it back, or remove it: what '
                         'it tells is then made again') from error
