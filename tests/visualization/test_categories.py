"""Neighbouring categories are drawn in different colours."""
import numpy as np
import pytest

from mmposenc.lab.figures import bucket_map
from mmposenc.lab.figures.panels import PALETTE, color_categories


def differ(categories, colors):
    """Whether cells that touch, corners included, differ in colour wherever in category."""
    height, width = categories.shape
    return all(colors[row, col] != colors[r, c]
               for row in range(height) for col in range(width)
               for r in range(max(row - 1, 0), min(row + 2, height))
               for c in range(max(col - 1, 0), min(col + 2, width))
               if categories[row, col] != categories[r, c])


@pytest.mark.parametrize('grid, cells', [((14, 14), [(0, 0), (7, 7), (13, 2)]),
                                         ((25, 42), [(3, 30)])])
@pytest.mark.parametrize('method, options', [
    ('euclidean', dict(ratio=1.0)), ('quantization', dict(ratio=3.0)),
    ('quantization', dict(ratio=1.9, quantization='rank')), ('cross', dict(ratio=1.9)),
    ('product', dict(ratio=1.9)), ('product', dict(ratio=3.0, index='clip'))])
def test_neighbours_differ_and_a_category_has_one_color_in_all_maps(grid, cells, method, options):
    found = [bucket_map(method, grid, cell, **options) for cell in cells]
    maps = [each[0] if each.ndim == 3 else each for each in found]
    colors = color_categories(maps)
    values, drawn = np.concatenate(maps).ravel(), np.concatenate(colors).ravel()
    for value in np.unique(values):
        assert len(set(drawn[values == value])) == 1
    assert all(differ(*pair) for pair in zip(maps, colors, strict=True))
    assert len(PALETTE) > max(drawn)


def test_as_many_categories_as_colors_all_differ():
    few = np.arange(len(PALETTE))[None]
    assert len(set(color_categories([few])[0].ravel())) == len(PALETTE)
    # More than can differ: all touch all, and still each has a colour.
    centre = np.array([[1, 2, 3], [4, 0, 5], [6, 7, 8]])
    assert color_categories([centre])[0].max() < len(PALETTE)
