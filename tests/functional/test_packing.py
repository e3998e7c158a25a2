"""Valid tokens of padded batches in one row."""
import torch

from mmposenc.functional.masking import extents_to_mask
from mmposenc.functional.packing import packing_of


def mask_of(extents, hw):
    return extents_to_mask(extents, hw, torch.device('cpu'))


def test_tokens_come_image_by_image_and_go_back() -> None:
    extents, hw = [(2, 3), (3, 1), (3, 4)], (3, 4)
    mask = mask_of(extents, hw)
    packing = packing_of(mask.flatten(1), hw)
    assert packing.lengths == [6, 3, 12] and packing.grids == extents
    x = torch.randn(3, 12, 5)
    packed = packing.pack(x)
    expected = torch.cat([image[:h, :w].flatten(0, 1) for image, (h, w) in
                          zip(x.unflatten(1, hw), extents, strict=True)])
    assert torch.equal(packed, expected[None])
    assert torch.equal(packing.unpack(packed), x.masked_fill(mask.flatten(1)[..., None], 0))


def test_gradients() -> None:
    packing = packing_of(mask_of([(2, 2), (1, 3)], (2, 3)).flatten(1), (2, 3))
    x = torch.randn(2, 6, 2, dtype=torch.float64, requires_grad=True)
    row = torch.randn(1, 7, 2, dtype=torch.float64, requires_grad=True)
    for function, value in ((packing.pack, x), (packing.unpack, row)):
        assert torch.autograd.gradcheck(function, value)
        assert torch.autograd.gradgradcheck(function, value)


def test_images_without_a_valid_token_are_left_out() -> None:
    packing = packing_of(mask_of([(0, 0), (2, 2)], (2, 3)).flatten(1), (2, 3))
    assert packing.lengths == [4] and packing.grids == [(2, 2)]
    assert not packing.unpack(torch.ones(1, 4, 1))[0].any()


def test_cells_that_are_no_rectangle_have_no_grid() -> None:
    for cell in ((0, 0), (1, 1), (1, 2)):
        mask = mask_of([(2, 3), (2, 2)], (2, 3))
        mask[0, cell[0], cell[1]] = True
        assert packing_of(mask.flatten(1), (2, 3)).grids is None, cell
    assert packing_of(mask.flatten(1)).grids is None
    right = torch.ones(1, 2, 3, dtype=torch.bool)
    right[:, :, 1:] = False  # a rectangle, but not at the first cell
    assert packing_of(right.flatten(1), (2, 3)).grids is None
