"""Checks of label map files: do they fit their images and the classes?"""
from __future__ import annotations

import os.path as osp
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image

from mmposenc.terminal.messages import printable

from .image_files import refuse_files, sample_of_names, size_of_file

#: The modes of PIL with one channel of 8 bits; with a palette, the indices are the labels.
MODES = ('L', 'P', '1')


def check_pairs(pairs: Sequence[tuple[str, str]], num_labels: int | None = None,
                ignore_index: int = 255) -> set[int]:
    """Check that label maps exist, are complete, have 8 bits and the size of their images.

    The beginning and the end of each file are read, and all pixels of a sample of the maps, to find
    labels outside the classes.

    Args:
        pairs: paths of an image and its label map.
        num_labels: the labels are 0 to ``num_labels - 1``; None: they are not checked.
        ignore_index: a label that may occur too.

    Returns:
        the labels of the sample, without ``ignore_index``; empty if labels are not checked.

    Raises:
        ValueError: it lists up to 20 files and what is wrong with each.
    """
    labels: set[int] = set()
    with ThreadPoolExecutor(max_workers=16) as pool:  # The disk is the limit, not the processor.
        problems = [text for text in pool.map(pair_problem, pairs, chunksize=64) if text]
    if not problems and num_labels is not None:
        checked = (map_problem(path, num_labels, ignore_index, labels)
                   for path in sample_of_names([path for _, path in pairs]))
        problems = [text for text in checked if text]
    refuse_files(problems, f'{len(pairs)} label maps cannot be used',
                 '(check_images=False in the data set skips this check)')
    return labels - {ignore_index}


def map_problem(path: str, num_labels: int, ignore_index: int = 255,
                seen: set[int] | None = None) -> str:
    """What is wrong with the pixels of a label map, which are all read; '' if nothing is. The
    labels in the map are added to ``seen``."""
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image)
        if seen is not None:
            seen.update(np.unique(pixels).tolist())
        text = unknown_labels_text(pixels, num_labels, ignore_index)
    except (OSError, SyntaxError, ValueError) as error:
        text = str(error)
    return text and f'{path}: {text}'


def unknown_labels_text(labels: np.ndarray, num_labels: int, ignore_index: int = 255) -> str:
    """Which labels do not belong to any class; '' if all do."""
    outside = labels[(labels >= num_labels) & (labels != ignore_index)]
    if not outside.size:
        return ''
    values = np.unique(outside)
    names = ', '.join(map(str, values[:8])) + (', ...' if len(values) > 8 else '')
    return (f'holds {"labels" if len(values) > 1 else "the label"} {names} in {outside.size} '
            f'pixels; labels must be from 0 to {num_labels - 1}, or {ignore_index} to be ignored')


def pair_problem(pair: tuple[str, str]) -> str:
    """What is wrong with an image or its label map; '' if nothing is. Only the beginning and the
    end of the files are read."""
    image_path, label_path = pair
    if not osp.exists(label_path):
        return f'{label_path}: missing, for the image {image_path}'
    sizes = []
    for path in pair:
        try:
            sizes.append(size_of_file(path))
        except ValueError as error:
            return f'{printable(path)}: {error}'
    with Image.open(label_path) as labels:
        mode, size = labels.mode, labels.size  # No loader turns labels by an EXIF orientation.
    if mode not in MODES:
        return (f'{label_path}: its mode is {mode}; one channel of 8 bits is required (for '
                'colours: mmposenc prepare --from masks --colours)')
    width, height = sizes[0]
    if size != (width, height):
        return (f'{label_path}: its size is {size[0]}x{size[1]}, but {image_path} has '
                f'{width}x{height}')
    return ''
