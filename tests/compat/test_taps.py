"""CARAFE, PSANet's attention maps and masked convolution against their definitions."""
import itertools

import pytest
import torch
from torch import nn

import mmposenc  # noqa: F401  (before mmcv's operators)

ops = pytest.importorskip('mmcv.ops')


def carafe_loop(x, masks, kernel, groups, scale):
    out = torch.zeros(*x.shape[:2], x.shape[2] * scale, x.shape[3] * scale, dtype=x.dtype)
    for c, row, col, i, j in itertools.product(range(x.shape[1]), range(out.shape[2]),
                                               range(out.shape[3]), range(kernel), range(kernel)):
        y, z = row // scale + i - kernel // 2, col // scale + j - kernel // 2
        if 0 <= y < x.shape[2] and 0 <= z < x.shape[3]:
            channel = (c // (x.shape[1] // groups) * kernel + i) * kernel + j
            out[:, c, row, col] += x[:, c, y, z] * masks[:, channel, row, col]
    return out


def psa_loop(weights, mask_size, psa_type):
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


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def carafe(hw, kernel, groups, scale):
    inputs = draw(1, 4, *hw), draw(1, groups * kernel ** 2, hw[0] * scale, hw[1] * scale)
    return (lambda *both: ops.carafe(*both, kernel, groups, scale),
            lambda *both: carafe_loop(*both, kernel, groups, scale), inputs)


def psa(psa_type, hw, mask_size):
    return (ops.PSAMask(psa_type, mask_size), lambda x: psa_loop(x, mask_size, psa_type),
            (draw(2, mask_size[0] * mask_size[1], *hw),))


def masked(kernel, padding):
    layer = ops.MaskedConv2d(3, 4, kernel, padding=padding).double().requires_grad_(False)
    mask = draw(1, 5, 6) > 0

    def plain(x):
        return nn.functional.conv2d(x, layer.weight, layer.bias, padding=padding) * mask
    return lambda x: layer(x, mask), plain, (draw(1, 3, 5, 6),)


@pytest.mark.parametrize('make, options', [
    (carafe, ((3, 2), 3, 2, 2)), (carafe, ((1, 2), 5, 1, 3)), (carafe, ((2, 2), 1, 4, 1)),
    *[(psa, (psa_type, *sizes)) for psa_type in ('collect', 'distribute')
      for sizes in (((3, 4), (5, 7)), ((4, 1), (3, 3)), ((2, 3), (2, 3)))],
    (masked, ((3, 3), 1)), (masked, ((1, 3), (0, 1))), (masked, ((1, 1), 0))])
def test_equals_the_definition_and_its_gradient(make, options):
    operator, definition, inputs = make(*options)
    expected = definition(*inputs)
    torch.testing.assert_close(operator(*inputs), expected)
    torch.testing.assert_close(operator(*(x.mT.contiguous().mT for x in inputs)), expected)
    if make is not masked:  # which runs forward alone, as mmcv's
        given = [x.clone().requires_grad_() for x in inputs]
        assert torch.autograd.gradcheck(operator, given, fast_mode=True)


def test_no_cell_is_asked_for():
    layer = ops.MaskedConv2d(3, 4, 3, padding=1)
    assert not layer(torch.randn(1, 3, 5, 6), torch.zeros(1, 5, 6, dtype=torch.bool)).any()


def test_half_precision_is_added_up_in_single():
    x, masks = draw(1, 2, 4, 4).half(), draw(1, 25, 8, 8).half()
    single = ops.carafe(x.float(), masks.float(), 5, 1, 2)
    assert torch.equal(ops.carafe(x, masks, 5, 1, 2), single.half())
    weights = draw(2, 9, 3, 4).half()
    assert torch.equal(ops.PSAMask('collect', (3, 3))(weights),
                       psa_loop(weights, (3, 3), 'collect'))
