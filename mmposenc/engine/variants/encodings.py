"""Says what can be compared: encodings by name, sums of them, classes of the user's, and yaml files
with options."""
from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmposenc.checkpoint.encoding_names import SLOTS
from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.encodings import ENCODINGS, RelativeEncoding, TokenEncoding
from mmposenc.encodings.build import wrong_contract_error
from mmposenc.engine.config.nodes import listed
from mmposenc.signatures import parameters_of
from mmposenc.terminal.messages import suggestion_text
from mmposenc.user_classes import class_by_name, class_of_file, is_file_class
from mmposenc.user_yaml import read_yaml

from .rows import PREFIX, left_out_lines, rows_and_left_out


def _encoding_words() -> dict[str, tuple[str, ConfigType | None]]:
    """The names of all classes, those of token encodings first; 'none' stands for no encoding."""
    names: dict[str, tuple[str, ConfigType | None]] = {'none': ('no encoding', None)}
    for contract in (TokenEncoding, RelativeEncoding):
        for cls in ENCODINGS.values():
            if issubclass(cls, contract):
                names |= {word: (label, dict(type=f'mmposenc.{cls.__name__}', **options))
                          for word, (label, options) in vars(cls).get('variants', {}).items()}
    return names


#: For each name, the label that people read, and the config of the encoding.
NAMES = _encoding_words()
#: Names of the config's own encodings, for a pretrained model, with their labels. What a sum adds
#: to them starts without any effect.
OWN = {'keep': "the config's own", 'resize': "the config's own, resized"}
#: The keys that an entry in a yaml file may have.
KEYS = ('name', 'label', 'pos_encoding', 'positions', 'rel_pos_encoding', 'rel_pos_sharing', 'cfg')


@dataclass(frozen=True)
class Entry:
    """One thing that is compared.

    Attributes:
        name: as it was typed, or as a file of entries says.
        label: for people.
        changes: what :func:`.applying.with_entry` sets: 'pos_encoding' with 'positions', and
            'rel_pos_encoding' with 'rel_pos_sharing', as a backbone takes them (what is not there
            stays), and 'cfg', dotted keys of the config and their values, for all else; and 'own',
            a key of :data:`OWN`, where these are added to the config's encodings.
    """

    name: str
    label: str
    changes: ConfigType

    @property
    def slug(self) -> str:
        """The name in a form that can be the name of a folder."""
        return re.sub(r'[^A-Za-z0-9._+=-]+', '-', self.name).strip('-.') or 'entry'


def read_entries(words: Sequence[str]) -> list[Entry]:
    """The entries that words of a command line mean.

    Args:
        words: names of :data:`NAMES` and :data:`OWN`, sums of them ('peg+irpe-k'), classes
            ('my_package.ALiBi', 'own.py:ALiBi'), which may stand in sums, files of entries
            ('my.yaml'; docs/compared.md), and tables of papers or rows of them
            ('paper::cpvt/table6/3'). Paths and modules are looked for from the current folder.

    Returns:
        One entry a word, several for a file or a table; of rows of tables each encoding once.

    Raises:
        ValueError: for an unknown name, a sum that is none, a class that is no encoding, what
            stands twice, and files with anything else in them.
        FileNotFoundError: there is no such file.
    """
    entries: list[Entry] = []
    for word in words:
        if word.endswith(('.yaml', '.yml')):
            entries += read_entries_file(Path(word))
        elif word.startswith(PREFIX):
            entries += _entries_of_table(word)
        else:
            try:
                label, changes = label_and_changes(word)
            except (ValueError, FileNotFoundError) as error:
                raise type(error)(f'--encodings {word!r}: {error}') from error
            entries.append(Entry(word, label, changes))
    if not entries:
        raise ValueError('--encodings: name at least one, such as none or peg')
    seen: dict[str, Entry] = {}
    for entry in _without_repeated_rows(entries):
        first = seen.setdefault(entry.slug.lower(), entry)
        if first is not entry:
            raise ValueError(f'--encodings: {entry.name!r} stands there twice' if
                             first.name == entry.name else
                             f'--encodings: {first.name!r} and {entry.name!r} would be kept in '
                             f'folders of one name, {entry.slug!r}; give one another name in a '
                             f'yaml file')
    return list(seen.values())


def _without_repeated_rows(entries: list[Entry]) -> Iterator[Entry]:
    """Yield entries, without those rows of tables that equal an earlier entry. What is left out is
    printed."""
    known: dict[str, str] = {}
    for entry in entries:
        key = str(_with_defaults(entry.changes))
        if key not in known or not entry.name.startswith(PREFIX):
            known.setdefault(key, entry.name)
            yield entry
        elif known[key] != entry.name:
            print(f'{entry.name} left out: its encodings are those of '
                  f'{known[key]}', file=sys.stderr)


