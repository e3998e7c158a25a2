"""PSANet's attention maps against a loop over pairs of cells."""
import itertools

import pytest
import torch

import mmposenc  # noqa: F401  (before mmcv's operators)

ops = pytest.importorskip('mmcv.ops')


def loop(weights, mask_size, psa_type):
    """Cell (h, w) has a weight for each cell around it: channel i * w_mask + j for the cell
    (h + i - half, w + j - half)."""
    number, _, height, width = weights.shape
    half = [(side - 1) // 2 for side in mask_size]
    out = torch.zeros(number, height * width, height, width, dtype=weights.dtype)
    for h, w, i, j in itertools.product(range(height), range(width), *map(range, mask_size)):
        y, x = h + i - half[0], w + j - half[1]
        if 0 <= y < height and 0 <= x < width:
            value = weights[:, i * mask_size[1] + j, h, w]
            if psa_type == 'collect':
                out[:, y * width + x, h, w] = value
            else:
                out[:, h * width + w, y, x] = value
    return out


@pytest.mark.parametrize('psa_type', ['collect', 'distribute'])
@pytest.mark.parametrize('hw, mask_size', [((3, 4), (5, 7)), ((4, 1), (3, 3)), ((2, 3), (2, 3))])
def test_equals_the_definition_and_its_gradient(psa_type, hw, mask_size):
    torch.manual_seed(0)
    layer = ops.PSAMask(psa_type, mask_size)
    weights = torch.randn(2, mask_size[0] * mask_size[1], *hw, dtype=torch.float64)
    assert torch.equal(layer(weights), loop(weights, mask_size, psa_type))
    weights.requires_grad_()
    assert torch.autograd.gradcheck(layer, weights)
    assert torch.equal(layer(weights.detach().half()).double(),
                       loop(weights.detach().half().double(), mask_size, psa_type))
