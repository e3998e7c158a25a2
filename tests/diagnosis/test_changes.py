"""Error under shifts, change of the output with size and in a padded batch: by loops, and where
they must be nothing."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tinybackbones import BUILD, randomized
from tinyfigures import examined, vit
from torch import nn

from mmposenc.lab.diagnose.changes import (
    FACTORS,
    correlation,
    measure_padding,
    measure_shifts,
    measure_sizes,
    moved_back,
    seen_twice,
    view,
)
from mmposenc.lab.diagnose.features import Examined

IMAGES = {'noise': torch.randn(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))}
LARGE = {'noise': torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))}


def measured(model, images=LARGE):
    return {each.name: each for each in measure_shifts(examined(model), images)}


def ys(measure, label):
    return next(each['y'] for each in measure.series if each['label'] == label)


@pytest.mark.parametrize('shift', [(0, 0), (1, 2), (-2, 3), (0.25, 1.5), (-0.5, 0)])
def test_moved_back_and_its_cells_by_a_loop(shift):
    values = torch.randn(2, 5, 7, dtype=torch.float64)
    found = moved_back(values, shift)
    cells = seen_twice((5, 7), shift, (1, 0))
    for row in range(5):
        for col in range(7):
            at = row + shift[0], col + shift[1]
            inside = 1 <= row <= 3 and 1 <= at[0] <= 3 and 0 <= at[1] <= 6
            assert cells[row, col] == inside
            if inside:
                expected = torch.zeros(2, dtype=torch.float64)
                for r in range(5):  # tents around the place
                    for c in range(7):
                        weight = max(0, 1 - abs(at[0] - r)) * max(0, 1 - abs(at[1] - c))
                        expected += weight * values[:, r, c]
                torch.testing.assert_close(found[:, row, col], expected)


def test_a_view_holds_the_same_pixels_elsewhere():
    still, moved = view(LARGE['noise'], 16, 0), view(LARGE['noise'], 16, 11)
    torch.testing.assert_close(moved[..., 11:, 11:], still[..., :-11, :-11], rtol=0, atol=0)
    assert still.shape == LARGE['noise'].shape


@pytest.mark.parametrize('name, exact', [('vit', (8, 16)), ('pvt', (16,))])
def test_without_an_encoding_a_rolled_picture_gives_a_rolled_map(name, exact):
    """Attention is the same whatever the order of the cells. PVT's keys are of 16 pixels here."""
    found = measured(randomized(BUILD[name]()).eval())
    for each in found['shift_rolled'].series:
        for shift, value in zip(each['x'], each['y'], strict=True):
            assert value < 1e-5 if shift in exact else value > 0.01
    assert found['shift_view'].value > 1e-3  # other cells to attend to
    # By parts of a cell patches hold other pixels.
    assert min(ys(found['shift_view'], 'noise, parts of a cell')) > 0.1


def test_a_peg_without_a_border_is_exact_and_one_with_zeros_at_the_border_alone():
    zeros = vit(pos_encoding=dict(type='mmposenc.PEG'), positions=(-1,), num_layers=1)
    rolled = measured(zeros)['shift_rolled']
    assert rolled.value > 0.05
    # Before attention the inner cells know nothing of the border.
    assert rolled.map['rows'] == ['input', 'blocks.0']
    shifts = measure_shifts(_first_map_alone(zeros), LARGE)[1]
    assert max(ys(shifts, 'noise, whole cells, inner')) < 1e-5
    assert min(ys(shifts, 'noise, whole cells')) > 0.05


def _first_map_alone(model):
    class First(Examined):
        def maps(self, images, shapes=None):
            return super().maps(images, shapes)[:1]
    return First(model)


def test_a_table_is_the_difference_of_its_own_cells():
    """Tokens that are nothing but a table stay where they are: by a loop over the table."""
    model = vit(pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'), num_layers=1,
                img_size=(64, 96))
    torch.nn.init.zeros_(model.patch_embed.projection.weight)
    torch.nn.init.zeros_(model.patch_embed.projection.bias)
    table = model.pos_encodings.encodings(-1)[0]
    grid = table(torch.zeros(1, 96, 16), (8, 12))[0].view(8, 12, 16).detach()
    above = below = 0.0
    for row in range(7):
        for col in range(11):
            above += float((grid[row + 1, col + 1] - grid[row, col]).square().sum())
            below += float(grid[row, col].square().sum())
    found = measure_shifts(_first_map_alone(model), LARGE)
    for each in found:
        assert each.value == pytest.approx((above / below) ** 0.5, rel=1e-4)


