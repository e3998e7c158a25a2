"""Pictures and labels of the user's, as a data set that ``mmposenc train CONFIG --data`` takes."""
from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image

from mmposenc.terminal.messages import printable

from .common import Log, PrepareError, build_folder
from .labels import VOID, Picture, label_map, read_labels
from .lists import listed_parts

#: Folders that say which part a picture is of.
SPLITS = {'train': 'train', 'training': 'train', 'val': 'val', 'valid': 'val',
          'validation': 'val', 'test': 'test', 'testing': 'test'}
#: Folders of the parts in ADE20K's layout.
ADE_PARTS = {'train': 'training', 'val': 'validation', 'test': 'test'}
GROUPS = ('folder', 'prefix')
Parts = dict[str, list[Picture]]
Counts = dict[str, dict[str, int]]


def prepare_own(kind: str, source: Path, out: Path, classes: list[str] | None = None,
                val: float = 0.2, group_by: str | None = None, seed: int = 0,
                skip_bad: bool = False, log: Log = print) -> Counts:
    """Writes a copy of pictures and labels in COCO's layout, or ADE20K's for masks.

    Args:
        kind, source, classes: see :func:`.labels.read_labels`.
        out: a folder that is empty or not there.
        val, group_by, seed: see :func:`split`.
        skip_bad: leave out what can't be used, which is an error else.
        log: called with each line: what can't be used, classes, counts.

    Returns:
        For each part the number of pictures, and of objects (in masks pixels) of each class.

    Raises:
        PrepareError: something can't be used, ``out`` holds files or one folder lies in the other,
            nothing is labelled, a list of a part is empty, or :func:`split` refuses.
    """
    inner, outer = out.resolve(), source.resolve()
    if inner == outer or inner in outer.parents or outer in inner.parents:
        raise PrepareError(f'--out {out} and {source} must not lie in each other')
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PrepareError(f'--out {out} exists; give another folder')
    labelled = read_labels(kind, source, classes)
    listed = {} if _in_folders(labelled.pictures) else listed_parts(kind, source, labelled)
    for line in (*labelled.problems, *labelled.notes):
        log(printable(line))
    if labelled.problems and not skip_bad:
        raise PrepareError(f'{len(labelled.problems)} problems in {source}, listed above; mend '
                           'them, or leave out what they name by --skip-bad')
    if not labelled.classes:
        raise PrepareError(f'{source}: its labels hold no object')
    how_split = []
    if listed:
        parts = _by_lists(labelled.pictures, listed)
        how_split.append(f'lists ({", ".join(f"{part}.txt" for part in parts)}) say which part a '
                         'picture is of')
        if unlisted := len(labelled.pictures) - sum(map(len, parts.values())):
            how_split.append(f'{unlisted} pictures in no list are left out')
    else:
        parts = split(labelled.pictures, val, group_by, seed)
        if not _in_folders(labelled.pictures):
            how_split.append(f'a random share of {val:g} of the pictures is for validation '
                             '(--val, --group-by)')
    write = _write_maps if kind == 'masks' else _write_coco
    counts: Counts = build_folder(
        out, dict(source=kind), lambda folder: {
            part: write(folder, part, pictures, labelled.classes)
            for part, pictures in parts.items()})
    for line in (f'classes: {", ".join(labelled.classes)}', *how_split):
        log(printable(line))
    for part, numbers in counts.items():
        log(printable(f'{part}: ' + ', '.join(f'{number:,} {what}'
                                              for what, number in numbers.items())))
        if lacking := [name for name in labelled.classes if not numbers[name]]:
            log(printable(f'warning: {part} has nothing of {", ".join(lacking)}'))
    return counts


def split(pictures: list[Picture], val: float = 0.2, group_by: str | None = None, seed: int = 0
          ) -> Parts:
    """Training and validation: as folders ``train`` and ``val`` have it, else drawn.

    Args:
        pictures: all of them.
        val: the largest share to validate with, where a group is no larger.
        group_by: what stays together: a 'folder', or a 'prefix', the name before its last '_' or
            '-'; None: nothing.
        seed: of the draw.

    Raises:
        PrepareError: there are less than two groups, or only some pictures are in such folders.
    """
    parts: Parts = {'train': [], 'val': []}
    if _in_folders(pictures):
        named = _folder_parts(pictures)
        if '' in named:
            raise PrepareError(f'{pictures[named.index("")].path} must be in a folder train, val '
                               'or test, as others are')
        for name, each in zip(named, pictures, strict=True):
            parts.setdefault(name, []).append(each)
        return parts
    groups: Parts = {}
    for each in pictures:
        groups.setdefault(_group(each.key, group_by), []).append(each)
    if len(groups) < 2:
        raise PrepareError(f'{len(pictures)} pictures are {len(groups)} groups; two are needed to '
                           f'train and validate (--group-by {group_by})')
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    held: set[str] = set()
    for name in names:
        if sum(len(groups[each]) for each in (*held, name)) <= val * len(pictures):
            held.add(name)
    held = held or {min(names, key=lambda name: len(groups[name]))}
    for name in sorted(groups):
        parts['val' if name in held else 'train'] += groups[name]
    return parts


