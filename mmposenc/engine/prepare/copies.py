"""Checks of local copies of COCO 2017 and ADE20K: they read and report, and change nothing."""
from __future__ import annotations

import mmap
import os
import re
from collections.abc import Collection
from pathlib import Path

from mmposenc.openmmlab.datasets.image_files import broken_file, sample
from mmposenc.openmmlab.datasets.label_maps import map_problem, pair_problem

#: folder of the pictures, annotation file, number of pictures
COCO_PARTS = (('train2017', 'annotations/instances_train2017.json', 118_287),
              ('val2017', 'annotations/instances_val2017.json', 5_000))
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*"([^"\\]+)"')


def check_coco(root: Path, parts: tuple[tuple[str, str, int], ...] = COCO_PARTS) -> list[str]:
    """What is missing, misplaced or unreadable in a COCO 2017 copy; empty when all is well.

    Looks at the folders, the annotation files, that each picture an annotation file names is there
    (and no other), and whether a sample of the pictures is whole. Changes nothing.

    Args:
        root: the folder that holds train2017, val2017 and annotations.
        parts: pictures, annotation file and number of pictures of each part.
    """
    problems: list[str] = []
    if not root.is_dir():
        return [f'{root} is not a folder']
    for folder_name, annotation_name, count in parts:
        folder = _find('folder', root, folder_name, problems)
        annotation = _find('file', root, annotation_name, problems)
        named = None
        if annotation:
            named, whole = _annotated_names(annotation)
            if not whole:
                problems.append(f'{annotation} is cut off: it does not end with a closing brace')
            _compare_count('images', annotation, len(named), count, problems)
        if not folder:
            continue
        present = _list_files(folder)
        if not present:
            problems.append(f'{folder} is empty')
        elif named:
            _compare_names('annotated pictures', folder, present, named, problems)
        else:
            _compare_count('pictures', folder, len(present), count, problems)
        for path in (folder / name for name in sample(present)):
            if problem := broken_file(str(path)):
                problems.append(f'{path}: {problem}')
    return problems


def _annotated_names(path: Path) -> tuple[set[str], bool]:
    """Picture names in a COCO file, and whether the file ends as JSON must.

    Not as Python objects: the training annotations would take gigabytes.
    """
    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        names = {os.fsdecode(found[1]) for found in _FILE_NAME.finditer(text)}
        return names, text[-1024:].rstrip().endswith(b'}')


ADE20K_PARTS = (('training', 20_210), ('validation', 2_000))
#: The highest label, and that of pixels without one.
NUM_CLASSES, UNLABELLED = 150, 0


def check_ade20k(root: Path, parts: tuple[tuple[str, int], ...] = ADE20K_PARTS) -> list[str]:
    """What is missing, misplaced or unreadable in an ADE20K copy; empty when all is well.

    Looks at images/ and annotations/ with their training and validation folders, that pictures and
    label maps pair up, and reads a sample: a label map must have its picture's size, one channel
    and values up to the number of classes. Changes nothing.

    Args:
        root: the folder that holds images and annotations.
        parts: name and number of pictures of each part.
    """
    if not root.is_dir():
        return [f'{root} is not a folder']
    inner = root / 'ADEChallengeData2016'
    if not (root / 'images').is_dir() and inner.is_dir():
        return [f'{root} holds the folder ADEChallengeData2016: give {inner}']
    problems: list[str] = []
    for part, count in parts:
        images = _find('folder', root, f'images/{part}', problems)
        labels = _find('folder', root, f'annotations/{part}', problems)
        for folder, ending in ((images, '.jpg'), (labels, '.png')):
            if folder:
                files = [name for name in _list_files(folder) if name.endswith(ending)]
                _compare_count(f'{ending} files', folder, len(files), count, problems)
        if images and labels:
            _check_pairs(images, labels, problems)
    return problems


def _check_pairs(images: Path, labels: Path, problems: list[str]) -> None:
    pictures = {Path(name).stem for name in _list_files(images) if name.endswith('.jpg')}
    maps = {Path(name).stem for name in _list_files(labels) if name.endswith('.png')}
    _compare_names(f'label maps of {images}', labels, maps, pictures, problems)
    for stem in sample(pictures & maps):
        path = str(labels / f'{stem}.png')
        problem = (pair_problem((str(images / f'{stem}.jpg'), path))
                   or map_problem(path, NUM_CLASSES + 1, UNLABELLED))
        problems += [problem] * bool(problem)


# Shared by both checks.


def _find(kind: str, root: Path, relative: str, problems: list[str]) -> Path | None:
    """``root``/``relative`` if it is a folder, or a file that is not empty. Otherwise a problem:
    missing, or misplaced when it lies up to three folders deeper, or a file elsewhere.

    A folder is known by its whole relative path: 'training' could be another one.
    """
    path, is_kind = root / relative, Path.is_dir if kind == 'folder' else Path.is_file
    if is_kind(path):
        if kind == 'folder' or path.stat().st_size:
            return path
        problems.append(f'{path} is empty')
        return None
    tails = [relative] if kind == 'folder' else [relative, Path(relative).name]
    found = [path for tail in tails for depth in ('', '*/', '*/*/', '*/*/*/')
             for path in sorted(root.glob(depth + tail)) if is_kind(path)]
    problems.append(f'{kind} {path} is misplaced: it is at {found[0]}' if found
                    else f'{kind} {path} is missing')
    return None


def _compare_names(what: str, folder: Path, present: Collection[str], expected: Collection[str],
                  problems: list[str]) -> None:
    """Report names of ``expected`` that ``folder`` lacks, and names nothing refers to."""
    missing = sorted(set(expected) - set(present))
    extra = sorted(set(present) - set(expected))
    if missing:
        problems.append(f'{folder} lacks {len(missing)} of {len(expected)} {what}: '
                        f'{_some(missing)}')
    if extra:
        problems.append(f'{folder} holds {len(extra)} files that are not among the {what}: '
                        f'{_some(extra)}')


def _compare_count(what: str, place: Path, count: int, expected: int, problems: list[str]) -> None:
    """Report a wrong number of files or entries."""
    if count != expected:
        problems.append(f'{place} has {count} {what}, expected {expected}')


def _list_files(folder: Path) -> list[str]:
    """Names of the visible files of a folder, sorted."""
    return sorted(p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith('.'))


def _some(names: list[str], limit: int = 3) -> str:
    return ', '.join(names[:limit]) + (', ...' if len(names) > limit else '')
