"""Reads text files with one entry a line: names of classes, and lists of pictures."""
from __future__ import annotations

from pathlib import Path


def lines_of(path: str | Path) -> list[str]:
    """The lines of a text file without spaces around them. Their numbers have a meaning, so empty
    lines are left out at the end only.

    Raises:
        ValueError: it is no UTF-8, or a line before others is empty.
    """
    try:
        text = Path(path).read_text(encoding='utf-8-sig').rstrip()
    except UnicodeDecodeError as error:
        raise ValueError(f'{path} must be text in UTF-8 ({error})') from error
    lines = [line.strip() for line in text.split('\n')] if text else []
    if '' in lines:
        raise ValueError(f'{path}:{lines.index("") + 1}: the line is empty; each line has a '
                         'meaning, so delete it, or write something into it')
    return lines


def check_list(path: str, *, with_label: bool = False, suffix: str | tuple[str, ...] = ()) -> None:
    """Check a list of pictures that a library reads by itself.

    Args:
        path: the list.
        with_label: behind the name of a picture are a space and the number of its class.
        suffix: what the library adds to each name.

    Raises:
        ValueError: it names the line.
    """
    lines = Path(path).read_text(encoding='utf-8-sig').removesuffix('\n').split('\n')
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.endswith(suffix) or with_label and not line.rpartition(
                ' ')[2].isdecimal():
            rest = ', a space, and the number of its class' if with_label else (
                f' without {suffix}' if suffix else '')
            raise ValueError(f'{path}:{number}: {line[:60]!r} must be the path of a picture{rest}')
