"""IDX files, the format of MNIST: a magic number, big-endian sizes, then bytes."""
from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import numpy as np

_UNSIGNED_BYTE = 8
#: MNIST's training images unpack to 47 MB.
MAX_BYTES = 200_000_000


def gunzip(content: bytes, most: int) -> bytes:
    """What a gzip file holds, at most ``most`` bytes of it.

    Raises:
        ValueError: it holds more.
    """
    with gzip.open(io.BytesIO(content)) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f'unpacks to more than {most:,} bytes')
    return data


def read_idx(path: Path, ndim: int) -> np.ndarray:
    """The bytes of an IDX file, gzipped or not.

    Args:
        path: the file.
        ndim: dimensions it must have: 3 for images, 1 for labels.

    Returns:
        A uint8 array of ``ndim`` dimensions.

    Raises:
        ValueError: names the file and what is wrong with it.
    """
    content = path.read_bytes()
    if content[:2] == b'\x1f\x8b':
        try:
            content = gunzip(content, MAX_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f'{path} is no whole gzip file: {error}') from error
        except ValueError as error:
            raise ValueError(f'{path} {error}') from error
    if len(content) < 4 * (ndim + 1) or content[:4] != bytes((0, 0, _UNSIGNED_BYTE, ndim)):
        raise ValueError(f'{path} is no IDX file of {ndim}-dimensional bytes: it begins with '
                         f'{content[:4].hex() or "nothing"}, required is 000008{ndim:02x}')
    shape = tuple(np.frombuffer(content, '>u4', ndim, offset=4).tolist())
    pixels = np.frombuffer(content, np.uint8, offset=4 * (ndim + 1))
    if pixels.size != np.prod(shape, dtype=np.int64):
        raise ValueError(f'{path} says it holds {"x".join(map(str, shape))} bytes and holds '
                         f'{pixels.size}')
    return pixels.reshape(shape)


def write_idx(path: Path, array: np.ndarray) -> None:
    """Write a uint8 array, uncompressed.

    Raises:
        ValueError: for another dtype.
    """
    if array.dtype != np.uint8:
        raise ValueError(f'array.dtype={array.dtype} must be uint8')
    header = bytes((0, 0, _UNSIGNED_BYTE, array.ndim)) + np.array(array.shape, '>u4').tobytes()
    path.write_bytes(header + array.tobytes())
