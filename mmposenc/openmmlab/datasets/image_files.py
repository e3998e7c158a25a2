"""Checks of an image file's bytes: is it complete, and does it have the expected size?"""
from __future__ import annotations

import io
import os
import random
import stat
import struct
import warnings
import zlib
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError

#: How many files of a folder are opened, if it would take too long to open all.
SAMPLES = 16
#: For the first bytes of a format, the marker at the end of its files.
ENDS = {b'\xff\xd8': b'\xff\xd9', b'\x89PNG': b'IEND'}
#: Larger images are refused, because decoding a gigapixel takes 5.6 GB.
MAX_PIXELS = 178_956_970  # This is also PIL's limit.
#: EXIF's key for the orientation, and the values of it that swap width and height.
_ORIENTATION, _TURNED = 0x0112, (5, 6, 7, 8)
Size = tuple[int, int]


def check_file(path: str) -> None:
    """Raise ValueError for a pipe, a socket, a device or a folder. They must not be opened: reading
    a pipe may wait forever."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = {stat.S_IFDIR: 'folder', stat.S_IFIFO: 'pipe', stat.S_IFSOCK: 'socket'}.get(
            stat.S_IFMT(mode), 'device')
        raise ValueError(f'it is a {kind}, not a file')


def image_problem(file: BinaryIO, max_pixels: int = MAX_PIXELS) -> str:
    """What is wrong with an image, see :func:`size_if_whole`; '' if nothing is."""
    try:
        size_if_whole(file, max_pixels)
    except Exception as error:  # PIL raises whatever its codec raises.
        return message_without_file(error)
    return ''


def size_if_whole(file: BinaryIO, max_pixels: int = MAX_PIXELS, *, chunks: bool = True) -> Size:
    """:func:`size_shown` of an image that is complete.

    A JPEG that ends with its end marker and a PNG with all its chunks count as complete (see
    :func:`is_cut_jpeg` for a JPEG that was cut but has an end marker). Other formats are decoded:
    PIL raises for missing pixels, which OpenCV would fill with grey.

    Args:
        file: the image.
        max_pixels: larger images are not read.
        chunks: walk over the chunks of a PNG; False: its end marker is enough.

    Raises:
        Exception: something is wrong with the image; :func:`message_without_file` says what.
    """
    if not file.read(1):
        raise ValueError('the file is empty')
    size = size_shown(file, max_pixels)
    if not _ends_well(file, chunks):
        with Image.open(file) as image:
            image.load()
    return size


def _ends_well(file: BinaryIO, chunks: bool) -> bool:
    file.seek(0)
    head = file.read(4)
    end = next((end for start, end in ENDS.items() if head.startswith(start)), None)
    length = file.seek(0, os.SEEK_END)
    file.seek(max(length - 16, 0))
    if end is None or end not in file.read():
        return False
    if not chunks or end != b'IEND':
        return True
    at = 8
    while at + 12 <= length:  # A chunk consists of length, name, content and checksum.
        file.seek(at)
        size, name = struct.unpack('>I4s', file.read(8))
        if name == b'IEND':
            return True
        at += 12 + size
    return False


def is_cut_jpeg(data: bytes, decoded: np.ndarray) -> bool:
    """Whether a JPEG was cut but has an end marker; decoders fill the missing part with one colour.

    A complete image may end in one colour too. Its last blocks then repeat the same few bits, while
    the last bytes of a cut file come from the middle of the image and do not compress. Only cut
    files with at least 32,768 missing pixels in full rows are found, and no progressive ones, whose
    missing part only blurs the image.

    Args:
        data: the file.
        decoded: (H, W, ...), its pixels.
    """
    if not data.startswith(b'\xff\xd8') or decoded.size == 0:
        return False
    last = decoded[-1, -1]
    if (decoded[-1] != last).any():
        return False
    flat = (decoded == last).reshape(len(decoded), -1).all(1)
    rows = len(flat) if flat.all() else int(flat[::-1].argmin())
    # A Huffman-coded block of 8 x 8 pixels takes at least two bits.
    num_bytes = min((rows // 16 * 2) * (decoded.shape[1] // 8) * 2 // 8, 1024)
    if num_bytes < 128 or 'progressive' in Image.open(io.BytesIO(data)).info:
        return False
    tail = data[:data.rindex(b'\xff\xd9')][-num_bytes:]
    return len(zlib.compress(tail, 9)) > 0.8 * len(tail)


def image_file_problem(path: str, size: Size | None = None) -> str:
    """Check a file as :func:`image_problem` does, reading only its beginning and end if they are
    enough.

    Args:
        path: the file.
        size: expected (width, height) after the EXIF orientation is applied, or None.
    """
    try:
        check_file(path)
        with open(path, 'rb') as file:
            shown = size_if_whole(file, chunks=False)
    except Exception as error:
        return message_without_file(error)
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


def sample_of_names(names: Collection[str], seed: int = 0) -> list[str]:
    """Up to :data:`SAMPLES` of the names, the same ones in every run."""
    names = sorted(names)
    return sorted(random.Random(seed).sample(names, min(SAMPLES, len(names))))


def size_shown(file: BinaryIO, max_pixels: int = MAX_PIXELS) -> Size:
    """The size (width, height) after the EXIF orientation is applied.

    Raises:
        ValueError: the image has more than ``max_pixels`` pixels.
    """
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', Image.DecompressionBombWarning)
        with Image.open(file) as image:
            width, height = image.size
            # Newer versions of Pillow turn the size of a TIFF themselves.
            if image.format == 'TIFF':
                width, height = (image.tag_v2[key] for key in (256, 257))  # type: ignore
            if width * height > max_pixels:
                raise ValueError(f'it has {width}x{height} pixels, at most {max_pixels:,} are read')
            turned = image.getexif().get(_ORIENTATION) in _TURNED
    return (height, width) if turned else (width, height)


def turned(data: bytes, pixels: np.ndarray) -> np.ndarray:
    """Turn pixels (H, W, ...) by the EXIF orientation, which OpenCV ignores in a WebP."""
    if data[8:12] != b'WEBP':
        return pixels
    with Image.open(io.BytesIO(data)) as image:
        way = image.getexif().get(_ORIENTATION, 1)
    pixels = pixels.swapaxes(0, 1) if way in _TURNED else pixels
    rows, cols = (slice(None, None, -1 if way in ways else 1) for ways in ((3, 4, 7, 8),
                                                                           (2, 3, 6, 7)))
    return np.ascontiguousarray(pixels[rows, cols])


def eight_bits(data: bytes, pixels: np.ndarray, color: str) -> np.ndarray:
    """Pixels whose grey levels are kept where a file has 16 bits a channel and uses 12 of them.

    OpenCV takes the upper 8 of 16 bits. A camera's 12 bits are the lower ones, of which it would
    leave 16 grey levels.

    Args:
        data: the file, a PNG or TIFF.
        pixels: (H, W, ...), 0 to 255, as OpenCV decodes it.
        color: 'color' or 'grayscale', the way in which it was decoded.
    """
    if not data.startswith((b'\x89PNG', b'II', b'MM')) or pixels.max(initial=0) > 4095 // 256:
        return pixels
    import cv2
    flag = cv2.IMREAD_COLOR if color == 'color' else cv2.IMREAD_GRAYSCALE
    deep = cv2.imdecode(np.frombuffer(data, np.uint8), flag | cv2.IMREAD_ANYDEPTH)
    if deep is None or deep.dtype != np.uint16 or deep.shape != pixels.shape:
        return pixels
    return (deep >> 4).astype(pixels.dtype)


def message_without_file(error: Exception) -> str:
    """The message of an error, without the name of the file."""
    if isinstance(error, UnidentifiedImageError):  # Its message would name a buffer.
        return 'Pillow recognises no picture in it'
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if isinstance(error, ValueError) else f'{type(error).__name__}: {error}'
