"""Fluorescent nuclei with their masks (2018 Data Science Bowl), out of the stardist package."""
from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from .common import Log, prepare_from_wheel, tile_starts


@dataclass(frozen=True)
class NucleiSource:
    """Where the image comes from and how it is cut.

    ``splits`` maps a split to (first row, last row + 1, stride of its tiles); None is the end. The
    last 128 of 512 rows are held out: training tiles end where they begin.
    """

    requirement: str = 'stardist==0.9.2'
    filename: str = ('stardist-0.9.2-cp311-cp311-manylinux_2_24_x86_64.'
                     'manylinux_2_28_x86_64.whl')
    sha256: str = '2316c0feb7bd5621e7a277cb3868df475c338943c591925c420ee3622c42f023'
    image: str = 'stardist/data/images/img2d.tif'
    mask: str = 'stardist/data/images/mask2d.tif'
    licence: str = 'stardist-0.9.2.dist-info/licenses/LICENSE.txt'
    splits: tuple[tuple[str, int, int | None, int], ...] = (
        ('training', 0, 384, 64), ('validation', 384, None, 128))
    tile: int = 128
    disk_bytes: int = 10_000_000


NUCLEI = NucleiSource()


def prepare_nuclei(out: Path, cache: Path, log: Log = print, source: NucleiSource = NUCLEI
                   ) -> dict[str, dict[str, int]]:
    """Write ``out``/images/<split>/*.png and ``out``/annotations/<split>/*.png.

    Label 0 is background, 1 nucleus. Splits: 'training', and 'validation', a strip that no
    training tile touches. Does nothing when ``out`` is complete already.

    Args:
        out, cache, log: as :func:`.common.prepare_from_wheel` takes them.
        source: what to fetch and how to cut it.

    Returns:
        For each split the number of tiles and of nuclei in its part of the image.

    Raises:
        PrepareError: as that function.
    """
    return prepare_from_wheel(out, cache, log, source, _build)


def _build(archive: zipfile.ZipFile, folder: Path, source: NucleiSource, log: Log
           ) -> dict[str, dict[str, int]]:
    image, mask = (np.asarray(Image.open(io.BytesIO(archive.read(name))))
                   for name in (source.image, source.mask))
    (folder / 'LICENSE').write_bytes(archive.read(source.licence))
    counts = {}
    for split, top, bottom, stride in source.splits:
        bottom = bottom or len(image)
        tiles = _cut(image.astype(np.uint8), (mask > 0).astype(np.uint8), folder, split,
                     tile_starts(top, bottom, source.tile, stride),
                     tile_starts(0, image.shape[1], source.tile, stride), source.tile)
        nuclei = len(np.unique(mask[top:bottom])) - 1  # 0 is background
        counts[split] = {'tiles': tiles, 'nuclei': nuclei}
        log(f'{split}: {tiles} tiles of {nuclei} nuclei')
    return counts


def _cut(image: np.ndarray, labels: np.ndarray, folder: Path, split: str, rows: list[int],
         columns: list[int], tile: int) -> int:
    """Write the tiles of both; returns their number."""
    for kind, pixels in (('images', image), ('annotations', labels)):
        split_folder = folder / kind / split
        split_folder.mkdir(parents=True)
        for y in rows:
            for x in columns:
                Image.fromarray(pixels[y:y + tile, x:x + tile]).save(
                    split_folder / f'nuclei_x{x:03d}_y{y:03d}.png')
    return len(rows) * len(columns)