def test_a_map_of_one_cell_is_not_measured():
    for each in measured(vit(patch_size=32), {'noise': torch.randn(1, 3, 32, 96)}).values():
        assert not each.measured and '1 cell' in each.text


class Means(nn.Module):
    """A backbone without places: the colour of each patch of 8 pixels."""

    def forward(self, x):
        return (F.avg_pool2d(x, 8),)


def lines(measure):
    return {each['label']: each['y'] for each in measure.series}


def test_correlation_is_numpys():
    a, b = np.random.default_rng(0).normal(size=(2, 3, 7))
    found = correlation(torch.tensor(a), torch.tensor(b))
    assert found == pytest.approx(np.corrcoef(a.ravel(), b.ravel())[0, 1])
    assert np.isnan(correlation(torch.ones(3, 7), torch.tensor(a)))


def test_sizes_that_round_to_the_same_cells_are_measured_once():
    two_cells = torch.randn(1, 3, 16, 16)
    distance, _ = measure_sizes(examined(Means()), {'noise': two_cells})
    # .75 and 1.25 times two cells are 1.5 and 2.5, rounded to the even 2.
    assert [each['x'] for each in distance.series] == [[.5, 1, 1.5, 2]] * 2


def test_a_model_without_places_gives_the_same_at_every_size():
    """Of one colour each; of other pictures the mean of the map stays, as far as resizing lets."""
    plain = {'plain': torch.tensor([[1.0, 2.0, -3.0], [0.5, 0.0, 4.0]])[..., None, None].expand(
        2, 3, 32, 48).contiguous()}
    distance, alike = measure_sizes(examined(Means()), plain)
    assert list(lines(distance)) == ['plain, mean of cells', 'plain, map']
    for y in lines(distance).values():
        assert y == pytest.approx([0.0] * len(FACTORS), abs=1e-6)
    for y in lines(alike).values():
        assert y == pytest.approx([1.0] * len(FACTORS), abs=1e-6)
    distance, alike = measure_sizes(examined(Means()), IMAGES)
    assert max(lines(distance)['noise, mean of cells']) < 0.3
    assert distance.series[0]['x'] == [0.5, pytest.approx(0.75, abs=0.1), 1.0,
                                       pytest.approx(1.25, abs=0.1), 1.5, 2.0]


def test_a_table_grows_with_the_picture_and_a_limit_is_told():
    model = randomized(BUILD['vit'](pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding')))
    distance, _ = measure_sizes(examined(model), IMAGES)
    y = lines(distance)['noise, map']
    assert y[2] == 0 and min(y[:2] + y[3:]) > 1e-3
    short = BUILD['vit'](rel_pos_encoding=dict(type='mmposenc.QueryAbsolute1D', max_tokens=30))
    distance, alike = measure_sizes(examined(short), IMAGES)
    for measure in (distance, alike):
        values = lines(measure)['noise, mean of cells']
        assert values[2] is not None and values[-1] is None and measure.value is None
        assert 'At 64 x 96 the model says: ' in measure.text and 'max_tokens' in measure.text


@pytest.mark.parametrize('name', BUILD)
def test_masked_padding_changes_nothing_and_what_is_not_masked_does(name):
    options = dict(pos_encoding=dict(type='mmposenc.PEG'))
    (masked,) = measure_padding(examined(randomized(BUILD[name](mask_padding=True, **options))),
                                IMAGES)
    assert max(masked.series[0]['y']) < 1e-5 and 'mask_padding=True' in masked.text
    (open_,) = measure_padding(examined(randomized(BUILD[name](**options))), IMAGES)
    assert min(open_.series[0]['y'][1:]) > 1e-3 and 'mask_padding=False' in open_.text
    assert open_.series[0]['x'] == [0, *(8 * step for step in (1, 3, 6))]


def test_the_change_of_a_mean_over_the_batch_is_arithmetic():
    class Add(nn.Module):
        def forward(self, x):
            return (F.avg_pool2d(x, 8) + x.mean((1, 2, 3), keepdim=True),)
    (found,) = measure_padding(examined(Add()), IMAGES)
    x = IMAGES['noise']
    mean = x.mean((1, 2, 3))
    alone = F.avg_pool2d(x, 8) + mean[:, None, None, None]
    change = mean * (32 * 48 / (80 * 96) - 1)  # what is left of the mean in a batch of 80 x 96
    error = float((change.square() * alone[0].numel()).sum().sqrt() / alone.norm())
    assert found.value == pytest.approx(error, rel=1e-4)
    (nothing,) = measure_padding(examined(Means()), IMAGES)
    assert nothing.value == 0 and 'no mask_padding' in nothing.text
