"""Attention distance by loops, error under shifts and a probe where the answer is known."""
import math

import numpy as np
import pytest
import torch
from helpers.tiny_backbones import BUILD, randomized
from helpers.tiny_inspected import image, subject, vit
from torch import nn

from mmposenc.backbones import PVT, Swin
from mmposenc.lab.inspect.probes import (
    CROPS,
    all_measures,
    attention_distance_picture,
    position_probe_picture,
    position_r_squared,
    r_squared,
    random_crops,
    ridge_weights,
    shift_error_picture,
)

COUNT = sum(CROPS)


def test_uniform_attention_is_the_mean_distance_of_all_pairs():
    model = vit(pool='cls', num_layers=1)
    nn.init.zeros_(model.blocks[0].attn.qkv.weight)
    nn.init.zeros_(model.blocks[0].attn.qkv.bias)
    found = attention_distance_picture(subject(model), image(40, 64, 2)).numbers
    pairs = [math.hypot(i // 8 - j // 8, i % 8 - j % 8) for i in range(40) for j in range(40)]
    expected = 8 * sum(pairs) / len(pairs)
    assert found['means'] == [pytest.approx(expected, rel=1e-5)]
    assert found['heads'] == {'blocks.0.attn': pytest.approx([expected] * 2, rel=1e-5)}


@torch.no_grad()
def test_distance_to_reduced_keys_by_a_loop():
    torch.manual_seed(0)
    model = randomized(PVT(embed_dims=(8,), num_layers=(1,), num_heads=(2,), sr_ratios=(4,),
                           mlp_ratios=(1,), patch_sizes=(4,), out_indices=(0,)), 0.5).eval()
    images, called = image(32, 48, 2), []
    attn = model.stages[0].blocks[0].attn
    hook = attn.register_forward_pre_hook(lambda _, args: called.append(args))
    model(images)
    hook.remove()
    weights = attn(*called[0][:2], need_weights=True)[1]  # 8 x 12 to 2 x 3
    reach = [[], []]
    for b, head, i in np.ndindex(2, 2, 96):
        reach[head].append(sum(
            w * math.hypot(i // 12 - (j // 3 * 4 + 1.5), i % 12 - (j % 3 * 4 + 1.5))
            for j, w in enumerate(weights[b, head, i].tolist())))
    found = attention_distance_picture(subject(model), images).numbers
    assert found['heads'] == {'stages.0.blocks.0.attn': pytest.approx(
        [4 * sum(e) / len(e) for e in reach], rel=1e-4)}


@pytest.mark.parametrize('masked', [True, False])
def test_distance_in_shifted_windows_by_a_loop_over_the_map(masked):
    """Windows of 4 on 6 x 7 cells, shifted by 2: a pair of cells is in one window when both lie in
    it after the shift; zeros fill the windows up and have no place."""
    torch.manual_seed(0)
    model = randomized(Swin(embed_dims=8, num_layers=(2,), num_heads=(2,), window_size=4,
                            out_indices=(0,), mask_window_padding=masked))
    for block in model.stages[0].blocks:  # uniform, so that who meets whom is all that counts
        for parameter in (block.attn.w_msa.qkv.weight, block.attn.w_msa.qkv.bias,
                          block.attn.w_msa.rel_pos_encoding.relative_position_bias_table):
            nn.init.zeros_(parameter)
    found = attention_distance_picture(subject(model), image(24, 28, 2)).numbers['heads']
    for values, shift in zip(found.values(), (0, 2), strict=True):
        reach = []
        for r, c in np.ndindex(6, 7):
            real = [(a, b) for a in range(6) for b in range(7)
                    if (a - shift) // 4 == (r - shift) // 4
                    and (b - shift) // 4 == (c - shift) // 4]
            reach.append(sum(math.hypot(a - r, b - c) for a, b in real) / len(real))
        assert values == pytest.approx([4 * sum(reach) / 42] * 2, rel=1e-5)


def test_heads_differ_in_number():
    found = attention_distance_picture(subject(randomized(BUILD['pvt']())),
                                       image(32, 64, 2)).numbers
    assert [len(each) for each in found['heads'].values()] == [1, 2, 2]
    assert found['means'] == pytest.approx([np.mean(each) for each in found['heads'].values()])
    assert attention_distance_picture(subject(nn.Conv2d(3, 4, 3)), image()) is None


@pytest.mark.parametrize('name', ['vit', 'pvt'])
def test_without_an_encoding_a_rolled_picture_gives_a_rolled_map(name):
    """Attention is the same whatever the order of the cells: of PVT by the cells of its keys, which
    are those of the last map here."""
    options = dict(sr_ratios=(2, 1)) if name == 'pvt' else {}
    found = shift_error_picture(subject(randomized(BUILD[name](**options)).eval()),
                                image(64, 96, 2))
    assert max(map(max, found.numbers['errors'].values())) < 1e-5
    assert found.numbers['pixels'] == [8, 16]


def test_a_table_is_the_difference_of_its_own_cells():
    """Tokens that are nothing but a table stay where they are: by a loop over the table."""
    model = vit(pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'), num_layers=1,
                img_size=(64, 96))
    nn.init.zeros_(model.patch_embed.projection.weight)
    nn.init.zeros_(model.patch_embed.projection.bias)
    table = model.pos_encodings.encodings(-1)[0]
    grid = table(torch.zeros(1, 96, 16), (8, 12))[0].view(8, 12, 16).detach()
    for index, shift in enumerate((1, 2)):
        above = below = 0.0
        for row, col in np.ndindex(8, 12):
            moved = grid[(row - shift) % 8, (col - shift) % 12]
            above += float((grid[row, col] - moved).square().sum())
            below += float(grid[row, col].square().sum())
        found = shift_error_picture(subject(model), image(64, 96, 2)).numbers['errors']
        assert found['input'][index] == pytest.approx((above / below) ** 0.5, rel=1e-4)


def test_a_peg_sees_the_border_and_a_map_of_one_cell_is_not_measured():
    peg = vit(pos_encoding=dict(type='mmposenc.PEG'))
    found = shift_error_picture(subject(peg), image(64, 96, 2)).numbers
    first, *_, last = found['errors'].values()
    assert first[0] < 1e-5 < 0.05 < last[0]  # before and after it
    assert shift_error_picture(subject(vit(patch_size=32)), image(32, 96)) is None


def test_ridge_and_r_squared_by_loops():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=(30, 2))
    found = ridge_weights(torch.tensor(x), torch.tensor(y), 0.1).numpy()
    # The same as least squares with further rows of sqrt(n lambda) e_i whose targets are 0.
    rows = np.concatenate([x, np.sqrt(30 * 0.1) * np.eye(4)])
    expected = np.linalg.lstsq(rows, np.concatenate([y, np.zeros((4, 2))]), rcond=None)[0]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    wanted = r_squared(torch.tensor(x @ expected), torch.tensor(y)).numpy()
    for target in range(2):
        residual = sum((y[i, target] - x[i] @ expected[:, target]) ** 2 for i in range(30))
        total = sum((y[i, target] - y[:, target].mean()) ** 2 for i in range(30))
        assert wanted[target] == pytest.approx(1 - residual / total)


def tokens(channels=6, hw=(5, 7)):
    return torch.randn(COUNT, channels, *hw, generator=torch.Generator().manual_seed(0))


def test_tokens_that_hold_row_or_column_or_nothing():
    noise, rows = tokens(), torch.arange(5.0)[:, None].expand(5, 7)
    row, column = position_r_squared(noise)
    assert -0.2 < row < 0.02 and -0.2 < column < 0.02
    row, column = position_r_squared(torch.cat((noise[:, :5], rows.expand(COUNT, 1, 5, 7)), 1))
    assert row == pytest.approx(1, abs=1e-6) and column < 0.02
    row, column = position_r_squared(rows.T.expand(COUNT, 1, 7, 5) * -3 + 100)
    assert row < 0.02 and column == pytest.approx(1, abs=1e-6)
    # Half of the variance is noise: a row r of variance v beside noise of variance v gives 1/2.
    many = torch.randn(COUNT, 1, 40, 40, generator=torch.Generator().manual_seed(1))
    line = torch.arange(40.0)[:, None].expand(40, 40)
    scaled = (line - line.mean()) / line.std()
    assert position_r_squared(many + scaled)[0] == pytest.approx(0.5, abs=0.02)
    row, column = position_r_squared(torch.ones(COUNT, 3, 4, 4))
    assert abs(row) < 1e-12 and abs(column) < 1e-12
    assert np.isnan(position_r_squared(tokens(hw=(1, 7)))[0])


def test_a_table_that_is_linear_in_the_row_is_read_and_no_table_is_not():
    images = image(48, 48, 4)
    table = vit(img_size=48, pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'))
    (parameter,) = table.pos_encodings.encodings(-1)[0].parameters()
    with torch.no_grad():
        rows = torch.arange(6.0)[:, None].expand(6, 6).reshape(-1, 1) * torch.ones(16)
        parameter.copy_(rows.view_as(parameter) * 20)
    found = position_probe_picture(subject(table), images).numbers
    row, column = found['row_and_column']['input']
    assert row > 0.99 and column < 0.1  # pictures are noise beside it
    assert list(found['row_and_column']) == ['input', 'blocks.0', 'blocks.1']
    assert found['means'][0] == pytest.approx((row + column) / 2)
    nothing = position_probe_picture(subject(vit()), images).numbers
    assert max(map(max, nothing['row_and_column'].values())) < 0.35


def test_position_comes_from_the_zeros_around_a_peg():
    """CPVT, Sec. 3.2, and Islam et al.: of equal tokens a kernel of 3 tells the first row, the last
    and those between: of 6 rows at y = -2.5 ... 2.5, 1 - (1.5^2 + 0.5^2 + 0.5^2 + 1.5^2) / 17.5 is
    read."""
    peg = vit(pos_encoding=dict(type='mmposenc.PEG'))
    nn.init.zeros_(peg.patch_embed.projection.weight)
    nn.init.normal_(peg.patch_embed.projection.bias)
    by_map = position_probe_picture(subject(peg), image(48, 48, 4)).numbers['means']
    assert by_map[0] == pytest.approx(0, abs=1e-6)  # before the PEG
    assert by_map[1] == pytest.approx(1 - 5 / 17.5, abs=1e-3)


def test_what_pictures_show_says_nothing_of_the_place():
    """A bright sky above dark ground is flipped as often as not."""
    sky = torch.linspace(2, -2, 48)[:, None] + 0.1 * torch.randn(4, 3, 48, 48)
    crops = random_crops(sky, COUNT, 0)
    assert crops.shape == (COUNT, 3, 48, 48)
    above = crops[:, :, :24].mean((1, 2, 3)) > crops[:, :, 24:].mean((1, 2, 3))
    assert 4 < above.sum() < COUNT - 4
    torch.testing.assert_close(crops, random_crops(sky, COUNT, 0), rtol=0, atol=0)


def test_all_measures_are_drawn():
    found = all_measures(subject(vit()), image(64, 64, 2))
    assert [each.name for each in found] == ['attention_distance', 'shift_error', 'position_probe']
    for each in found:
        line = each.draw().axes[0].lines[0].get_ydata().tolist()
        assert line == each.numbers.get('means', [
            shifts[0] for shifts in each.numbers.get('errors', {}).values()])
        assert each.sentence.endswith('.')
