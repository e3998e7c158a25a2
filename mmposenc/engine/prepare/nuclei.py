"""Prepares an image of fluorescent nuclei with its mask (2018 Data Science Bowl) from the package
stardist."""
from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from .folders import Counts
from .tiles import tile_windows

#: For each split its first row, its last row + 1 (None: the end), and the stride of its tiles. The
#: last 128 of 512 rows are held out: training tiles end where they begin.
SPLITS: dict[str, tuple[int, int | None, int]] = {
    'training': (0, 384, 64), 'validation': (384, None, 128)}
_FILES = {'images': 'stardist/data/images/img2d.tif',
          'annotations': 'stardist/data/images/mask2d.tif'}
_LICENCE = 'stardist-0.9.2.dist-info/licenses/LICENSE.txt'


def write_nuclei(archive: zipfile.ZipFile, folder: Path,
                 splits: dict[str, tuple[int, int | None, int]] = SPLITS, tile: int = 128
                 ) -> Counts:
    """Write images/<split>/*.png and annotations/<split>/*.png, in which label 0 is background, 1
    nucleus.

    Args:
        archive: the wheel of stardist.
        folder: an empty one.
        splits: the rows that are cut into tiles.
        tile: their side in pixels.

    Returns:
        For each split the tiles, and the nuclei in its part of the image.
    """
    image, mask = (np.asarray(Image.open(io.BytesIO(archive.read(name))))
                   for name in _FILES.values())
    (folder / 'LICENSE').write_bytes(archive.read(_LICENCE))
    whole = {'images': Image.fromarray(image.astype(np.uint8)),
             'annotations': Image.fromarray((mask > 0).astype(np.uint8))}
    counts = {}
    for split, (top, bottom, stride) in splits.items():
        bottom = bottom or len(image)
        windows = list(tile_windows((0, image.shape[1]), (top, bottom), (tile, tile), stride))
        for kind, pixels in whole.items():
            (folder / kind / split).mkdir(parents=True)
            for window in windows:
                name = f'nuclei_x{window[0]:03d}_y{window[1]:03d}.png'
                pixels.crop(window).save(folder / kind / split / name)
        nuclei = len(np.unique(mask[top:bottom])) - 1  # The value 0 is background.
        counts[split] = {'tiles': len(windows), 'nuclei': nuclei}
    return counts
