"""Reads COCO's json as tools write it: one file, or one for each part."""
from __future__ import annotations

import re
from pathlib import Path

from mmposenc.openmmlab.datasets.coco_files import PART_OF_NAME, Coco, has_area, read_coco
from mmposenc.openmmlab.datasets.image_files import files_below, image_file_problem

from .folders import PrepareError
from .labels import FolderContents, LabelledObject, Picture, cut_at_edges


def read_coco_labels(source: Path, named: list[str]) -> FolderContents:
    """Reads a folder with pictures and files in COCO's format; changes nothing in it.

    If some files are called ``instances_*``, others are not read, such as captions. Categories of
    which no file has an object are left out, such as the one that Roboflow adds.

    Args:
        source: the folder.
        named: names in the order of the new labels; empty: the order of the files.

    Raises:
        PrepareError: there are no such files.
        ValueError: one is damaged.
    """
    files = [path for path in map(Path, files_below(source)) if path.suffix.lower() == '.json']
    files = [path for path in files if path.name.startswith('instances_')] or files
    if not files:
        raise PrepareError(f'{source} holds no .json files of labels')
    contents, used = FolderContents(named), dict[str, bool]()
    for file in files:
        content = read_coco(file)
        names = {each['id']: each['name'] for each in content['categories']}
        used = {**dict.fromkeys(names.values(), False), **used}
        anns: dict[int, list[Coco]] = {}
        for ann in content['annotations']:
            anns.setdefault(ann['image_id'], []).append(ann)
        for image in content['images']:
            picture = _picture(source, file, image)
            problem = image_file_problem(str(picture.path), picture.size)
            try:
                picture.things = [_object(ann, names, picture) for ann in anns.get(image['id'], [])]
            except ValueError as error:
                problem = str(error)
            if problem:
                contents.problems.append(f'{picture.path}: {problem}')
            else:
                contents.pictures.append(picture)
                used |= {thing.name: True for thing in picture.things}
    if unused := [name for name in used if not used[name]]:
        contents.notes.append(f'of no object, left out: {", ".join(unused)}')
    contents.classes = [name for name in used if used[name]]
    if named and (other := {*contents.classes} - {*named}):
        raise PrepareError(f'{source}: --classes lacks {", ".join(sorted(other))}')
    contents.classes = named or contents.classes
    return contents


def _picture(source: Path, file: Path, image: Coco) -> Picture:
    """A picture that a file names from its own folder, from the source, or from a folder of
    pictures there, such as ``train2017`` of ``instances_train2017.json``."""
    words = re.split('[^a-z]+', file.relative_to(source).as_posix().lower())
    part = [PART_OF_NAME[word] for word in words if word in PART_OF_NAME][:1]
    folder, name = file.stem.removeprefix('instances_'), Path(image['file_name'])
    places = [place / name for place in (
        file.parent, source / folder, source / 'images' / folder, source / 'images', source)]
    key = [*part, *(each for each in name.with_suffix('').parts if each not in ('/', '..'))]
    return Picture('/'.join(key), next((path for path in places if path.is_file()), places[0]),
                   (int(image['width']), int(image['height'])), file)


def _object(ann: Coco, names: dict[int, str], picture: Picture) -> LabelledObject:
    mask = ann.get('segmentation') or None
    try:
        if ann['category_id'] not in names:
            raise ValueError(f'its category_id is not among {names}')
        return cut_at_edges(LabelledObject(
            names[ann['category_id']], tuple(ann['bbox']),
            mask if mask and has_area(mask, picture.size[::-1]) else None,
            bool(ann.get('iscrowd')), ann['area']), picture.size)
    except ValueError as error:
        raise ValueError(f'annotation {ann["id"]} in {picture.labels}: {error}') from error
