"""Files of entries: what has options of its own."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ..command_line import suggest
from ..encodings import ENCODINGS, RelativeEncoding, TokenEncoding
from ..encodings.build import wrong_contract
from ..own_classes import is_file_class
from .encodings import Entry, combined, named, own_class

KEYS = ('name', 'label', 'pos_encoding', 'positions', 'rel_pos_encoding', 'rel_pos_sharing', 'cfg')
SHARINGS = ('layer', 'stage', 'all')


def read_file(path: Path) -> list[Entry]:
    """The entries of a yaml file: a mapping is one, a list of mappings several.

    Args:
        path: of the file. Classes of files that it names are looked for from its folder.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no yaml, or has a key that entries have not, or a value that does not
            fit; names the file, the entry and the key.
    """
    if not path.is_file():
        raise FileNotFoundError(f'--encodings: there is no file {str(path)!r}')
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f'{path} is no yaml file: {error}') from error
    many = content if isinstance(content, list) else [content]
    if not many or not all(isinstance(each, dict) for each in many):
        raise ValueError(f'{path} must hold an entry (a mapping with a name) or a list of them')
    return [_entry(each, path) for each in many]


def _entry(given: dict[str, Any], path: Path) -> Entry:
    name = given.get('name')
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f'{path}: name={name!r} must be a text; every entry has one')
    where = f'{path}, {name}'
    for key in given:
        if key not in KEYS:
            raise ValueError(f'{where}: there is no key {key!r}{suggest(str(key), KEYS)}; known: '
                             f'{", ".join(KEYS)}')
    label, sharing = given.get('label', name), given.get('rel_pos_sharing', 'layer')
    if not isinstance(label, str):
        raise ValueError(f'{where}: label={label!r} must be a text')
    if sharing not in SHARINGS:
        raise ValueError(f'{where}: rel_pos_sharing={sharing!r} must be one of {SHARINGS}')
    changed = given.get('cfg') or {}
    if not isinstance(changed, dict) or not all(isinstance(key, str) for key in changed):
        raise ValueError(f'{where}: cfg={changed!r} must map dotted keys of the config to values, '
                         f'such as model.backbone.pool: gap')
    tokens = _configs(given.get('pos_encoding'), TokenEncoding, f'{where}: pos_encoding', path)
    relative = _configs(given.get('rel_pos_encoding'), RelativeEncoding,
                        f'{where}: rel_pos_encoding', path)
    positions = _positions(given.get('positions'), where)
    if positions is not None and not tokens:
        raise ValueError(f'{where}: positions={positions!r} without a pos_encoding to place there')
    return Entry(name, label, dict(
        pos_encoding=tokens[0] if len(tokens) == 1 else tokens or None, positions=positions,
        rel_pos_encoding=combined(relative), rel_pos_sharing=sharing, cfg=dict(changed)))


def _positions(value: Any, where: str) -> Any:
    numbers = isinstance(value, list) and value and all(type(each) is int for each in value)
    if not (value is None or value == 'every' or numbers):
        raise ValueError(f"{where}: positions={value!r} must be a list of numbers of blocks, such "
                         f"as [0], or 'every'")
    return value


def _configs(value: Any, contract: type, where: str, path: Path) -> list[dict[str, Any]]:
    """The configs of one encoding or of a list of them."""
    if value is None:
        return []
    return [_config(each, contract, where, path)
            for each in (value if isinstance(value, list) else [value])]


def _config(value: Any, contract: type, where: str, path: Path) -> dict[str, Any]:
    """A name, or a mapping with a type, as a config any process can read."""
    try:
        if isinstance(value, str):
            _, found, cfg = named(value, path.parent)
            if cfg is None:
                raise ValueError(f'{value!r} is no encoding; leave the key out')
        elif isinstance(value, Mapping) and isinstance(value.get('type'), str):
            cfg = {key: _own_types(each, path) for key, each in value.items()}
            found, cfg['type'] = _resolved(value['type'], path)
        else:
            raise ValueError(f'{value!r} must be a name, or have a type, such as mmposenc.PEG')
        if not issubclass(found, contract):
            raise wrong_contract(found, contract, str(value))
    except ValueError as error:
        raise ValueError(f'{where}: {error}') from error
    return cfg


def _own_types(value: Any, path: Path) -> Any:
    """Types of files inside a config, as those of CombinedRPE, with their whole paths."""
    if isinstance(value, list):
        return [_own_types(each, path) for each in value]
    if isinstance(value, Mapping):
        return {key: _resolved(each, path)[1] if key == 'type' and is_file_class(each)
                else _own_types(each, path) for key, each in value.items()}
    return value


def _resolved(name: str, path: Path) -> tuple[type, str]:
    from ..registry import MODELS
    plain = name.removeprefix('mmposenc.')
    if not is_file_class(name) and (plain != name or '.' not in name):
        cls = MODELS.get(f'mmposenc.{plain}')
        if cls is None:
            raise ValueError(f'there is no type {name!r}{suggest(plain, ENCODINGS)}')
        return cls, f'mmposenc.{plain}'
    return own_class(name, path.parent)
