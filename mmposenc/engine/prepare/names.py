"""Reads what stands beside labels: the names of classes, and their colours in masks.

Values are taken as they are written, before a parser makes numbers of them.
"""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from mmposenc.openmmlab.datasets.lists import lines_of

from .folders import PrepareError

#: The value of pixels that have no label.
VOID = 255
#: Names in a table of colours for pixels that have no label.
_NO_CLASS = {'void', 'ignore', 'ignored', 'unlabelled', 'unlabeled'}
#: Red, green and blue.
Colour = tuple[int, ...]


def yolo_description(source: Path) -> dict[str, Any]:
    """What the data.yaml of a folder says, else its other YAML file that names classes; 'file' is
    its path, and 'names' is a list. Names of a classes.txt stand there, too.

    Raises:
        PrepareError: a file is damaged, or two of them have other names.
    """
    paths = [path for path in sorted(source.glob('*.y*ml')) if path.is_file()]
    found: list[dict[str, Any]] = []
    for path in [path for path in paths if path.stem == 'data'] or paths:
        try:
            text = path.read_text('utf-8-sig')
            if yaml.AliasEvent in map(type, yaml.parse(text, yaml.BaseLoader)):
                raise yaml.YAMLError('it has aliases, which are not read')  # They grow without end.
            description = yaml.load(text, yaml.BaseLoader) or {}  # noqa: S506
            names = _list_of_names(description.get('names') or [])
        except (AttributeError, TypeError, ValueError, KeyError, RecursionError,
                yaml.YAMLError) as error:
            raise PrepareError(f'{path}: names must be a list of classes, or their numbers from 0 '
                               f'on with a name each ({reason_in_words(error)})') from error
        if names or path.stem == 'data':
            found.append({**description, 'file': path, 'names': names})
    if (path := source / 'classes.txt').is_file():
        found.append({'file': path, 'names': lines_of(path)})
    named = [each for each in found if each['names']]
    for each in named[1:]:
        if each['names'] != named[0]['names']:
            raise PrepareError(f'{named[0]["file"]} and {each["file"]} name other classes; delete '
                               'the one that is wrong')
    return {**(found or [{}])[0], 'names': named[0]['names'] if named else []}


def _list_of_names(names: Any) -> list[str]:
    if isinstance(names, dict):
        numbered = {int(key): name for key, name in names.items()}
        names = [numbered[number] for number in range(len(names))]
    if not isinstance(names, list) or {*map(type, names)} - {str}:
        raise TypeError(f'they are {str(names)[:60]!r}')
    return names


def reason_in_words(error: Exception) -> str:
    return f'lacks {error}' if isinstance(error, KeyError) else str(error) or type(error).__name__


def colours_of_table(path: Path) -> tuple[list[str], dict[Colour, int]]:
    """The names of classes in a table of colours, and the label of each colour.

    Each line has a name and its red, green and blue, in any of the ways of tools:
    ``square:255,0,0::``, ``255 0 0 square``. A line that begins with # is none, nor is
    ``name,r,g,b``. Pixels of the colour of 'void' or 'ignore' have no label.

    Raises:
        PrepareError: the file or a line cannot be read, or two lines have one name or colour.
    """
    names: list[str] = []
    colours: dict[Colour, int] = {}
    for line in lines_of(path):
        words = re.split(r'[\s:,;]+', line.strip(' :,;'))
        if words[-1].isdecimal():
            words = words[-3:] + words[:-3]
        name, colour = ' '.join(words[3:]), tuple(int(each) if each.isdecimal() else 256
                                                  for each in words[:3])
        if line.startswith('#') or line.lower() == 'name,r,g,b':  # the head of Kaggle's tables
            continue
        if not name or max(colour) > 255 or colour in colours or name in names:
            raise PrepareError(f'{path}: {line[:60]!r} must be the name of a class and its red, '
                               'green and blue from 0 to 255, and no two the same')
        is_class = name.lower() not in _NO_CLASS
        colours[colour] = len(names) if is_class else VOID
        names += [name] * is_class
    return names, colours
