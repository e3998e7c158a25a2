"""Prepares an image of fluorescent nuclei with its mask (2018 Data Science Bowl) from the package
stardist."""
from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from .folders import Log
from .tiles import tile_windows
from .wheels import FolderFromWheel


@dataclass(frozen=True)
class NucleiFromWheel(FolderFromWheel):
    """Writes images/<split>/*.png and annotations/<split>/*.png, in which label 0 is background, 1
    nucleus. For each split the tiles and the nuclei in its part of the image are counted.

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
    disk_bytes: int = field(default=10_000_000, kw_only=True)

    def build(self, archive: zipfile.ZipFile, folder: Path, log: Log) -> dict[str, dict[str, int]]:
        """Cut the image and its mask into tiles."""
        image, mask = (np.asarray(Image.open(io.BytesIO(archive.read(name))))
                       for name in (self.image, self.mask))
        (folder / 'LICENSE').write_bytes(archive.read(self.licence))
        whole = {'images': Image.fromarray(image.astype(np.uint8)),
                 'annotations': Image.fromarray((mask > 0).astype(np.uint8))}
        counts = {}
        for split, top, bottom, stride in self.splits:
            bottom = bottom or len(image)
            tiles = list(tile_windows((0, image.shape[1]), (top, bottom), self.tile, stride))
            for kind, pixels in whole.items():
                (folder / kind / split).mkdir(parents=True)
                for x, y, right, below in tiles:
                    pixels.crop((x, y, right, below)).save(
                        folder / kind / split / f'nuclei_x{x:03d}_y{y:03d}.png')
            nuclei = len(np.unique(mask[top:bottom])) - 1  # The value 0 is background.
            counts[split] = {'tiles': len(tiles), 'nuclei': nuclei}
            log(f'{split}: {len(tiles)} tiles of {nuclei} nuclei')
        return counts


NUCLEI = NucleiFromWheel()
