"""Turns a user's pictures and labels into a data set for ``mmposenc train CONFIG --data``."""
from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image

from mmposenc.terminal.messages import counted, printable

from .folders import Counts, Log, PrepareError, build_folder
from .labels import PART_LISTS, VOID, Picture, read_label_map, read_labels

#: For names of folders, the part (train, val or test) of the pictures in them.
SPLITS = {'train': 'train', 'training': 'train', 'val': 'val', 'valid': 'val',
          'validation': 'val', 'test': 'test', 'testing': 'test'}
#: For each part, its folder in ADE20K's layout.
ADE_PARTS = {'train': 'training', 'val': 'validation', 'test': 'test'}

_UNLABELLED = f'unlabelled ({VOID})'


def convert_labels(kind: str, source: Path, out: Path, classes: list[str] | None = None,
                   val: float = 0.2, skip_bad: bool = False, log: Log = print) -> Counts:
    """Writes a copy of pictures and labels in COCO's layout, or ADE20K's for masks.

    Args:
        kind, source, classes: see :func:`.labels.read_labels`.
        out: a folder that is empty or not there.
        val: see :func:`draw_parts`; folders such as ``train`` and ``val`` go before.
        skip_bad: leave out what can't be used, which is an error else.
        log: called with each line: what can't be used, classes, counts.

    Returns:
        For each part the number of pictures, and of objects (in masks pixels) of each class.

    Raises:
        PrepareError: something can't be used, ``out`` holds files or one folder lies in the other,
            nothing is labelled, or the pictures cannot be split.
    """
    inner, outer = out.resolve(), source.resolve()
    if inner == outer or inner in outer.parents or outer in inner.parents:
        raise PrepareError(f'--out {out} and {source} must not lie in each other')
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PrepareError(f'--out {out} exists; give another folder')
    labelled = read_labels(kind, source, classes)
    for line in (*labelled.problems, *labelled.notes):
        log(printable(line))
    if labelled.problems and not skip_bad:
        problems = counted(len(labelled.problems), 'problem')
        raise PrepareError(f'{problems} in {source}, listed above; mend them, or leave out what '
                           'they name by --skip-bad')
    if not labelled.classes:
        raise PrepareError(f'{source}: its labels hold no object')
    log(printable(f'classes: {", ".join(labelled.classes)}'))
    part_of = part_by_picture(labelled.pictures)
    if not part_of:
        _refuse_lists_of_parts(source)
        log(f'a random share of {val:g} of the pictures is for validation (--val); if several show '
            'one scene, put them into folders train and val instead')
        part_of = draw_parts(labelled.pictures, val)
    parts: dict[str, list[Picture]] = {'train': [], 'val': []}
    for each in labelled.pictures:
        parts.setdefault(part_of[each.key], []).append(each)
    write = _write_masks_and_count if kind == 'masks' else _write_part_and_count
    counts = build_folder(
        out, kind, lambda folder: {
            part: write(folder, part, pictures, labelled.classes)
            for part, pictures in parts.items()}, log)
    for part, numbers in counts.items():
        if lacking := [name for name in labelled.classes if not numbers[name]]:
            void = (f'; {VOID} is unlabelled: if these pixels are of a class, write its number '
                    'in their place') if numbers.get(_UNLABELLED) else ''
            log(printable(f'warning: {part} has nothing of {", ".join(lacking)}{void}'))
    return counts


def _refuse_lists_of_parts(source: Path) -> None:
    """Raise an error if lists say which part a picture belongs to: a drawn part would contradict
    them."""
    if lists := sorted(path for path in source.rglob('*.txt') if path.name in PART_LISTS):
        raise PrepareError(f'{lists[0]} lists the pictures of a part, and lists are not read: put '
                           'pictures and labels into folders train and val, or delete the lists '
                           'to draw the parts')


def part_by_picture(pictures: list[Picture]) -> dict[str, str]:
    """The part of each picture, by its key, if folders such as ``train`` and ``val`` say it; an
    empty dict without such folders.

    Raises:
        PrepareError: only some pictures are in them.
    """
    part_of = {each.key: next((SPLITS[name] for name in each.key.lower().split('/')[:-1]
                               if name in SPLITS), '') for each in pictures}
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


def _name_without_part(picture: Picture, suffix: str) -> str:
    """The name of a copy: the key without the folder of the part."""
    *folders, stem = picture.key.split('/')
    return '/'.join([*(each for each in folders if each.lower() not in SPLITS), stem]) + suffix


def _write_part_and_count(folder: Path, part: str, pictures: list[Picture], classes: list[str]
                          ) -> dict[str, int]:
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, each in enumerate(pictures, 1):
        name = _name_without_part(each, each.path.suffix)
        shutil.copyfile(each.path, _unused_path(folder / part / name, each.path))
        images.append(dict(id=number, file_name=name, width=each.size[0], height=each.size[1]))
        for thing in each.things:
            outline = dict(segmentation=[thing.polygon]) if thing.polygon else {}
            annotations.append(dict(
                id=len(annotations) + 1, image_id=number,
                category_id=classes.index(thing.name) + 1, bbox=[*thing.box],
                area=thing.box[2] * thing.box[3], iscrowd=int(thing.crowd), **outline))
    # mmdet's curves of precision and recall need a supercategory.
    categories = [dict(id=number, name=name, supercategory='object')
                  for number, name in enumerate(classes, 1)]
    (folder / f'{part}.json').write_text(json.dumps(
        dict(images=images, annotations=annotations, categories=categories), allow_nan=False))
    objects = Counter(each['category_id'] for each in annotations)
    return {'pictures': len(images), **{each['name']: objects[each['id']] for each in categories}}


def _write_masks_and_count(folder: Path, part: str, pictures: list[Picture], classes: list[str]
                           ) -> dict[str, int]:
    pixels = Counter({VOID: 0})
    for each in pictures:
        name = _name_without_part(each, '.png')
        stem = name.removesuffix('.png')
        copy = folder / 'images' / ADE_PARTS[part] / f'{stem}{each.path.suffix}'
        shutil.copyfile(each.path, _unused_path(copy, each.path))
        labels = read_label_map(each)
        Image.fromarray(labels).save(
            _unused_path(folder / 'annotations' / ADE_PARTS[part] / name, each.path))
        pixels.update(Counter(labels.ravel().tolist()))
    (folder / 'classes.txt').write_text(''.join(f'{name}\n' for name in classes), encoding='utf-8')
    unlabelled = {_UNLABELLED: pixels[VOID]} if pixels[VOID] else {}
    return {'pictures': len(pictures), **{name: pixels[i] for i, name in enumerate(classes)},
            **unlabelled}


def _unused_path(to: Path, picture: Path) -> Path:
    """The path of what is written for a picture, whose folder is made."""
    if to.exists():
        raise PrepareError(f'{picture}: a picture of another folder has the name {to.name}, too; '
                           'rename one')
    to.parent.mkdir(parents=True, exist_ok=True)
    return to
