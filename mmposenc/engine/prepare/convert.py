"""Turns a user's pictures and labels into a data set for ``mmposenc train CONFIG --data``."""
from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image

from mmposenc.openmmlab.datasets.coco_files import PART_OF_NAME
from mmposenc.terminal.messages import counted, printable

from .coco import read_coco_labels
from .folders import Counts, Log, PrepareError, build_folder
from .labels import Picture, read_label_map, read_labels
from .names import VOID, Colour, colours_of_table, yolo_description
from .objects import object_sizes_text
from .parts import part_by_picture

#: For each part, its folder in ADE20K's layout.
ADE_PARTS = {'train': 'training', 'val': 'validation', 'test': 'test'}

_UNLABELLED = f'unlabelled ({VOID})'
_IGNORED = 'ignored (iscrowd)'


def convert_labels(kind: str, source: Path, out: Path, classes: list[str] | None = None,
                   val: float = 0.2, skip_bad: bool = False, log: Log = print,
                   colours: Path | None = None) -> Counts:
    """Writes a copy of pictures and labels in COCO's layout, or ADE20K's for masks.

    Args:
        kind: one of :data:`.labels.KINDS`.
        source: the folder of pictures and labels.
        out: a folder that is empty or not there.
        classes: names in the order of the labels; None: those of the table of colours, of a
            data.yaml or classes.txt in the source, or of COCO's file, else those that occur.
        val: see :func:`.parts.draw_parts`; what says train and val goes before.
        skip_bad: leave out what can't be used, which is an error else.
        log: called with each line: what can't be used, classes, counts.
        colours: for masks in colours, see :func:`.names.colours_of_table`.

    Returns:
        For each part the number of pictures, and of objects (in masks pixels) of each class.

    Raises:
        PrepareError: something can't be used, ``out`` holds files or one folder lies in the other,
            nothing is labelled, labels are numbers without names, or the pictures cannot be split.
    """
    inner, outer = out.resolve(), source.resolve()
    if inner == outer or inner in outer.parents or outer in inner.parents:
        raise PrepareError(f'--out {out} and {source} must not lie in each other')
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PrepareError(f'--out {out} exists; give another folder')
    if not source.is_dir():
        raise PrepareError(f'{source} is not a folder')
    description = yolo_description(source) if kind in ('yolo', 'masks') else {}
    in_table, table = colours_of_table(colours) if colours else ([], None)
    named = [name.strip() for name in classes or in_table or description.get('names', [])]
    _check_names(kind, source, named, in_table, description)
    labelled = (read_coco_labels(source, named) if kind == 'coco'
                else read_labels(kind, source, named, table, re.findall(
                    r'[\w.-]+\.txt', str([description.get(part) for part in ADE_PARTS]).lower())))
    for line in (*labelled.problems, *labelled.notes):
        log(printable(line))
    if labelled.problems and not skip_bad:
        problems = counted(len(labelled.problems), 'problem')
        raise PrepareError(f'{problems} in {source}, listed above; mend them, or leave out what '
                           'they name by --skip-bad')
    if not labelled.classes:
        raise PrepareError(f'{source}: its labels hold no object')
    log(printable(f'classes: {", ".join(labelled.classes)}'))
    things = [thing for each in labelled.pictures for thing in each.things]
    if things and all(thing.crowd for thing in things):
        raise PrepareError(f'{source}: all {len(things)} objects are marked difficult or iscrowd, '
                           'which training ignores; unmark those that are objects')
    part_of = part_by_picture(kind, source, labelled.pictures, description, val, log)
    parts = {part: [each for each in labelled.pictures if part_of.get(each.key) == part]
             for part in ADE_PARTS if part in part_of.values()}
    shown = [(thing.box[2:], each.size) for each in parts.get('train', ()) for thing in each.things
             if not thing.crowd]
    if shown:
        log(object_sizes_text(*zip(*shown, strict=True)))
    counts = build_folder(
        out, kind, lambda folder: {
            part: _write_masks_and_count(folder, part, pictures, labelled.classes, table)
            if kind == 'masks' else _write_part_and_count(folder, part, pictures, labelled.classes)
            for part, pictures in parts.items()}, log)
    for part, numbers in counts.items():
        if lacking := [name for name in labelled.classes if not numbers[name]]:
            why = (f'; {VOID} is unlabelled: if these pixels are of a class, write its number '
                   'in their place') if numbers.get(_UNLABELLED) else (
                       '; training ignores objects that are marked difficult or iscrowd'
                   ) if numbers.get(_IGNORED) else ''
            log(printable(f'warning: {part} has nothing of {", ".join(lacking)}{why}'))
    return counts


