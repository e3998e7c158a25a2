"""Reads YAML files of users within limits: a small file must not take hours or gigabytes."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

#: The largest size of a file in bytes. The names of 13,000 classes take a third of it.
MOST_BYTES = 1_000_000
MOST_LEVELS = 50


def read_yaml(path: Path) -> Any:
    """Read a YAML file as plain values.

    Args:
        path: the file, in UTF-8.

    Raises:
        ValueError: it is no file of at most :data:`MOST_BYTES`, no YAML, deeper than
            :data:`MOST_LEVELS`, or has aliases (``*name``), of which a few lines can stand for
            gigabytes.
    """
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        raise ValueError(f'{path} must be a file of at most {MOST_BYTES:,} bytes')
    level = 0
    try:
        text = path.read_text(encoding='utf-8-sig')
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f'{path}: line {event.start_mark.line + 1} has an alias, '
                                 f'*{event.anchor}; write out what it stands for')
            level += isinstance(event, yaml.CollectionStartEvent)
            level -= isinstance(event, yaml.CollectionEndEvent)
            if level > MOST_LEVELS:
                raise ValueError(f'{path} is deeper than {MOST_LEVELS} levels')
        return yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f'{path} is no YAML in UTF-8: {error}') from error
