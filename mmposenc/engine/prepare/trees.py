"""Hand-annotated tree crowns in aerial images (NEON), out of the deepforest package (MIT)."""
from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ElementTree
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from .common import Log, clip_boxes, prepare_from_wheel, tile_starts


@dataclass(frozen=True)
class Region:
    """A part of a plot that is cut into tiles: pixels [x0, x1) x [y0, y1); None: to the end."""

    plot: str
    stride: int
    x0: int = 0
    y0: int = 0
    x1: int | None = None
    y1: int | None = None


@dataclass(frozen=True)
class TreesSource:
    """Where the data come from and how they are cut."""

    requirement: str
    filename: str
    sha256: str
    splits: dict[str, tuple[Region, ...]]
    folder: str = 'deepforest/data'
    licence: str = 'deepforest-2.1.0.dist-info/licenses/LICENSE'
    tile: int = 400
    min_inside: float = 0.5
    disk_bytes: int = 150_000_000


_LARGE = '2019_YELL_2_528000_4978000_image_crop2'
#: The last 400 rows of the large plot are held out: meadow on the left, forest on the right, like
#: the rest of it. Training tiles end where they begin, so the two share no pixel.
_BLOCK_TOP = 2472 - 400
TREES = TreesSource(
    requirement='deepforest==2.1.0',
    filename='deepforest-2.1.0-py3-none-any.whl',
    sha256='8c2798d8e9be7f0004b194fe207b76c1d9fff6e711b3db67b9508dcd5d00ae54',
    splits={
        'train': (Region(_LARGE, stride=200, y1=_BLOCK_TOP),
                  Region('OSBS_029', stride=400), Region('SOAP_061', stride=400)),
        'val_block': (Region(_LARGE, stride=400, y0=_BLOCK_TOP),),
        'val': (Region('2019_YELL_2_541000_4977000_image_crop', stride=400),),
    })


def prepare_trees(out: Path, cache: Path, log: Log = print, source: TreesSource = TREES
                  ) -> dict[str, dict[str, int]]:
    """Write ``out``/images/<split>/*.png and ``out``/annotations/<split>.json (COCO).

    Splits: 'train'; 'val_block', a strip of the largest training plot that no training tile
    touches; 'val', a different plot. Does nothing when ``out`` is complete already. Everything is
    written next to ``out`` first and renamed at the end.

    Args:
        out, cache, log: as :func:`.common.prepare_from_wheel` takes them.
        source: what to fetch and how to cut it.

    Returns:
        For each split the number of tiles, boxes, and boxes in the fullest tile.

    Raises:
        PrepareError: as that function.
    """
    return prepare_from_wheel(out, cache, log, source, _build)


def _build(archive: zipfile.ZipFile, folder: Path, source: TreesSource, log: Log
           ) -> dict[str, dict[str, int]]:
    counts = {}
    (folder / 'LICENSE').write_bytes(archive.read(source.licence))
    (folder / 'annotations').mkdir()
    for split, regions in source.splits.items():
        (folder / 'images' / split).mkdir(parents=True)
        coco = _empty_coco(source, split)
        for region in regions:
            _cut_region(archive, region, source, folder / 'images' / split, coco)
        (folder / 'annotations' / f'{split}.json').write_text(json.dumps(coco))
        counts[split] = _count(coco)
        log('{}: {tiles} tiles, {boxes} boxes, at most {most} in a tile'.format(
            split, **counts[split]))
    return counts


def _empty_coco(source: TreesSource, split: str) -> dict:
    return {
        'info': {'description': f'Tree crowns in NEON aerial images, {split}',
                 'source': f'{source.requirement} ({source.filename})'},
        'licenses': [{'id': 1, 'name': 'MIT', 'url': 'LICENSE'}],
        'categories': [{'id': 1, 'name': 'tree', 'supercategory': 'plant'}],
        'images': [], 'annotations': [],
    }


def _cut_region(archive: zipfile.ZipFile, region: Region, source: TreesSource, folder: Path,
                coco: dict) -> None:
    """Append the tiles of a region to ``coco`` and write their pictures."""
    stem = f'{source.folder}/{region.plot}'
    image = np.asarray(Image.open(io.BytesIO(archive.read(f'{stem}.png'))).convert('RGB'))
    height, width = image.shape[:2]
    boxes = read_voc(archive.read(f'{stem}.xml'))
    for y0 in tile_starts(region.y0, region.y1 or height, source.tile, region.stride):
        for x0 in tile_starts(region.x0, region.x1 or width, source.tile, region.stride):
            window = (x0, y0, x0 + source.tile, y0 + source.tile)
            name = f'{region.plot}_x{x0:04d}_y{y0:04d}.png'
            Image.fromarray(image[y0:window[3], x0:window[2]]).save(folder / name)
            _append(coco, name, region.plot, window, clip_boxes(boxes, window, source.min_inside))


def read_voc(text: bytes) -> np.ndarray:
    """Boxes of a Pascal VOC annotation, (N, 4): 0-based corners with an exclusive end.

    VOC counts pixels from 1 and includes the last, so xmin loses one and xmax stays. SOAP_061
    distinguishes living and dead trees; the other plots say only 'Tree': all are one class here.
    """
    return np.array([[float(box.findtext(key) or '') - (key in ('xmin', 'ymin'))
                      for key in ('xmin', 'ymin', 'xmax', 'ymax')]
                     for box in ElementTree.fromstring(text).iter('bndbox')]).reshape(-1, 4)


def _append(coco: dict, name: str, plot: str, window: tuple[int, int, int, int],
            boxes: np.ndarray) -> None:
    image_id = len(coco['images']) + 1
    coco['images'].append({'id': image_id, 'file_name': name, 'width': window[2] - window[0],
                           'height': window[3] - window[1], 'license': 1, 'plot': plot,
                           'origin': list(window[:2])})
    for x0, y0, x1, y1 in boxes.tolist():
        size = (x1 - x0, y1 - y0)
        coco['annotations'].append({
            'id': len(coco['annotations']) + 1, 'image_id': image_id, 'category_id': 1,
            'bbox': [x0, y0, *size], 'area': size[0] * size[1], 'iscrowd': 0})


def _count(coco: dict) -> dict[str, int]:
    per_tile = dict.fromkeys((image['id'] for image in coco['images']), 0)
    for annotation in coco['annotations']:
        per_tile[annotation['image_id']] += 1
    return {'tiles': len(per_tile), 'boxes': len(coco['annotations']),
            'most': max(per_tile.values(), default=0)}