def _check_names(kind: str, source: Path, named: list[str], in_table: list[str],
                 description: dict[str, Any]) -> None:
    """Raise PrepareError unless there are names where they are needed, and no key points."""
    if description.get('kpt_shape') and kind == 'yolo':
        raise PrepareError(f'{description["file"]}: '
                           f'kpt_shape={description["kpt_shape"]}: labels of key points '
                           'are not read; of each line keep the class and the four numbers of the '
                           'box, and delete kpt_shape')
    if not all(named) or len({*named}) < len(named):
        raise PrepareError(f'{source}: classes {named} must be words, and no two the same')
    if not named and kind in ('yolo', 'masks'):
        raise PrepareError(f'{source}: its labels are numbers; name the classes by --classes, or '
                           'in a data.yaml or classes.txt there')
    if in_table and named != in_table:
        raise PrepareError(f'--classes {named} must be those of --colours, {in_table}')


def _write_part_and_count(folder: Path, part: str, pictures: list[Picture], classes: list[str]
                          ) -> dict[str, int]:
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, each in enumerate(pictures, 1):
        copy = _unused_path(folder / part, each, each.path.suffix)
        shutil.copyfile(each.path, copy)
        images.append(dict(id=number, file_name=copy.relative_to(folder / part).as_posix(),
                           width=each.size[0], height=each.size[1]))
        for thing in each.things:
            outline = dict(segmentation=thing.segmentation) if thing.segmentation else {}
            area = thing.box[2] * thing.box[3] if thing.area is None else thing.area
            annotations.append(dict(
                id=len(annotations) + 1, image_id=number,
                category_id=classes.index(thing.name) + 1, bbox=[*thing.box],
                area=area, iscrowd=int(thing.crowd), **outline))
    # mmdet's curves of precision and recall need a supercategory.
    categories = [dict(id=number, name=name, supercategory='object')
                  for number, name in enumerate(classes, 1)]
    (folder / f'{part}.json').write_text(json.dumps(
        dict(images=images, annotations=annotations, categories=categories), allow_nan=False))
    objects = Counter(each['category_id'] for each in annotations if not each['iscrowd'])
    ignored = len(annotations) - objects.total()
    return {'pictures': len(images), **{each['name']: objects[each['id']] for each in categories},
            **({_IGNORED: ignored} if ignored else {})}


def _write_masks_and_count(folder: Path, part: str, pictures: list[Picture], classes: list[str],
                           colours: dict[Colour, int] | None) -> dict[str, int]:
    pixels = Counter({VOID: 0})
    for each in pictures:
        shutil.copyfile(each.path, _unused_path(
            folder / 'images' / ADE_PARTS[part], each, each.path.suffix))
        labels = read_label_map(each, colours)
        Image.fromarray(labels).save(_unused_path(
            folder / 'annotations' / ADE_PARTS[part], each, '.png'))
        pixels.update(Counter(labels.ravel().tolist()))
    (folder / 'classes.txt').write_text(''.join(f'{name}\n' for name in classes), encoding='utf-8')
    unlabelled = {_UNLABELLED: pixels[VOID]} if pixels[VOID] else {}
    return {'pictures': len(pictures), **{name: pixels[i] for i, name in enumerate(classes)},
            **unlabelled}


def _unused_path(folder: Path, picture: Picture, suffix: str) -> Path:
    """The path of what is written for a picture, whose folder is made: its key without the folder
    of the part."""
    *folders, stem = picture.key.split('/')
    own = [each for each in folders if each.lower() not in PART_OF_NAME]
    to = folder.joinpath(*own, stem + suffix)
    if to.exists():
        raise PrepareError(f'{picture.path}: a picture of another folder has the name '
                           f'{to.name}, too; rename one')
    to.parent.mkdir(parents=True, exist_ok=True)
    return to
