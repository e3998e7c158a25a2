"""Error under shifts: by a loop, and where it must be nothing."""
import pytest
import torch
from tinybackbones import BUILD, randomized

from mmposenc.backbones import ViT
from mmposenc.lab.diagnose.changes import measure_shifts, moved_back, seen_twice, shift_error, view
from mmposenc.lab.diagnose.features import Examined
from mmposenc.lab.diagnose.table import plain_run

IMAGES = {'noise': torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))}


def vit(**options):
    torch.manual_seed(0)
    sizes = dict(embed_dims=16, num_layers=2, num_heads=2, patch_size=8, img_size=64, pool='gap')
    return randomized(ViT(**{**sizes, **options})).eval()


def measured(model, images=IMAGES):
    return {each.name: each for each in measure_shifts(Examined(model, plain_run(model)), images)}


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


def test_the_error_of_a_map_by_a_loop():
    still, moved = torch.randn(2, 3, 4, 6, dtype=torch.float64), torch.randn(
        2, 3, 4, 6, dtype=torch.float64)
    above = below = 0.0
    for image in range(2):
        for row in range(3):
            for col in range(4):
                here, there = still[image, :, row, col], moved[image, :, row + 1, col + 2]
                above += float((there - here).square().sum())
                below += float(here.square().sum())
    found = shift_error(still, moved, (1, 2), seen_twice((4, 6), (1, 2)))
    assert found == pytest.approx((above / below) ** 0.5)
    assert shift_error(still, moved, (4, 0), seen_twice((4, 6), (4, 0))) is None


def test_a_view_holds_the_same_pixels_elsewhere():
    still, moved = view(IMAGES['noise'], 16, 0), view(IMAGES['noise'], 16, 11)
    torch.testing.assert_close(moved[..., 11:, 11:], still[..., :-11, :-11], rtol=0, atol=0)
    assert still.shape == IMAGES['noise'].shape


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
    shifts = measure_shifts(_first_map_alone(zeros), IMAGES)[1]
    assert max(ys(shifts, 'noise, whole cells, inner')) < 1e-5
    assert min(ys(shifts, 'noise, whole cells')) > 0.05


def _first_map_alone(model):
    class First(Examined):
        def maps(self, images, shapes=None):
            return super().maps(images, shapes)[:1]
    return First(model, plain_run(model))


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
    found = measure_shifts(_first_map_alone(model), IMAGES)
    for each in found:
        assert each.value == pytest.approx((above / below) ** 0.5, rel=1e-4)


def test_a_map_of_one_cell_is_not_measured():
    for each in measured(vit(patch_size=32), {'noise': torch.randn(1, 3, 32, 96)}).values():
        assert not each.measured and '1 cell' in each.text
