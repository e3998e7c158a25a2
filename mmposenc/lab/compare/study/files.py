"""Writes files so that there is always either the whole new file or the old one, and JSON in them.
It imports neither torch nor OpenMMLab."""
from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

#: The content of a JSON file of a study, or a part of it.
Record: TypeAlias = dict[str, Any]


def write_text(path: Path, text: str, *, safe: bool = True) -> None:
    """Write a file so that no reader, and no other process that writes it, ever sees half of it.

    Args:
        path: of the file; its folder is made.
        text: what it holds.
        safe: have it on the disk when this returns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f'{path.name}.{socket.gethostname()}.{os.getpid()}.partial')
    try:
        # A partial file of a process that was killed. If it is a link, the link itself is removed.
        partial.unlink(missing_ok=True)
        with open(partial, 'x', encoding='utf-8') as file:
            file.write(text)
        if safe:
            # Imported here, because its package imports torch.
            from mmposenc.checkpoint.integrity import put_in_place
            put_in_place(partial, path)
        else:
            os.replace(partial, path)
    except OSError as error:  # The error of a full disk names no file, or the partial one.
        error.filename = str(path)
        raise
    finally:
        # The partial file is not there, or the disk accepts no changes at all.
        with suppress(OSError):
            partial.unlink()


def write_json(path: Path, content: object, *, safe: bool = True) -> None:
    """Write what JSON can hold as :func:`write_text` does; numbers that are not finite become null.
    """
    write_text(path, json.dumps(with_none_for_not_finite(content), indent=1, allow_nan=False)
               + '\n', safe=safe)


def with_none_for_not_finite(content: object) -> Any:
    """The same value in the form in which JSON returns it, with None for numbers that JSON lacks.
    """
    return json.loads(json.dumps(content), parse_constant=lambda name: None)


def read_json(path: Path) -> Any:
    """Read the content of a JSON file; None if there is no file.

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
