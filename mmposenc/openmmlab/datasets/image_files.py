"""Checks of an image file's bytes: is it complete, and does it have the expected size?"""
from __future__ import annotations

import os
import random
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

from PIL import Image, UnidentifiedImageError

#: How many files of a folder are opened, if it would take too long to open all.
SAMPLES = 16
#: For the first bytes of a format, the marker at the end of its files.
ENDS = {b'\xff\xd8': b'\xff\xd9', b'\x89PNG': b'IEND'}
#: EXIF's key for the orientation, and the values of it that swap width and height.
_ORIENTATION, _TURNED = 0x0112, (5, 6, 7, 8)
Size = tuple[int, int]


def size_if_whole(file: BinaryIO) -> Size:
    """The size (width, height) of a complete image, after the EXIF orientation is applied.

    A JPEG or PNG that ends with its end marker counts as complete. Other formats are decoded: PIL
    raises for missing pixels, which OpenCV would fill with grey. PIL also refuses images of more
    than 178,956,970 pixels.

    Raises:
        ValueError: it says what is wrong with the image.
    """
    try:
        if not file.read(1):
            raise ValueError('the file is empty')
        size = size_shown(file)
        if not _ends_well(file):
            with Image.open(file) as image:
                image.load()
    except Exception as error:  # PIL raises whatever its codec raises.
        raise ValueError(message_without_file(error)) from error
    return size


def _ends_well(file: BinaryIO) -> bool:
    """Whether a file has the end marker of its format."""
    file.seek(0)
    head = file.read(4)
    end = next((end for start, end in ENDS.items() if head.startswith(start)), None)
    length = file.seek(0, os.SEEK_END)
    file.seek(max(length - 16, 0))
    return end is not None and end in file.read()


def size_of_file(path: str) -> Size:
    """:func:`size_if_whole` of a file.

    Raises:
        ValueError: there is no such file, or something is wrong with it.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError('it is no file')  # Who opens a pipe waits.
    try:
        with open(path, 'rb') as file:
            return size_if_whole(file)
    except OSError as error:
        raise ValueError(message_without_file(error)) from error


def image_file_problem(path: str, size: Size | None = None) -> str:
    """What is wrong with an image file, of which only the beginning and the end are read if they
    are enough; '' if nothing is.

    Args:
        path: the file.
        size: expected (width, height) after the EXIF orientation is applied, or None.
    """
    try:
        shown = size_of_file(path)
    except ValueError as error:
        return str(error)
    if size is None or shown == tuple(size):
        return ''
    note = ' (its EXIF orientation is applied)' if shown == tuple(size)[::-1] else ''
    return (f'the picture is {shown[0]}x{shown[1]}{note}, but the annotations say '
            f'{size[0]}x{size[1]}, so boxes would be misplaced')


def problems_by_file(paths: Sequence[str], sizes: Sequence[Size] | None = None) -> dict[str, str]:
    """For each broken file among many, its path and what is wrong with it."""
    wanted: Sequence[Size | None] = sizes or [None] * len(paths)
    with ThreadPoolExecutor(max_workers=16) as pool:  # The disk is the limit, not the processor.
        problems = pool.map(image_file_problem, paths, wanted, chunksize=64)
        return {path: problem for path, problem in zip(paths, problems, strict=True) if problem}


def sample_of_names(names: Collection[str]) -> list[str]:
    """Up to :data:`SAMPLES` of the names, the same ones in every run."""
    names = sorted(names)
    return sorted(random.Random(0).sample(names, min(SAMPLES, len(names))))


def size_shown(file: BinaryIO) -> Size:
    """The size (width, height) after the EXIF orientation is applied."""
    with Image.open(file) as image:
        width, height = image.size
        if image.format == 'TIFF':  # Newer versions of Pillow turn the size of a TIFF themselves.
            width, height = (image.tag_v2[key] for key in (256, 257))  # type: ignore
        # OpenCV ignores the orientation of a WebP.
        turned = image.format != 'WEBP' and image.getexif().get(_ORIENTATION) in _TURNED
    return (height, width) if turned else (width, height)


def message_without_file(error: Exception) -> str:
    """The message of an error, without the name of the file."""
    if isinstance(error, UnidentifiedImageError):  # Its message would name a buffer.
        return 'Pillow recognises no picture in it'
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if isinstance(error, ValueError) else f'{type(error).__name__}: {error}'