def label_and_changes(word: str) -> tuple[str, ConfigType]:
    """The label and the changes of a name, or of a sum of names.

    Raises:
        ValueError: as :func:`read_entries`.
    """
    parts = [part.strip() for part in word.split('+')]
    kept_words = [part for part in parts if part in OWN]
    encodings = [label_contract_and_config(part) for part in parts if part not in (*OWN, 'none')]
    alone = 'none' in parts
    if len(set(parts)) < len(parts) or len(kept_words) > 1:
        raise ValueError('one encoding stands there twice')
    if alone and kept_words:
        raise ValueError(f"'none' takes away what {kept_words[0]!r} keeps; leave one out")
    start: ConfigType = dict(zero_init=True) if kept_words else {}
    slots = [[{**cfg, **start} for _, kind, cfg in encodings if kind is contract and cfg]
             for contract in (TokenEncoding, RelativeEncoding)]
    changes = changes_of(*(slot if slot or alone else None for slot in slots))
    if kept_words:
        changes['own'], = kept_words
    label = ' + '.join([*(OWN[part] for part in kept_words), *(label for label, _, _ in encodings)])
    if alone:
        label = f'{label} alone' if label else NAMES['none'][0]
    return label, changes


def changes_of(tokens: list[ConfigType] | None, relative: list[ConfigType] | None,
               positions: object = None,
               sharing: str = 'layer', cfg: ReadOnlyConfig | None = None
               ) -> ConfigType:
    """The changes of an :class:`Entry` for configs of encodings of both kinds; None leaves a slot
    as it is."""
    changes: ConfigType = dict(cfg=dict(cfg or {}))
    if tokens is not None:
        changes |= dict(pos_encoding=_one_or_list_or_none(tokens), positions=positions)
    if relative is not None:
        changes |= dict(rel_pos_encoding=_one_or_list_or_none(relative), rel_pos_sharing=sharing)
    return changes


def _one_or_list_or_none(encodings: list[ConfigType]) -> ConfigType | list[ConfigType] | None:
    return encodings if len(encodings) > 1 else next(iter(encodings), None)


def label_contract_and_config(name: str, folder: Path = Path()
                              ) -> tuple[str, type, ConfigType | None]:
    """The label, the slot and the config of one encoding, found by its name or class.

    Args:
        name: of :data:`NAMES`, or a class.
        folder: where a relative path of a class begins.

    Raises:
        ValueError: it is unknown, or no encoding.
        FileNotFoundError: there is no such file.
    """
    label, cfg = NAMES.get(name, ('', None))
    if name == 'none':
        return label, TokenEncoding, None
    if name.startswith(PREFIX):
        return _row_as_one_encoding(name)
    if name.endswith('.py'):
        raise ValueError(f'{name!r} is a file; name the class in it, as {name}:MyEncoding')
    if not (cfg or is_file_class(name)) and ('.' not in name or '/' in name):
        # Labels begin with the names in the papers: 'RoPE, axial'.
        known = {label.partition(',')[0].lower(): word
                 for word, (label, _) in reversed(NAMES.items())}
        near = suggestion_text(known.get(name.lower(), name.lower()), NAMES)
        raise ValueError(f'there is no encoding {name!r}{near}\n'
                         f'Known: {", ".join([*NAMES, *OWN])}; sums such as peg+irpe-k; '
                         f'own.py:MyEncoding; my_package.MyEncoding; my.yaml')
    cls, full_name = class_and_type_name(cfg['type'] if cfg else name, folder)
    for contract in (TokenEncoding, RelativeEncoding):
        if issubclass(cls, contract):
            return label or cls.__name__, contract, dict(cfg or {}, type=full_name)
    raise ValueError(f'{name!r}: {cls.__name__} must be a TokenEncoding or a '
                     f'RelativeEncoding of mmposenc.encodings')


def _row_as_one_encoding(word: str) -> tuple[str, type, ConfigType | None]:
    """The encodings of a table's row, as one item in a sum."""
    rows, _ = rows_and_left_out(word)
    _, label, row = rows[0]
    if len(rows) > 1 or len(row.tokens) + len(row.relative) != 1 or row.settings or (
            row.positions is not None or row.sharing != 'layer'):
        raise ValueError(f'{word} is not one encoding in its usual place, so it can be no part '
                         'of a sum or of a file')
    return label, TokenEncoding if row.tokens else RelativeEncoding, (row.tokens + row.relative)[0]


def class_and_type_name(name: str, folder: Path = Path()) -> tuple[type, str]:
    """A class by its name, with the type by which a config can name it in any process.

    Args:
        name: 'mmposenc.PEG' or 'PEG', a dotted name, or a file and a class.
        folder: where a relative path begins.

    Raises:
        ValueError: there is no such class.
        FileNotFoundError: there is no such file.
    """
    plain = name.removeprefix('mmposenc.')
    if not is_file_class(name) and '.' not in plain:
        if plain not in ENCODINGS:
            raise ValueError(f'there is no type {name!r}{suggestion_text(plain, ENCODINGS)}')
        return ENCODINGS[plain], f'mmposenc.{plain}'
    if is_file_class(name):
        path, _, cls_name = name.rpartition(':')
        full_name = f'{(folder / path).resolve()}:{cls_name}'
        return class_of_file(full_name), full_name
    return class_by_name(name)


