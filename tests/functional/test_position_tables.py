"""Position tables against loops."""
import math

import pytest
import torch
import torch.nn.functional as F

from mmposenc.functional.position_tables import INTERPOLATIONS, resize_position_table, sincos_2d


@pytest.mark.parametrize('hw', [(3, 5), (1, 7), (6, 1), (4, 4)])
@pytest.mark.parametrize('layout', ['split', 'interleaved'])
@pytest.mark.parametrize('normalize', [False, True])
def test_sincos_is_the_formula(hw, layout, normalize):
    dims, temperature = 12, 100.0
    table = sincos_2d(hw, dims, temperature=temperature, normalize=normalize, layout=layout)
    assert table.shape == (1, hw[0] * hw[1], dims)

    def encode(index, length):
        position = (index + 1) / (length + 1e-6) * 2 * math.pi if normalize else index
        half = dims // 2
        angles = [position / temperature ** (2 * t / half) for t in range(half // 2)]
        if layout == 'split':
            return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        return [f(a) for a in angles for f in (math.sin, math.cos)]

    for row in range(hw[0]):
        for col in range(hw[1]):
            rows, cols = encode(row, hw[0]), encode(col, hw[1])
            expected = cols + rows if layout == 'split' else rows + cols
            torch.testing.assert_close(table[0, row * hw[1] + col], torch.tensor(expected))


RESIZING = [mode for mode in INTERPOLATIONS if mode != 'cut']


def interpolate(table, hw, to_hw, mode):
    """(1, C, H, W) by PyTorch."""
    kind, _, how = mode.partition('_')
    return F.interpolate(table.view(1, *hw, -1).permute(0, 3, 1, 2), size=to_hw, mode=kind,
                         align_corners=how == 'corners', antialias=how == 'antialias')


@pytest.mark.parametrize('mode', RESIZING)
@pytest.mark.parametrize('to_hw', [(7, 3), (2, 9), (1, 4), (4, 7)])
def test_resize_keeps_rows_and_columns_apart(mode, to_hw):
    table = torch.randn(1, 4 * 6, 3, dtype=torch.float64)
    expected = interpolate(table, (4, 6), to_hw, mode)
    out = resize_position_table(table, (4, 6), to_hw, mode)
    torch.testing.assert_close(out, expected.permute(0, 2, 3, 1).flatten(1, 2))
    assert resize_position_table(table, (4, 6), (4, 6), mode) is table


def dinov2_release(table, side, to_hw):
    """The patches' part of interpolate_pos_encoding with an offset of 0.1, of a square table."""
    if to_hw == (side, side):
        return table
    scale = [(length + 0.1) / side for length in to_hw]
    out = F.interpolate(table.view(1, side, side, -1).permute(0, 3, 1, 2), scale_factor=scale,
                        mode='bicubic')
    assert out.shape[-2:] == to_hw
    return out.permute(0, 2, 3, 1).flatten(1, 2)


@pytest.mark.parametrize('to_hw', [(37, 37), (37, 50), (16, 16), (12, 41), (5, 90)])
def test_dinov2s_offset_is_that_of_its_release(to_hw):
    table = torch.randn(1, 37 * 37, 3, dtype=torch.float64)
    expected = dinov2_release(table, 37, to_hw)
    out = resize_position_table(table, (37, 37), to_hw, offset=0.1)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    # and in a batch where the largest image is another
    out = resize_position_table(table, (37, 37), (40, 95), offset=0.1,
                                extents=torch.tensor([to_hw, (40, 95)]))
    own = out[0].view(40, 95, 3)[:to_hw[0], :to_hw[1]]
    torch.testing.assert_close(own.reshape(1, -1, 3), expected, rtol=0, atol=1e-10)
