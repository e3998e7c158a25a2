"""Finds image files, and checks their bytes: are they complete, of the expected size?"""
from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from PIL import Image, UnidentifiedImageError

from mmposenc.terminal.messages import printable

#: The endings of pictures, in small letters.
PICTURES = ('.bmp', '.gif', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')
#: How many files of a folder are opened, if it would take too long to open all.
SAMPLES = 16
#: For the first bytes of a format, the marker at the end of its files.
ENDS = {b'\xff\xd8': b'\xff\xd9', b'\x89PNG': b'IEND'}
#: EXIF's key for the orientation, and the values of it that swap width and height.
ORIENTATION, _TURNED = 0x0112, (5, 6, 7, 8)
Size = tuple[int, int]


def files_below(folder: str | Path) -> list[str]:
    """All files below a folder, sorted. What is hidden, a pipe or a device is skipped.

    Links are followed, and each real folder is visited once, by a way without links if there is
    one. A link to a folder around this one is skipped. Links to files that are not there are
    listed, because these would be missed otherwise.
    """
    found, seen, start = list[str](), set[str](), os.path.realpath(folder)
    places = deque([str(folder)])
    while places:
        real = os.path.realpath(place := places.popleft())
        if real in seen or start.startswith(os.path.join(real, '')):
            continue
        seen.add(real)
        for name in sorted(os.listdir(place)):
            path = os.path.join(place, name)
            if name.startswith('.'):
                continue
            if os.path.isdir(path):
                (places.append if os.path.islink(path) else places.appendleft)(path)
            elif os.path.isfile(path) or not os.path.exists(path):
                found.append(path)
    return sorted(found)


def refuse_pipe(path: str) -> None:
    """Raise ValueError if what lies at a path is no file: to open a pipe would wait for ever."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError('it is no file')


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
    refuse_pipe(path)
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


def refuse_broken(paths: Sequence[str], source: str, sizes: Sequence[Size] | None = None) -> None:
    """Raise an error that lists up to 20 broken files.

    Args:
        paths: the paths of the pictures; those of a store such as s3:// are not checked.
        source: what names them.
        sizes: see :func:`image_file_problem`.

    Raises:
        ValueError: it says what is wrong with each file.
    """
    if any('://' in path for path in paths[:1]):
        return
    with ThreadPoolExecutor(max_workers=16) as pool:  # The disk is the limit, not the processor.
        texts = pool.map(image_file_problem, paths, sizes or [None] * len(paths), chunksize=64)
        problems = [f'{printable(path)}: {text}' for path, text in zip(paths, texts, strict=True)
                    if text]
    refuse_files(problems, f'{len(paths)} images of {source} are broken',
                 'Repair them, or take them out (check_images=False in the data set skips this '
                 'check)')


def refuse_files(problems: Sequence[str], of_what: str, remedy: str) -> None:
    """Raise a ValueError that lists up to 20 of the problems, if there are some."""
    if problems:
        shown = ''.join(f'  {text}\n' for text in problems[:20])
        raise ValueError(f'{len(problems)} of {of_what}:\n{shown}{remedy}')


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
        turned = image.getexif().get(ORIENTATION) in _TURNED
    return (height, width) if turned else (width, height)


def message_without_file(error: Exception) -> str:
    """The message of an error, without the name of the file."""
    if isinstance(error, UnidentifiedImageError):  # Its message would name a buffer.
        return 'Pillow recognises no picture in it'
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if isinstance(error, ValueError) else f'{type(error).__name__}: {error}'
