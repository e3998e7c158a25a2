"""Check of a local ADE20K copy (the scene parsing benchmark, ADEChallengeData2016)."""
from __future__ import annotations

from pathlib import Path

import numpy as np

from mmposenc.openmmlab.datasets.image_files import sample

from .checks import compare_count, compare_names, find_folder, list_files, open_images

PARTS = (('training', 20_210), ('validation', 2_000))
NUM_CLASSES = 150


def check_ade20k(root: Path, parts: tuple[tuple[str, int], ...] = PARTS,
                 num_classes: int = NUM_CLASSES) -> list[str]:
    """What is missing, misplaced or unreadable in an ADE20K copy; empty when all is well.

    Looks at images/ and annotations/ with their training and validation folders, that pictures and
    label maps pair up, and decodes a sample: a label map must have its picture's size, one channel
    and values up to the number of classes (0 is unlabelled). Changes nothing.

    Args:
        root: the folder that holds images and annotations.
        parts: name and number of pictures of each part.
        num_classes: the highest label.
    """
    if not root.is_dir():
        return [f'{root} is not a folder']
    inner = root / 'ADEChallengeData2016'
    if not (root / 'images').is_dir() and inner.is_dir():
        return [f'{root} holds the folder ADEChallengeData2016: give {inner}']
    problems: list[str] = []
    for part, count in parts:
        images = find_folder(root, f'images/{part}', problems)
        labels = find_folder(root, f'annotations/{part}', problems)
        for folder, ending in ((images, '.jpg'), (labels, '.png')):
            if folder:
                files = [name for name in list_files(folder) if name.endswith(ending)]
                compare_count(f'{ending} files', folder, len(files), count, problems)
        if images and labels:
            _check_pairs(images, labels, num_classes, problems)
    return problems


def _check_pairs(images: Path, labels: Path, num_classes: int, problems: list[str]) -> None:
    pictures = {Path(name).stem for name in list_files(images) if name.endswith('.jpg')}
    maps = {Path(name).stem for name in list_files(labels) if name.endswith('.png')}
    compare_names(f'label maps of {images}', labels, maps, pictures, problems)
    for stem in sample(pictures & maps):
        pair = open_images((images / f'{stem}.jpg', labels / f'{stem}.png'), problems)
        if len(pair) < 2:
            continue
        picture, label = pair
        path = labels / f'{stem}.png'
        if label.mode not in ('L', 'P'):
            problems.append(f'{path} has mode {label.mode}; one channel of 8 bits is required')
        elif label.size != picture.size:
            problems.append(f'{path} is {label.size[0]}x{label.size[1]}, '
                            f'its picture {picture.size[0]}x{picture.size[1]}')
        elif (highest := int(np.asarray(label).max())) > num_classes:
            problems.append(f'{path} holds the label {highest}; the highest is {num_classes}')