def _folder_parts(pictures: list[Picture]) -> list[str]:
    """The part that a folder of each picture says, or ''."""
    return [next((SPLITS[name] for name in each.key.lower().split('/')[:-1] if name in SPLITS), '')
            for each in pictures]


def _in_folders(pictures: list[Picture]) -> bool:
    """Whether folders say which pictures are for training and which for validation."""
    return {'train', 'val'} <= {*_folder_parts(pictures)}


def _by_lists(pictures: list[Picture], listed: dict[str, str]) -> Parts:
    parts: Parts = {'train': [], 'val': []}
    for each in pictures:
        if each.key in listed:
            parts.setdefault(listed[each.key], []).append(each)
    for part, members in parts.items():
        if not members:
            raise PrepareError(f'the list of {part} names no picture')
    return parts


def _group(key: str, group_by: str | None) -> str:
    if group_by == 'folder':
        return key.rpartition('/')[0]
    return re.sub('[_-][^_/-]*$', '', key) if group_by == 'prefix' else key


def _names(pictures: list[Picture], suffix: str = '') -> list[str]:
    """Names of the copies: keys without the folder of the part; no two may be equal."""
    names = ['/'.join(part for i, part in enumerate(parts)
                      if i == len(parts) - 1 or part.lower() not in SPLITS)
             + (suffix or each.path.suffix)
             for each in pictures for parts in [each.key.split('/')]]
    same = [name for name, number in Counter(map(str.lower, names)).items() if number > 1]
    if same:  # as file systems see it that know no capitals
        both = [str(each.path) for each, name in zip(pictures, names, strict=True)
                if name.lower() == same[0]]
        raise PrepareError(f'{" and ".join(both)} would have one name, {same[0]}; rename one')
    return names


def _write_coco(folder: Path, part: str, pictures: list[Picture], classes: list[str]
                ) -> dict[str, int]:
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, (name, each) in enumerate(zip(_names(pictures), pictures, strict=True), 1):
        _copy(each.path, folder / part / name)
        images.append(dict(id=number, file_name=name, width=each.size[0], height=each.size[1]))
        for thing in each.things:
            outline = dict(segmentation=[thing.polygon]) if thing.polygon else {}
            annotations.append(dict(
                id=len(annotations) + 1, image_id=number,
                category_id=classes.index(thing.name) + 1, bbox=[*thing.box],
                area=thing.box[2] * thing.box[3], iscrowd=int(thing.crowd), **outline))
    # mmdet's curves of precision and recall ask for a supercategory.
    categories = [dict(id=number, name=name, supercategory='object')
                  for number, name in enumerate(classes, 1)]
    (folder / f'{part}.json').write_text(json.dumps(
        dict(images=images, annotations=annotations, categories=categories), allow_nan=False))
    objects = Counter(each['category_id'] for each in annotations)
    return {'pictures': len(images), **{each['name']: objects[each['id']] for each in categories}}


def _write_maps(folder: Path, part: str, pictures: list[Picture], classes: list[str]
                ) -> dict[str, int]:
    pixels = Counter({VOID: 0})
    for name, each in zip(_names(pictures, '.png'), pictures, strict=True):
        stem = name.removesuffix('.png')
        _copy(each.path, folder / 'images' / ADE_PARTS[part] / f'{stem}{each.path.suffix}')
        label_file = folder / 'annotations' / ADE_PARTS[part] / name
        label_file.parent.mkdir(parents=True, exist_ok=True)
        labels = label_map(each)
        Image.fromarray(labels).save(label_file)
        pixels.update(Counter(labels.ravel().tolist()))
    (folder / 'classes.txt').write_text(''.join(f'{name}\n' for name in classes), encoding='utf-8')
    unlabelled = {f'unlabelled ({VOID})': pixels[VOID]} if pixels[VOID] else {}
    return {'pictures': len(pictures), **{name: pixels[i] for i, name in enumerate(classes)},
            **unlabelled}


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)
