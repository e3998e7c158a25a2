"""Says what can be compared: encodings by name, sums of them, classes of the user's, yaml files
with options, and rows of papers' tables."""
from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from mmposenc.checkpoint.encoding_names import SLOTS
from mmposenc.config_types import ConfigType
from mmposenc.encodings import ENCODINGS, RelativeEncoding, TokenEncoding
from mmposenc.engine.config.nodes import listed
from mmposenc.plain_yaml import PlainLoader
from mmposenc.terminal.messages import suggestion_text
from mmposenc.user_classes import class_of_file, is_file_class

from .model_encodings import PREFIX, Changes, left_out_lines, rows_and_left_out


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
#: The name of the config's own encodings, for a pretrained model. What a sum adds to them starts
#: without any effect.
KEEP = 'keep'
#: The keys that an entry in a yaml file may have.
KEYS = ('name', 'label', 'pos_encoding', 'positions', 'rel_pos_encoding', 'rel_pos_sharing', 'cfg')


@dataclass(frozen=True)
class Entry:
    """One thing that is compared.

    Attributes:
        name: as it was typed, or as a file of entries says.
        label: what tables and charts show.
        changes: what :func:`.applying.with_entry` puts into a config.
    """

    name: str
    label: str
    changes: Changes

    def fields(self) -> ConfigType:
        """The entry as plain values, which a file can hold."""
        return {'name': self.name, 'label': self.label, 'changes': self.changes.fields()}

    @property
    def slug(self) -> str:
        """The name in a form that can be the name of a folder."""
        return re.sub(r'[^A-Za-z0-9._+=-]+', '-', self.name).strip('-.') or 'entry'


def read_entries(words: Sequence[str]) -> list[Entry]:
    """The entries that words of a command line mean.

    Args:
        words: names of :data:`NAMES` and :data:`KEEP`, sums of them ('peg+irpe-k'), classes
            ('own.py:ALiBi'), which may stand in sums, files of entries ('my.yaml';
            docs/compared.md), and tables of papers or rows of them ('paper::cpvt/table6/3'). Paths
            begin in the current folder.

    Returns:
        One entry a word, several for a file or a table; of rows of tables each encoding once.

    Raises:
        ValueError: for an unknown name, a sum that is none, a class that is no encoding, what
            stands twice, and files with anything else in them.
        FileNotFoundError: there is no such file.
    """
    entries: list[Entry] = []
    for word in words:
        try:
            if word.endswith(('.yaml', '.yml')):
                entries += read_entries_file(Path(word))
            elif word.startswith(PREFIX):
                entries += _entries_of_table(word)
            else:
                entries.append(Entry(word, *label_and_changes_of_sum(word)))
        except (ValueError, FileNotFoundError) as error:
            raise type(error)(f'--encodings {word!r}: {error}') from error
    by_slug: dict[str, Entry] = {}
    for entry in _without_repeated_rows(entries):
        first = by_slug.setdefault(entry.slug.lower(), entry)
        if first is not entry:
            raise ValueError(f'--encodings: {entry.name!r} stands there twice' if
                             first.name == entry.name else
                             f'--encodings: {first.name!r} and {entry.name!r} would be kept in '
                             f'folders of one name, {entry.slug!r}; give one another name in a '
                             f'yaml file')
    return list(by_slug.values())


def entry_of_name(name: str) -> Entry:
    """The entry of a name that needs no file of the user's.

    Raises:
        ValueError: it does, or is no name.
    """
    words = [] if name.startswith(PREFIX) else [each.strip() for each in name.split('+')]
    plain = {each.partition('@')[0] for each in words}
    if name.endswith(('.yaml', '.yml')) or not plain <= {KEEP, *NAMES}:
        raise ValueError(f'--encodings: the study in --out has {name!r} too, which a file of yours '
                         'says; name that file as in the calls before')
    return read_entries([name])[0]


def _without_repeated_rows(entries: list[Entry]) -> list[Entry]:
    """Entries without those rows of tables that equal an earlier entry. What is left out is
    printed."""
    different: list[Entry] = []
    for entry in entries:
        same = next((each for each in different if each.changes == entry.changes), None)
        if same is None or not entry.name.startswith(PREFIX):
            different.append(entry)
        elif same.name != entry.name:
            print(f'{entry.name} left out: its encodings are those of {same.name}',
                  file=sys.stderr)
    return different


def label_and_changes_of_sum(word: str) -> tuple[str, Changes]:
    """The label and the changes of a name, or of a sum of names.

    Raises:
        ValueError: as :func:`read_entries`.
    """
    parts = [part.strip() for part in word.split('+')]
    keep, alone = KEEP in parts, 'none' in parts
    if len(set(parts)) < len(parts):
        raise ValueError('one encoding stands there twice')
    if alone and keep:
        raise ValueError(f"'none' takes away what {KEEP!r} keeps; leave one out")
    labels = ["the config's own"] if keep else []
    slots: dict[type, list[ConfigType]] = {TokenEncoding: [], RelativeEncoding: []}
    for part in parts:
        if part not in (KEEP, 'none'):
            label, contract, cfg = find_encoding(part)
            labels.append(label)
            slots[contract].append({**cfg, 'zero_init': True} if keep else cfg)
    label = ' + '.join(labels)
    if alone:
        label = f'{label} alone' if label else NAMES['none'][0]
    return label, Changes(*(each if each or alone else None for each in slots.values()), keep=keep,
                          alone=alone and '@' in word)


