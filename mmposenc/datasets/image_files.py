"""Whether an image file is whole, from its bytes."""
from __future__ import annotations

import io
import os
import random
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

#: How many files of a folder are opened where opening all would take too long.
SAMPLES = 16
#: First bytes of a format, and the marker behind its last pixel.
ENDS = {b'\xff\xd8': b'\xff\xd9', b'\x89PNG': b'IEND'}


def broken(data: bytes) -> str:
    """Says what is wrong with an image's bytes; an empty string when nothing is.

    A JPEG or PNG that ends with its end marker is taken as whole. Without it, as with bytes
    appended behind it and in other formats, the image is decoded: PIL refuses what OpenCV fills
    with grey.
    """
    if not data:
        return 'the file is empty'
    end = next((end for start, end in ENDS.items() if data.startswith(start)), None)
    if end is not None and end in data[-16:]:
        return ''
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except Exception as error:  # PIL raises what the codec raises
        return f'{type(error).__name__}: {error}'
    return ''


def broken_file(path: str) -> str:
    """:func:`broken` for a file, of which only both ends are read where they tell enough."""
    try:
        with open(path, 'rb') as file:
            head = file.read(16)
            end = next((end for start, end in ENDS.items() if head.startswith(start)), None)
            if end is not None:
                file.seek(-min(16, os.fstat(file.fileno()).st_size), os.SEEK_END)
                if end in file.read():
                    return ''
            file.seek(0)
            return broken(file.read())
    except OSError as error:
        return error.strerror or type(error).__name__


def broken_files(paths: Sequence[str]) -> dict[str, str]:
    """Path to what is wrong with it, for those of many files that are not whole."""
    with ThreadPoolExecutor(max_workers=16) as pool:  # it waits for the disk, not the processor
        found = zip(paths, pool.map(broken_file, paths, chunksize=64), strict=True)
        return {path: problem for path, problem in found if problem}


def sample(names: Collection[str], seed: int = 0) -> list[str]:
    """Up to :data:`SAMPLES` names, the same ones on every run."""
    names = sorted(names)
    return sorted(random.Random(seed).sample(names, min(SAMPLES, len(names))))
