"""Sizes of the images in a batch: noted, checked, missed, and cut to."""
import warnings

import pytest
import torch

from mmposenc.functional.image_sizes import get_img_shapes, mask_images, set_img_shapes


def test_sizes_are_checked():
    batch = set_img_shapes(torch.zeros(2, 3, 8, 8), [(8, 4), torch.tensor([3, 8])])
    assert get_img_shapes(batch, None, True) == [(8, 4), (3, 8)]
    assert get_img_shapes(batch, None, False) is None
    assert get_img_shapes(batch, [(1, 1), (2, 2)], True) == [(1, 1), (2, 2)]
    for wrong in ([(8, 8)], [(9, 8), (8, 8)], [(8, 8), (8, 9)], [(0, 8), (8, 8)],
                  [(8, 0), (8, 8)], (8, 8), torch.ones(3, 2, dtype=torch.long)):
        with pytest.raises(ValueError, match='img_shapes(=| has shape)'):
            get_img_shapes(batch, wrong, True)
    with pytest.raises(ValueError, match='mask_padding=False; set mask_padding=True'):
        get_img_shapes(batch, [(8, 8), (8, 8)], False)


def padded(index, rows, cols):
    """Two images of 6 x 8 pixels, one of which fills only so many rows and columns."""
    batch = torch.rand(2, 3, 6, 8) + 0.1
    batch[index, :, rows:] = 0
    batch[index, :, :, cols:] = 0
    return batch


def one_dark_channel():
    batch = padded(0, 6, 8)
    batch[:, 1, -1] = 0
    batch[:, 2, :, -1] = 0
    return batch


@pytest.mark.parametrize('index', [0, 1])
@pytest.mark.parametrize(('rows', 'cols'), [(5, 8), (6, 7), (3, 3)],
                         ids=['below', 'to the right', 'both'])
def test_padding_without_sizes_is_warned_about(index, rows, cols):
    with pytest.warns(UserWarning, match='mask_padding=True, .*like padding.*DetDataPreproc'):
        assert get_img_shapes(padded(index, rows, cols), None, True) is None


@pytest.mark.parametrize('batch', [
    padded(0, 6, 8), one_dark_channel(),
    padded(0, 5, 8) - 0.5,  # padded with another number
    torch.where(torch.arange(8) > 3, padded(0, 6, 8), 0.0),  # dark at the left
    padded(0, 5, 8).requires_grad_(),  # a figure of gradients, not a batch of a detector
    set_img_shapes(padded(1, 5, 7), [(6, 8), (5, 7)])],
    ids=['full', 'one channel', 'other number', 'dark', 'gradients', 'noted'])
def test_no_warning(batch):
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert get_img_shapes(batch, None, True) in (None, [(6, 8), (5, 7)])


def test_a_batch_is_cut_to_its_largest_image_and_cleared():
    batch = torch.ones(2, 1, 8, 10)
    images, mask = mask_images(batch, [(5, 4), (3, 7)], cell=2)
    assert images.shape == (2, 1, 5, 7)
    for image, (height, width) in zip(images[:, 0], [(5, 4), (3, 7)], strict=True):
        assert image[:height, :width].eq(1).all() and image.sum() == height * width
    # A cell is padding when its first pixel is.
    assert mask.tolist() == [[[False, False, True, True]] * 3,
                             [[False] * 4, [False] * 4, [True] * 4]]
    assert batch.eq(1).all()
    # Images of one size leave nothing to mask.
    images, mask = mask_images(batch, [(5, 4), (5, 4)], cell=2)
    assert images.shape == (2, 1, 5, 4) and mask is None
    assert mask_images(batch, None, cell=2) == (batch, None)
