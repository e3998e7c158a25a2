"""Says which part of a data set (train, val or test) a picture belongs to."""
from __future__ import annotations

import random
from pathlib import Path, PurePosixPath
from typing import Any

from mmposenc.openmmlab.datasets.coco_files import PART_OF_NAME
from mmposenc.openmmlab.datasets.image_files import PICTURES, files_below
from mmposenc.openmmlab.datasets.lists import lines_of
from mmposenc.terminal.messages import counted

from .folders import Log, PrepareError
from .labels import PART_LISTS, Picture

#: For each part, places that say which pictures it has: for each the paths where it may be.
_Places = dict[str, list[list[Path]]]


def part_by_picture(kind: str, source: Path, pictures: list[Picture], description: dict[str, Any],
                    val: float, log: Log) -> dict[str, str]:
    """The part of each picture by its key, as data.yaml, lists or folders say it, else drawn.

    Args:
        kind, source: see :func:`.labels.read_labels`.
        pictures: all that have usable labels.
        description: what :func:`.names.yolo_description` gives.
        val: see :func:`draw_parts`.
        log: called with a line if parts are drawn, or if pictures are in no part.

    Raises:
        PrepareError: a picture is in two parts, or what says parts has none for train or val.
    """
    places = _places_of_yaml(source, description) or _places_of_lists(kind, source)
    part_of: dict[str, str] = {}
    for part, each_place in places.items():
        for paths in each_place:
            for key in next(filter(None, (_keys_at(path, pictures) for path in paths)), []):
                if part_of.setdefault(key, part) != part:
                    raise PrepareError(f'{paths[0]}: the picture {key} is in {part_of[key]}, too')
    if not {'train', 'val'} <= {*part_of.values()}:
        part_of = parts_of_folders(pictures)
    if not part_of and places:
        raise PrepareError(f'{source}: its lists or data.yaml name no picture for '
                           f'{"val" if places.get("train") else "train"}: {places}; correct them, '
                           'or delete them to draw the parts')
    if not part_of:
        log(f'a random share of {val:g} of the pictures is for validation (--val); if several show '
            'one scene, put them into folders train and val instead')
        return draw_parts(pictures, val)
    if left_out := len(pictures) - len(part_of):
        log(f'in no part, left out: {counted(left_out, "picture")}')
    return part_of


def _places_of_yaml(source: Path, description: dict[str, Any]) -> _Places:
    """The folders and lists of data.yaml; none if train and val are the same."""
    entries = {part: description.get(part) or [] for part in ('train', 'val', 'test')}
    if entries['train'] == entries['val']:
        return {}
    # Roboflow writes ../train/images for train/images.
    return {part: [[source / str(description.get('path', '')) / place, source / place,
                    source / place.lstrip('./')]
                   for place in map(str, each if isinstance(each, list) else [each])]
            for part, each in entries.items()}


def _places_of_lists(kind: str, source: Path) -> _Places:
    """Lists such as VOC's ImageSets/Main/train.txt, or train.txt beside the labels."""
    lists = [path for path in map(Path, files_below(source)) if path.name in PART_LISTS]
    folder = 'Segmentation' if kind == 'masks' else 'Main'
    places: _Places = {}
    for path in [path for path in lists if path.parent.name == folder] or lists:
        places.setdefault(PART_OF_NAME[path.stem], []).append([path])
    return places


def _keys_at(place: Path, pictures: list[Picture]) -> list[str]:
    """The keys of the pictures in a folder, or of those that a list names by their paths, or by
    their names alone. Pictures in a list may have no labels; they are passed over."""
    if place.suffix != '.txt' or not place.is_file():
        real = place.resolve()
        return [each.key for each in pictures if real in each.path.resolve().parents]
    keys, by_stem = [], dict[str, list[Picture]]()
    for each in pictures:
        by_stem.setdefault(each.path.stem, []).append(each)
    for line in lines_of(place):
        name = PurePosixPath(line.replace('\\', '/').lstrip('./'))
        name = name.with_suffix('') if name.suffix.lower() in PICTURES else name
        near = by_stem.get(name.name, [])
        if len(near) > 1:
            near = [each for each in near
                    if each.path.with_suffix('').as_posix().endswith(f'/{name}')]
        if len(near) > 1:
            raise PrepareError(f'{place}: {line!r} names {len(near)} pictures, such as '
                               f'{near[0].path} and {near[1].path}')
        keys += [each.key for each in near]
    return keys


def parts_of_folders(pictures: list[Picture]) -> dict[str, str]:
    """The part of each picture, by its key, if folders such as ``train`` and ``val`` say it; an
    empty dict without such folders.

    Raises:
        PrepareError: only some pictures are in them.
    """
    part_of = {each.key: next((PART_OF_NAME[name] for name in each.key.lower().split('/')[:-1]
                               if name in PART_OF_NAME), '') for each in pictures}
    if not {'train', 'val'} <= {*part_of.values()}:
        return {}
    for each in pictures:
        if not part_of[each.key]:
            raise PrepareError(f'{each.path} must be in a folder train, val or test, as others are')
    return part_of


def draw_parts(pictures: list[Picture], val: float = 0.2) -> dict[str, str]:
    """The part of each picture by its key, drawn with a fixed seed: training or validation.

    Args:
        pictures: all of them, in any order.
        val: the largest share to validate with, but one picture at least.

    Raises:
        PrepareError: there are less than two pictures.
    """
    if len(pictures) < 2:
        raise PrepareError(f'{counted(len(pictures), "picture")}: two are needed to train and '
                           'validate')
    keys = sorted(each.key for each in pictures)
    random.Random(0).shuffle(keys)
    held_out = max(int(val * len(keys)), 1)
    return {key: 'val' if number < held_out else 'train' for number, key in enumerate(keys)}
