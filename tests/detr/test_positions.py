"""Which cells of a map are padding, against the pixels that each cell looks at."""
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from mmposenc.functional.extents import extents_to_mask
from mmposenc.openmmlab.mmdet.detr.positions import exact_mask, padding_masks

#: Of images in a batch of the size that each test adds: from one pixel to nearly all of it.
SHARES = ((1, 1), (0.2, 0.7), (0.45, 0.5), (0.62, 0.3), (0.97, 0.99))


def image_sizes(full):
    """One image of every size of SHARES, and one that fills the batch."""
    return [tuple(share if share == 1 else max(1, int(share * side))
                  for share, side in zip(shares, full, strict=True)) for shares in SHARES] + [full]


@pytest.mark.parametrize('full, stride, ceil_mode', [
    *((full, stride, True) for stride in (1, 2, 8, 16, 32, 64)
      for full in ((128, 192), (130, 190), (161, 230), (97, 33 * 8), (65, 1))),
    *((full, stride, False) for stride in (2, 8, 32)
      for full in ((128, 192), (102, 134), (97, 264), (127, 191)))])
def test_grids_rounded_up_and_down(full, stride, ceil_mode):
    """Padding is a cell without a valid pixel among its own stride x stride."""
    sizes = image_sizes(full)
    valid = ~extents_to_mask(sizes, full, torch.device('cpu')).cells
    expected = F.max_pool2d(valid[:, None].float(), stride, ceil_mode=ceil_mode)[:, 0] == 0
    feature = torch.empty(len(sizes), 1, *expected.shape[1:])
    assert torch.equal(exact_mask(feature, full, sizes).cells, expected)


def test_other_strides_have_cells_of_equal_shares():
    """Cells of 15 x 10 pixels, whichever power of two is near."""
    mask = exact_mask(torch.empty(2, 1, 4, 9), (60, 90), [(15, 11), (46, 90)]).cells
    assert (~mask[0]).nonzero().tolist() == [[0, 0], [0, 1]]
    assert mask[1].sum() == 0


def test_images_of_one_size_have_no_mask():
    assert exact_mask(torch.empty(2, 1, 3, 4), (96, 128), [(96, 128)] * 2) is None


@pytest.mark.parametrize('full', [(128, 192), (130, 190), (1333, 800), (97, 264), (65, 33)])
def test_masks_are_mmdets_without_an_exact_backbone(full):
    """The pixels' mask resized, on grids rounded up, down and of no stride."""
    sizes = image_sizes(full)
    samples = [SimpleNamespace(img_shape=size, batch_input_shape=full) for size in sizes]
    grids = [(-(-full[0] // step), -(-full[1] // step)) for step in (1, 2, 8, 32)]
    grids += [(full[0] // 16, full[1] // 16), (full[0] // 3, full[1] // 5)]
    features = [torch.empty(len(sizes), 1, *grid) for grid in grids]
    pixels = extents_to_mask(sizes, full, torch.device('cpu')).cells[:, None].float()
    for mask, grid in zip(padding_masks(samples, features, exact=False), grids, strict=True):
        assert torch.equal(mask.cells, F.interpolate(pixels, grid).bool()[:, 0])
