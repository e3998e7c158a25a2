"""Every query is in one block, with every key that it reaches."""
import math

import pytest
import torch

from mmposenc.functional.pooling import partition
from mmposenc.functional.pooling.kernels import reach
from mmposenc.functional.pooling.partition import Options, block_elements, blocks, cells_at_stride


def sizes(hw, stride=1, images=2, largest=6.0):
    """The queries' sizes, of which some reach far."""
    count = len(cells_at_stride(hw, stride))
    return torch.rand(images, count, generator=torch.Generator().manual_seed(0)).pow(3) * largest


@pytest.mark.parametrize('kernel', ['gaussian', 'window'])
@pytest.mark.parametrize(('hw', 'stride', 'causal'), [
    ((20, 13), 1, False), ((20, 13), 2, False), ((7, 31), 3, False), ((1, 300), 1, True),
    ((300, 1), 1, False), ((1, 301), 2, True)])
def test_groups(hw, stride, causal, kernel, monkeypatch):
    monkeypatch.setattr(partition, 'WHOLE_PAIRS', 0)
    monkeypatch.setattr(partition, 'GROUP', 16)
    monkeypatch.setattr(partition, 'REGION', 6)
    monkeypatch.setitem(partition.BLOCK_ELEMENTS, 'cpu', 700)
    sigma, cut = sizes(hw, stride), 8.0
    cells = cells_at_stride(hw, stride)
    seen = torch.zeros_like(sigma, dtype=torch.long)
    areas = []
    for block in blocks(sigma, Options(hw, kernel, causal, cut, stride)):
        image = block.images.start
        assert block.images == slice(image, image + 1) and 1 <= len(block.queries) <= 16
        seen[image, block.queries] += 1
        areas.append((block.rows.stop - block.rows.start) * (block.cols.stop - block.cols.start))
        for query in block.queries.tolist():
            far = reach(kernel, float(sigma[image, query]), cut)
            for length, keys, at, last in (
                    (hw[0], block.rows, int(cells[query]) // hw[1], math.inf),
                    (hw[1], block.cols, int(cells[query]) % hw[1],
                     int(cells[query]) % hw[1] if causal else math.inf)):
                needed = [key for key in range(length) if abs(key - at) < far and key <= last]
                assert keys.start <= needed[0] and needed[-1] < keys.stop <= length
    assert seen.eq(1).all()
    assert min(areas) < hw[0] * hw[1]  # or grouping would save nothing
    if causal:
        assert len(set(areas)) > 1


def test_small_neighbourhoods_are_together(monkeypatch):
    """One large size must not make all of its region reach far."""
    monkeypatch.setattr(partition, 'WHOLE_PAIRS', 0)
    monkeypatch.setattr(partition, 'GROUP', 16)
    monkeypatch.setitem(partition.BLOCK_ELEMENTS, 'cpu', 700)
    sigma = torch.full((1, 400), 0.1)
    sigma[0, ::25] = 5.0
    large = [block for block in blocks(sigma, Options((20, 20), 'window', False, 8.0, 1))
             if float(sigma[0, block.queries].max()) > 1]
    assert len(large) == 1 and len(large[0].queries) == 16


@pytest.mark.parametrize(('images', 'elements', 'expected'), [
    (5, 10_000, [5]), (5, 20 * 9 * 2, [2, 2, 1]), (3, 1, [1, 1, 1])])
def test_whole_images_while_they_fit(images, elements, expected, monkeypatch):
    monkeypatch.setitem(partition.BLOCK_ELEMENTS, 'cpu', elements)
    found = list(blocks(torch.ones(images, 20), Options((4, 5), 'gaussian', False, 8.0, 1)))
    assert [min(block.images.stop, images) - block.images.start for block in found] == expected
    assert [block.images.start for block in found] == [sum(expected[:i])
                                                       for i in range(len(expected))]
    for block in found:
        assert block.queries is None and (block.rows, block.cols) == (slice(0, 4), slice(0, 5))


def test_buffers_by_device():
    assert block_elements(torch.ones(1)) == partition.BLOCK_ELEMENTS['cpu']
    assert block_elements(torch.ones(1, device='meta')) == partition.BLOCK_ELEMENTS['cuda']
