"""Whether an image file is whole and of the size it should have, from its bytes."""
from __future__ import annotations

import io
import os
import random
import stat
import warnings
import zlib
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image

#: How many files of a folder are opened where opening all would take too long.
SAMPLES = 16
#: First bytes of a format, and the marker behind its last pixel.
ENDS = {b'\xff\xd8': b'\xff\xd9', b'\x89PNG': b'IEND'}
#: More pixels than this are refused: a gigapixel takes 5.6 GB before it is scaled down.
MAX_PIXELS = 178_956_970  # PIL's own limit
_ORIENTATION, _TURNED = 0x0112, (5, 6, 7, 8)
Size = tuple[int, int]


def check_file(path: str) -> None:
    """Raises ValueError for a pipe, a socket, a device or a folder, which are never to be opened:
    reading a pipe waits for ever, and a device may do anything."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = {stat.S_IFDIR: 'folder', stat.S_IFIFO: 'pipe', stat.S_IFSOCK: 'socket'}.get(
            stat.S_IFMT(mode), 'device')
        raise ValueError(f'it is a {kind}, not a file')


def broken(data: bytes, max_pixels: int = MAX_PIXELS) -> str:
    """Says what is wrong with an image's bytes; an empty string when nothing is.

    A JPEG that ends with its end marker, and a PNG whose pieces fit together, are taken as whole;
    see :func:`breaks_off` for a JPEG cut in the middle with an end marker behind. Others are
    decoded: PIL refuses what OpenCV fills with grey.
    """
    if not data:
        return 'the file is empty'
    try:
        size_shown(io.BytesIO(data), max_pixels)
        if _ends_well(data):
            return ''
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except Exception as error:  # PIL raises what the codec raises
        return reason(error)
    return ''


def _ends_well(data: bytes) -> bool:
    end = next((end for start, end in ENDS.items() if data.startswith(start)), None)
    if end is None or end not in data[-16:]:
        return False
    if end != b'IEND':
        return True
    at = 8
    while at + 12 <= len(data):  # the length, the name, the content and the check sum of a piece
        length = int.from_bytes(data[at:at + 4], 'big')
        if data[at + 4:at + 8] == b'IEND':
            return True
        at += 12 + length
    return False


def breaks_off(data: bytes, pixels: np.ndarray) -> bool:
    """Whether a JPEG was cut and given an end marker: decoders paint what is missing in one colour.

    An honest picture may end in one colour too. Its last blocks are then stored as a few bits
    each, the same again and again; in a cut file the last bytes are those of the picture's middle,
    which do not compress. Told are files with at least 32,768 missing pixels in whole rows; not
    progressive ones, whose missing parts only blur the picture.

    Args:
        data: the file.
        pixels: (H, W, ...) as a decoder gave them.
    """
    if not data.startswith(b'\xff\xd8') or pixels.size == 0:
        return False
    last = pixels[-1, -1]
    if (pixels[-1] != last).any():
        return False
    flat = (pixels == last).reshape(len(pixels), -1).all(1)
    rows = len(flat) if flat.all() else int(flat[::-1].argmin())
    # Two bits a block of 8 x 8 are the least that Huffman codes can take.
    num_bytes = min((rows // 16 * 2) * (pixels.shape[1] // 8) * 2 // 8, 1024)
    if num_bytes < 128 or 'progressive' in Image.open(io.BytesIO(data)).info:
        return False
    tail = data[:data.rindex(b'\xff\xd9')][-num_bytes:]
    return len(zlib.compress(tail, 9)) > 0.8 * len(tail)


def broken_file(path: str, size: Size | None = None) -> str:
    """:func:`broken` for a file, of which only both ends are read where they tell enough.

    Args:
        path: the file.
        size: (width, height) that the picture must have, as it is shown: cameras store pictures
            on their side with an EXIF orientation, which is applied when they are read.
    """
    try:
        check_file(path)
        with open(path, 'rb') as file:
            head = file.read(16)
            if not head:
                return 'the file is empty'
            end = next((end for start, end in ENDS.items() if head.startswith(start)), None)
            whole = False
            if end is not None:
                file.seek(-min(16, os.fstat(file.fileno()).st_size), os.SEEK_END)
                whole = end in file.read()
            file.seek(0)
            if not whole:
                problem = broken(file.read())
                if problem:
                    return problem
                file.seek(0)
            found = size_shown(file)
    except Exception as error:
        return reason(error)
    if size is not None and found != tuple(size):
        turned = ' (its EXIF orientation is applied)' if found == tuple(size)[::-1] else ''
        return (f'the picture is {found[0]}x{found[1]}{turned}, the annotations say '
                f'{size[0]}x{size[1]}, so boxes would lie elsewhere')
    return ''


def broken_files(paths: Sequence[str], sizes: Sequence[Size] | None = None) -> dict[str, str]:
    """Path to what is wrong with it, for those of many files that are not as they must be."""
    wanted: Sequence[Size | None] = sizes or [None] * len(paths)
    with ThreadPoolExecutor(max_workers=16) as pool:  # it waits for the disk, not the processor
        found = zip(paths, pool.map(broken_file, paths, wanted, chunksize=64), strict=True)
        return {path: problem for path, problem in found if problem}


def sample(names: Collection[str], seed: int = 0) -> list[str]:
    """Up to :data:`SAMPLES` names, the same ones on every run."""
    names = sorted(names)
    return sorted(random.Random(seed).sample(names, min(SAMPLES, len(names))))


def size_shown(file: io.IOBase, max_pixels: int = MAX_PIXELS) -> Size:
    """(width, height) as the picture is shown, from the head of a file.

    Raises:
        ValueError: for more pixels.
    """
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', Image.DecompressionBombWarning)
        with Image.open(file) as image:  # type: ignore[arg-type]
            width, height = image.size
            turned = image.getexif().get(_ORIENTATION) in _TURNED
    if width * height > max_pixels:
        raise ValueError(f'it has {width}x{height} pixels, at most {max_pixels:,} are read')
    return (height, width) if turned else (width, height)


def reason(error: Exception) -> str:
    """What an error says beside the name of the file."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if isinstance(error, ValueError) else f'{type(error).__name__}: {error}'