def find_encoding(name: str, folder: Path = Path()) -> tuple[str, type, ConfigType]:
    """The label, the slot and the config of one encoding, found by its name or class.

    Args:
        name: a key of :data:`NAMES`, or a class; 'peg@0-5' is in blocks 0 to 5, 'peg@3' in one.
        folder: where a relative path of a class begins.

    Raises:
        ValueError: it is unknown, or no encoding.
        FileNotFoundError: there is no such file.
    """
    name, at, numbers = name.partition('@')
    blocks = re.fullmatch(r'(\d+)(?:-(\d+))?', numbers)
    first, last = (int(blocks[1]), int(blocks[2] or blocks[1])) if blocks else (0, -1)
    if at and first > last:
        raise ValueError(f'{name}@{numbers}: behind @ stand blocks, such as {name}@0-5 or {name}@3')
    label, cfg = NAMES.get(name, ('', None))
    if name.endswith('.py'):
        raise ValueError(f'{name!r} is a file; name the class in it, as {name}:MyEncoding')
    if not cfg and not is_file_class(name):
        # Labels begin with the names in the papers: 'RoPE, axial'.
        known = {label.partition(',')[0].lower(): word
                 for word, (label, _) in reversed(NAMES.items())}
        near = suggestion_text(known.get(name.lower(), name.lower()), NAMES)
        raise ValueError(f'there is no encoding {name!r}{near}\n'
                         f'Known: {", ".join([*NAMES, KEEP])}; sums such as peg+irpe-k; '
                         'own.py:MyEncoding; my.yaml')
    cls, full_name = class_and_type_name(cfg['type'] if cfg else name, folder)
    for contract in (TokenEncoding, RelativeEncoding):
        if issubclass(cls, contract):
            cfg = dict(cfg or {}, type=full_name)
            if not at:
                return label or cls.__name__, contract, cfg
            return (f'{label or cls.__name__} in blocks {numbers}', contract,
                    dict(cfg, blocks=list(range(first, last + 1))))
    raise ValueError(f'{name!r}: {cls.__name__} must be a TokenEncoding or a '
                     f'RelativeEncoding of mmposenc.encodings')


def class_and_type_name(name: str, folder: Path = Path()) -> tuple[type, str]:
    """A class by its name, with the type by which a config can name it in any process.

    Args:
        name: 'mmposenc.PEG' or 'PEG', or a file and a class.
        folder: where a relative path begins.

    Raises:
        ValueError: there is no such class.
        FileNotFoundError: there is no such file.
    """
    plain = name.removeprefix('mmposenc.')
    if is_file_class(name):
        path, _, cls_name = name.rpartition(':')
        full_name = f'{(folder / path).resolve()}:{cls_name}'
        return class_of_file(full_name), full_name
    if plain not in ENCODINGS:
        raise ValueError(f'there is no type {name!r}{suggestion_text(plain, ENCODINGS)}')
    return ENCODINGS[plain], f'mmposenc.{plain}'


def _entries_of_table(word: str) -> list[Entry]:
    """The entries of a paper's table, or of one of its rows. Which rows are left out is printed."""
    rows, left_out = rows_and_left_out(word)
    lines = left_out_lines(left_out)
    if not rows:
        raise ValueError('; '.join(lines))
    for line in lines:
        print(f'{word}: {line}', file=sys.stderr)
    return [Entry(*row) for row in rows]


def read_entries_file(path: Path) -> list[Entry]:
    """The entries of a yaml file: a mapping is one, a list of mappings several.

    Args:
        path: the path of the file. Classes of files that it names are looked for from its folder.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no yaml, or has a key that entries have not, or names what is no encoding;
            names the entry and the key. Where the encodings are put into a model, it refuses others
            of their options.
    """
    if not path.is_file():
        raise FileNotFoundError('there is no such file')
    try:
        content = yaml.load(path.read_text(encoding='utf-8-sig'), PlainLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f'it is no YAML in UTF-8: {error}') from error
    many = content if isinstance(content, list) else [content]
    if not many or not all(isinstance(each, dict) and isinstance(each.get('name'), str)
                           for each in many):
        raise ValueError('it must hold an entry (a mapping with a name) or a list of them')
    return [_entry_of_fields(each, path.parent) for each in many]


def _entry_of_fields(fields: ConfigType, folder: Path) -> Entry:
    name = fields['name']
    for key in fields:
        if key not in KEYS:
            raise ValueError(f'{name}: there is no key {key!r}{suggestion_text(str(key), KEYS)}; '
                             f'known: {", ".join(KEYS)}')
    for key, slot in (('positions', SLOTS[0]), ('rel_pos_sharing', SLOTS[1])):
        if key in fields and slot not in fields:
            raise ValueError(f'{name}: {key}={fields[key]!r} without a {slot}')
    configs = {slot: _encoding_configs(fields, slot, folder) for slot in SLOTS if slot in fields}
    return Entry(name, str(fields.get('label', name)), Changes.read({**fields, **configs}))


def _encoding_configs(fields: ConfigType, slot: str, folder: Path) -> list[ConfigType]:
    """The configs of an entry's encodings in a slot."""
    try:
        return [_encoding_config(each, folder) for each in listed(fields[slot]) if each != 'none']
    except ValueError as error:
        raise ValueError(f'{fields["name"]}: {slot}: {error}') from error


def _encoding_config(value: object, folder: Path) -> ConfigType:
    """A name, or a mapping with a type, as a config that any process can read."""
    if isinstance(value, str):
        return find_encoding(value, folder)[2]
    if isinstance(value, dict) and isinstance(value.get('type'), str):
        return {**value, 'type': class_and_type_name(value['type'], folder)[1]}
    raise ValueError(f'{value!r} must be a name, or have a type, such as mmposenc.PEG')
