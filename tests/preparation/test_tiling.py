import numpy as np
import pytest

from mmposenc.engine.prepare.tiling import clip_boxes, tile_starts


@pytest.mark.parametrize('start, stop, tile, stride', [
    (0, 2299, 400, 400), (0, 2299, 400, 200), (2072, 2472, 400, 400), (0, 1249, 400, 400),
    (7, 47, 40, 1), (3, 44, 40, 40)])
def test_tiles_cover_every_pixel_and_stay_inside(start, stop, tile, stride):
    starts = tile_starts(start, stop, tile, stride)
    covered = np.zeros(stop, dtype=int)
    for first in starts:
        covered[first:first + tile] += 1
    assert covered[start:].min() == 1 and not covered[:start].any()
    assert starts == sorted(set(starts)) and starts[-1] + tile == stop
    assert max(np.diff(starts), default=0) <= stride


def test_a_multiple_of_the_tile_gives_a_plain_grid():
    assert tile_starts(5, 125, 40, 40) == [5, 45, 85]


@pytest.mark.parametrize('args, message', [
    ((0, 39, 40, 40), r'\[0, 39\) is shorter than a tile of 40'),
    ((0, 80, 0, 1), 'tile must be at least 1 pixel, got 0'),
    ((0, 80, 40, 41), 'stride must be between 1 and the tile of 40 pixels, got 41'),
    ((0, 80, 40, 0), 'stride must be between 1 and the tile of 40 pixels, got 0')])
def test_impossible_tiles_are_refused(args, message):
    with pytest.raises(ValueError, match=message):
        tile_starts(*args)


def _clip_by_pixels(box, window, min_inside):
    """The same for integer boxes, counting pixels."""
    pixels = {(x, y) for x in range(box[0], box[2]) for y in range(box[1], box[3])}
    inside = {(x, y) for x, y in pixels
              if window[0] <= x < window[2] and window[1] <= y < window[3]}
    if not inside or len(inside) < min_inside * len(pixels):
        return None
    xs, ys = zip(*inside, strict=True)
    return [min(xs) - window[0], min(ys) - window[1],
            max(xs) + 1 - window[0], max(ys) + 1 - window[1]]


@pytest.mark.parametrize('min_inside', [0.0, 0.5, 1.0])
def test_clipping_equals_counting_pixels(min_inside):
    rng = np.random.default_rng(0)
    window = (10, 15, 30, 30)
    corners = rng.integers(0, 30, (200, 2))
    boxes = np.concatenate((corners, corners + rng.integers(1, 12, (200, 2))), axis=1)
    expected = [clipped for box in boxes.tolist()
                if (clipped := _clip_by_pixels(box, window, min_inside)) is not None]
    assert 0 < len(expected) < 200
    np.testing.assert_array_equal(clip_boxes(boxes, window, min_inside), expected)


def test_a_box_exactly_half_inside_stays_and_a_little_less_goes():
    assert clip_boxes(np.array([[-10, 0, 10, 5]]), (0, 0, 20, 20)).tolist() == [[0, 0, 10, 5]]
    assert clip_boxes(np.array([[-11, 0, 10, 5]]), (0, 0, 20, 20)).shape == (0, 4)
    assert clip_boxes(np.zeros((0, 4)), (0, 0, 20, 20)).shape == (0, 4)