def read_entries_file(path: Path) -> list[Entry]:
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
    content = read_yaml(path)
    many = content if isinstance(content, list) else [content]
    if not many or not all(isinstance(each, dict) for each in many):
        raise ValueError(f'{path} must hold an entry (a mapping with a name) or a list of them')
    return [_entry_of_fields(each, path) for each in many]


def _entries_of_table(word: str) -> list[Entry]:
    """The entries of a paper's table, or of one of its rows. Which rows are left out is printed."""
    rows, left_out = rows_and_left_out(word)
    for line in left_out_lines(left_out):
        print(f'{word}: {line}', file=sys.stderr)
    if not rows:
        raise ValueError(f'--encodings {word}: no row of it is an encoding here; the reasons are '
                         'above')
    return [Entry(name, label, changes_of(each.tokens, each.relative, each.positions, each.sharing,
                                          each.settings)) for name, label, each in rows]


def _with_defaults(value: Any) -> Any:
    """Configs with the defaults of their classes written out, so that equal encodings have equal
    configs."""
    if isinstance(value, list):
        return [_with_defaults(each) for each in value]
    if not isinstance(value, dict):
        return value
    filled = {key: _with_defaults(each) for key, each in value.items()}
    if 'type' not in value:
        return filled
    parameters = parameters_of(class_and_type_name(value['type'])[0]).values()
    return {**{each.name: each.default for each in parameters if each.default is not each.empty},
            **filled}


def _entry_of_fields(fields: ConfigType, path: Path) -> Entry:
    name = fields.get('name')
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f'{path}: name={name!r} must be a text; every entry has one')
    where = f'{path}, {name}'
    for key in fields:
        if key not in KEYS:
            raise ValueError(f'{where}: there is no key {key!r}'
                             f'{suggestion_text(str(key), KEYS)}; known: '
                             f'{", ".join(KEYS)}')
    label, sharing = fields.get('label', name), fields.get('rel_pos_sharing', 'layer')
    if not isinstance(label, str):
        raise ValueError(f'{where}: label={label!r} must be a text')
    changed = fields.get('cfg') or {}
    if not isinstance(changed, dict) or not all(isinstance(key, str) for key in changed):
        raise ValueError(f'{where}: cfg={changed!r} must map dotted keys of the config to values, '
                         f'such as model.backbone.pool: gap')
    tokens, relative = (
        _encoding_configs(fields[key], contract, f'{where}: {key}', path) if key in fields else None
        for key, contract in zip(SLOTS, (TokenEncoding, RelativeEncoding), strict=True))
    positions = fields.get('positions')
    if positions is not None and not tokens:
        raise ValueError(f'{where}: positions={positions!r} without a pos_encoding to place there')
    changes = changes_of(tokens, relative, positions, sharing, changed)
    return Entry(name, label, changes | ({'rel_pos_sharing': sharing} if 'rel_pos_sharing' in fields
                                         else {}))


def _encoding_configs(value: object, contract: type, where: str, path: Path) -> list[ConfigType]:
    """The configs of one encoding or of a list of them."""
    if value is None:
        return []
    return [_encoding_config(each, contract, where, path) for each in listed(value)]


def _encoding_config(value: object, contract: type, where: str, path: Path) -> ConfigType:
    """A name, or a mapping with a type, as a config that any process can read."""
    try:
        if isinstance(value, str):
            _, cls, cfg = label_contract_and_config(value, path.parent)
            if cfg is None:
                raise ValueError(f'{value!r} is no encoding; leave the key out')
        elif isinstance(value, Mapping) and isinstance(value.get('type'), str):
            cfg = {key: _with_whole_type_paths(each, path) for key, each in value.items()}
            cls, cfg['type'] = class_and_type_name(value['type'], path.parent)
        else:
            raise ValueError(f'{value!r} must be a name, or have a type, such as mmposenc.PEG')
        if not issubclass(cls, contract):
            raise wrong_contract_error(cls, contract, str(value))
    except ValueError as error:
        raise ValueError(f'{where}: {error}') from error
    return cfg


def _with_whole_type_paths(value: Any, path: Path) -> Any:
    """Write the paths of files in types inside a config, as those of CombinedRPE, in full."""
    if isinstance(value, list):
        return [_with_whole_type_paths(each, path) for each in value]
    if isinstance(value, Mapping):
        return {key: class_and_type_name(each, path.parent)[1] if key == 'type'
                and is_file_class(each)
                else _with_whole_type_paths(each, path) for key, each in value.items()}
    return value
