"""Padding of convolutions by name."""
import pytest
import torch

from mmposenc.functional.convolutions import padding_cells


@pytest.mark.parametrize('padding', ['valid', 'same', 2, (1, 3)])
@pytest.mark.parametrize('kernel, dilation', [((3, 3), 1), ((5, 1), (2, 1)), ((3, 7), (1, 3)),
                                              ((2, 4), 2)])
def test_it_is_that_of_torch(padding, kernel, dilation):
    """By where the first cell is in the result."""
    conv = torch.nn.Conv2d(1, 1, kernel, padding=padding, dilation=dilation, bias=False)
    torch.nn.init.zeros_(conv.weight)
    conv.weight.data[..., 0, 0] = 1.0
    x = torch.zeros(1, 1, 30, 30)
    x[..., 9, 9] = 1.0
    first = conv(x)[0, 0].nonzero()[0].tolist()
    assert first == [9 + cells for cells in padding_cells(padding, kernel, dilation)]


@pytest.mark.parametrize('kernel, dilation', [((2, 3), 1), ((3, 4), 1), ((3, 4), (1, 3))])
def test_one_side_with_more_is_refused(kernel, dilation):
    with pytest.raises(NotImplementedError, match='an even kernel pads one side more'):
        padding_cells('same', kernel, dilation)
