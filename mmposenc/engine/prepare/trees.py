"""Prepares hand-annotated tree crowns in aerial images (NEON) from the package deepforest (MIT)."""
from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from .folders import Counts
from .tiles import Window, tile_windows

#: The content of a file in COCO's format.
Coco = dict[str, Any]


class Region(NamedTuple):
    """A part of a plot that is cut into tiles: the rows [y0, y1); None means to the end."""

    plot: str
    stride: int
    y0: int = 0
    y1: int | None = None


_LARGE = '2019_YELL_2_528000_4978000_image_crop2'
#: The last 400 rows of the large plot are held out. They show meadow on the left and forest on the
#: right, as the rest of the plot does. Training tiles end where they begin, so the two share no
#: pixel.
_BLOCK_TOP = 2472 - 400
#: The regions of each split. 'val_block' is a strip of the largest training plot that no training
#: tile touches, and 'val' a different plot.
SPLITS = {
    'train': (Region(_LARGE, stride=200, y1=_BLOCK_TOP),
              Region('OSBS_029', stride=400), Region('SOAP_061', stride=400)),
    'val_block': (Region(_LARGE, stride=400, y0=_BLOCK_TOP),),
    'val': (Region('2019_YELL_2_541000_4977000_image_crop', stride=400),),
}
_DATA, _LICENCE = 'deepforest/data', 'deepforest-2.1.0.dist-info/licenses/LICENSE'


def write_trees(archive: zipfile.ZipFile, folder: Path,
                splits: dict[str, tuple[Region, ...]] = SPLITS,
                tile: tuple[int, int] = (400, 400)) -> Counts:
    """Write images/<split>/*.png and annotations/<split>.json (COCO).

    Args:
        archive: the wheel of deepforest.
        folder: an empty one.
        splits: the regions that are cut into tiles.
        tile: their height and width in pixels.

    Returns:
        For each split the tiles and the boxes.
    """
    counts = {}
    (folder / 'LICENSE').write_bytes(archive.read(_LICENCE))
    (folder / 'annotations').mkdir()
    for split, regions in splits.items():
        (folder / 'images' / split).mkdir(parents=True)
        coco: Coco = {'categories': [{'id': 1, 'name': 'tree', 'supercategory': 'plant'}],
                      'images': [], 'annotations': []}
        for region in regions:
            _extract_tiles(archive, region, tile, folder / 'images' / split, coco)
        (folder / 'annotations' / f'{split}.json').write_text(json.dumps(coco))
        counts[split] = {'tiles': len(coco['images']), 'boxes': len(coco['annotations'])}
    return counts


def _extract_tiles(archive: zipfile.ZipFile, region: Region, tile: tuple[int, int], folder: Path,
                   coco: Coco) -> None:
    """Append the tiles of a region to ``coco``, and write their pictures."""
    plot = f'{_DATA}/{region.plot}'
    image = Image.open(io.BytesIO(archive.read(f'{plot}.png'))).convert('RGB')
    boxes = read_voc(archive.read(f'{plot}.xml'))
    rows = region.y0, region.y1 or image.height
    for window in tile_windows((0, image.width), rows, tile, region.stride):
        name = f'{region.plot}_x{window[0]:04d}_y{window[1]:04d}.png'
        image.crop(window).save(folder / name)
        image_id = len(coco['images']) + 1
        coco['images'].append({
            'id': image_id, 'file_name': name, 'height': tile[0], 'width': tile[1],
            'plot': region.plot, 'origin': list(window[:2])})
        for left, top, right, bottom in clip_boxes(boxes, window).tolist():
            width, height = right - left, bottom - top
            coco['annotations'].append({
                'id': len(coco['annotations']) + 1, 'image_id': image_id, 'category_id': 1,
                'bbox': [left, top, width, height], 'area': width * height, 'iscrowd': 0})


def read_voc(text: bytes) -> np.ndarray:
    """The boxes of a Pascal VOC annotation, (N, 4): corners that count from 0, with an exclusive
    end.

    VOC counts pixels from 1 and includes the last, so xmin loses one and xmax stays. SOAP_061
    distinguishes living and dead trees; the other plots say only 'Tree': all are one class here.
    """
    return np.array([[float(box.findtext(key) or '') - (key in ('xmin', 'ymin'))
                      for key in ('xmin', 'ymin', 'xmax', 'ymax')]
                     for box in ElementTree.fromstring(text).iter('bndbox')])


def clip_boxes(boxes: np.ndarray, window: Window, min_inside: float = 0.5) -> np.ndarray:
    """Boxes as a window sees them: clipped, and dropped where too little is left.

    Args:
        boxes: (N, 4) corners x0, y0, x1, y1 in pixels, x1 and y1 exclusive.
        window: x0, y0, x1, y1 of the window in the same pixels.
        min_inside: a box stays if at least this share of its area lies inside.

    Returns:
        (M, 4) corners relative to the window's first pixel.
    """
    x0, y0, x1, y1 = window
    boxes = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    clipped = boxes.clip([x0, y0, x0, y0], [x1, y1, x1, y1])
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    inside = np.prod(clipped[:, 2:] - clipped[:, :2], axis=1)
    keep = (inside > 0) & (inside >= min_inside * area)
    return clipped[keep] - [x0, y0, x0, y0]
