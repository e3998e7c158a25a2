"""What a linear probe reads, where the answer is known; borders against torch's own padding."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tinyfigures import examined, vit
from torch import nn

from mmposenc.encodings import PEG
from mmposenc.lab.diagnose.probe import (
    CROPS,
    Borders,
    measure_probe,
    r_squared,
    random_crops,
    read_position,
    ridge,
    surround,
)

COUNT = sum(CROPS)


def test_ridge_and_r_squared_by_loops():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=(30, 2))
    found = ridge(torch.tensor(x), torch.tensor(y), 0.1).numpy()
    # The same as least squares with further rows of sqrt(n lambda) e_i whose targets are 0.
    rows = np.concatenate([x, np.sqrt(30 * 0.1) * np.eye(4)])
    expected = np.linalg.lstsq(rows, np.concatenate([y, np.zeros((4, 2))]), rcond=None)[0]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    wanted = r_squared(torch.tensor(x @ expected), torch.tensor(y)).numpy()
    for target in range(2):
        residual = sum((y[i, target] - x[i] @ expected[:, target]) ** 2 for i in range(30))
        total = sum((y[i, target] - y[:, target].mean()) ** 2 for i in range(30))
        assert wanted[target] == pytest.approx(1 - residual / total)


def tokens(channels=6, hw=(5, 7), seed=0):
    return torch.randn(COUNT, channels, *hw, generator=torch.Generator().manual_seed(seed))


def test_tokens_that_hold_row_or_column_or_nothing():
    noise, rows = tokens(), torch.arange(5.0)[:, None].expand(5, 7)
    row, col = read_position(noise)
    assert -0.2 < row < 0.02 and -0.2 < col < 0.02
    held = torch.cat((noise[:, :5], rows.expand(COUNT, 1, 5, 7)), 1)
    row, col = read_position(held)
    assert row == pytest.approx(1, abs=1e-6) and col < 0.02
    row, col = read_position(rows.T.expand(COUNT, 1, 7, 5) * -3 + 100)
    assert row < 0.02 and col == pytest.approx(1, abs=1e-6)
    # Half of the variance is noise: a row r of variance v beside noise of variance v gives 1/2.
    many = torch.randn(COUNT, 1, 40, 40, generator=torch.Generator().manual_seed(1))
    line = torch.arange(40.0)[:, None].expand(40, 40)
    line = (line - line.mean()) / line.std()
    assert read_position(many + line)[0] == pytest.approx(0.5, abs=0.02)


def test_tokens_that_do_not_vary_or_lie_on_one_row():
    row, col = read_position(torch.ones(COUNT, 3, 4, 4))
    assert abs(row) < 1e-12 and abs(col) < 1e-12
    row, col = read_position(tokens(hw=(1, 7)))
    assert np.isnan(row) and col < 0.1


def measured(model, images):
    return measure_probe(examined(model), images)[0]


def test_a_table_that_is_linear_in_the_row_is_read_and_no_table_is_not():
    images = {'noise': torch.randn(1, 3, 48, 48)}
    table = vit(img_size=48, pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'))
    (encoding,) = table.pos_encodings.encodings(-1)
    grid = torch.arange(6.0)[:, None].expand(6, 6).reshape(-1, 1) * torch.ones(16)
    (parameter,) = encoding.parameters()
    with torch.no_grad():
        parameter.copy_(grid.view_as(parameter) * 20)
    found = measured(table, images)
    row, col = found.map['values'][0]
    assert row > 0.99 and col < 0.1  # pictures are noise beside it
    assert found.map['columns'] == ['row, zeros', 'column, zeros']
    assert 'No convolution of this model has padding' in found.text
    assert found.value == pytest.approx(sum(found.map['values'][-1]) / 2, rel=1e-5)
    nothing = measured(vit(), images)
    assert max(max(row) for row in nothing.map['values']) < 0.1


def test_position_comes_from_zeros_around_a_peg_and_is_gone_without_an_edge():
    """CPVT, Sec. 3.2, and Islam et al.: the border is what tells. Of equal tokens a kernel of 3
    tells the first row, the last and those between: of 6 rows at y = -2.5 ... 2.5, 1 - (1.5^2 +
    0.5^2 + 0.5^2 + 1.5^2) / 17.5 is read."""
    peg = vit(pos_encoding=dict(type='mmposenc.PEG'))
    nn.init.zeros_(peg.patch_embed.projection.weight)
    nn.init.normal_(peg.patch_embed.projection.bias)
    found = measured(peg, {'noise': torch.randn(1, 3, 48, 48)})
    by = {each['label']: each['y'] for each in found.series}
    assert by['noise, zeros'][0] == pytest.approx(0, abs=1e-6)  # before the PEG
    assert by['noise, zeros'][1] == pytest.approx(1 - 5 / 17.5, abs=1e-3)
    for border in ('replicate', 'circular'):
        assert by[f'noise, {border}'] == pytest.approx([0, 0, 0], abs=1e-6)
    assert found.map['columns'] == [f'{which}, {border}' for border in (
        'zeros', 'replicate', 'circular') for which in ('row', 'column')]


def test_what_pictures_show_says_nothing_of_the_place():
    """A bright sky above dark ground is flipped as often as not."""
    sky = torch.linspace(2, -2, 48)[:, None] + 0.1 * torch.randn(4, 3, 48, 48)
    found = measured(vit(), {'pictures': sky})
    assert max(row[0] for row in found.map['values']) < 0.35
    crops = random_crops(sky, COUNT, 0)
    assert crops.shape == (COUNT, 3, 48, 48)
    above = (crops[:, :, :24].mean((1, 2, 3)) > crops[:, :, 24:].mean((1, 2, 3)))
    assert 4 < above.sum() < COUNT - 4
    torch.testing.assert_close(crops, random_crops(sky, COUNT, 0), rtol=0, atol=0)


@pytest.mark.parametrize('border', ['replicate', 'circular'])
@pytest.mark.parametrize('conv', [
    nn.Conv2d(4, 6, 5, padding=2), nn.Conv2d(4, 4, (3, 1), padding=(1, 0), groups=4, bias=False),
    nn.Conv2d(4, 6, 3, padding=2, dilation=2, stride=2), nn.Conv2d(4, 6, 3, padding='same')])
def test_borders_are_torchs(border, conv):
    x = torch.randn(2, 4, 6, 7)
    pads = conv._reversed_padding_repeated_twice
    expected = F.conv2d(F.pad(x, pads, mode=border), conv.weight, conv.bias, conv.stride, 0,
                        conv.dilation, conv.groups)
    with Borders(border) as mode:
        found = conv(x)
    torch.testing.assert_close(found, expected)
    assert mode.padded == 1
    with Borders('zeros') as mode:
        torch.testing.assert_close(conv(x), conv(x), rtol=0, atol=0)
        nn.Conv2d(4, 4, 2, stride=2)(x)
    assert mode.padded == 2


def test_a_peg_of_one_layer_is_padded_though_it_is_folded():
    peg = PEG(4)
    x = torch.randn(1, 30, 4)
    with Borders('circular'):
        found = peg(x, (5, 6))
    # On a torus rolling the tokens rolls what comes out.
    rolled = x.view(1, 5, 6, 4).roll((2, 1), (1, 2)).flatten(1, 2)
    with Borders('circular'):
        moved = peg(rolled, (5, 6))
    torch.testing.assert_close(moved, found.view(1, 5, 6, 4).roll((2, 1), (1, 2)).flatten(1, 2))
    assert (peg(x, (5, 6)) - found).abs().max() > 0.01


def test_a_border_wider_than_the_map_and_an_unknown_one():
    x = torch.arange(3.0).view(1, 1, 1, 3)
    assert surround(x, (0, 4), 'circular').flatten().tolist() == [2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert surround(x, (0, 2), 'replicate').flatten().tolist() == [0, 0, 0, 1, 2, 2, 2]
    with pytest.raises(ValueError, match="border='mirror' must be one of"):
        Borders('mirror')
