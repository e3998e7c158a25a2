"""Pascal VOC annotation files."""
from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Collection

import numpy as np


def read_voc(text: bytes, name: str, image_size: tuple[int, int],
             categories: Collection[str]) -> np.ndarray:
    """Boxes of one VOC annotation, as 0-based corners with an exclusive end.

    VOC counts pixels from 1 and includes the last, so xmin loses one and xmax stays.

    Args:
        text: the XML.
        name: what errors call the file.
        image_size: width, height of the image the boxes belong to.
        categories: names an object may have.

    Returns:
        (N, 4) float64 corners x0, y0, x1, y1.

    Raises:
        ValueError: If the XML can't be read, was made for an image of another size, names an
            unknown category, or has a box without area or outside of the image.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f'{name} is no readable XML: {error}') from error
    declared = tuple(_number(root.find('size'), key, name) for key in ('width', 'height'))
    if declared != image_size:
        raise ValueError(f'{name} is for an image of {declared[0]:g}x{declared[1]:g} pixels, '
                         f'the image has {image_size[0]}x{image_size[1]}')
    boxes = []
    for index, item in enumerate(root.findall('object')):
        where = f'{name}, object {index}'
        category = item.findtext('name', '').strip()
        if category not in categories:
            raise ValueError(f'{where}: unknown category {category!r}; '
                             f'known: {", ".join(sorted(categories))}')
        corners = item.find('bndbox')
        xmin, ymin, xmax, ymax = (_number(corners, key, where)
                                  for key in ('xmin', 'ymin', 'xmax', 'ymax'))
        x0, y0 = xmin - 1, ymin - 1
        if not (0 <= x0 < xmax <= image_size[0] and 0 <= y0 < ymax <= image_size[1]):
            raise ValueError(f'{where}: box ({xmin:g}, {ymin:g}, {xmax:g}, {ymax:g}) has no area '
                             f'or leaves the image of {image_size[0]}x{image_size[1]} pixels')
        boxes.append((x0, y0, xmax, ymax))
    return np.array(boxes, dtype=np.float64).reshape(-1, 4)


def _number(parent: ElementTree.Element | None, key: str, where: str) -> float:
    text = None if parent is None else parent.findtext(key)
    try:
        return float(text or '')
    except ValueError:
        raise ValueError(f'{where}: <{key}> is {text!r}, a number is required') from None
