"""Change of the output with size and in a padded batch."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tinybackbones import BUILD, randomized
from torch import nn

from mmposenc.lab.diagnose.changes import (
    FACTORS,
    compared,
    correlation,
    measure_padding,
    measure_sizes,
)
from mmposenc.lab.diagnose.features import Examined, FeatureMap
from mmposenc.lab.diagnose.table import plain_run

IMAGES = {'noise': torch.randn(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))}


def examined(model):
    return Examined(model.eval(), plain_run(model))


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


def test_what_is_compared_by_a_loop():
    one = FeatureMap('x', torch.randn(2, 3, 4, 6), 8, torch.randn(2, 2, 3))
    double = one.values.repeat_interleave(2, -1).repeat_interleave(2, -2)
    pairs = compared(FeatureMap('x', double, 8, one.prefix * 2), one)
    assert list(pairs) == ['mean of cells', 'class token', 'map']
    torch.testing.assert_close(pairs['map'][0].mean(), one.values.mean(), atol=0.05, rtol=0)
    assert torch.equal(pairs['class token'][0], one.prefix[:, 0] * 2)
    mean = pairs['mean of cells'][0]
    assert mean.shape == (2, 3)
    for image in range(2):
        for channel in range(3):
            cells = [float(one.values[image, channel, r, c]) for r in range(4) for c in range(6)]
            assert float(mean[image, channel]) == pytest.approx(sum(cells) / 24, abs=1e-6)


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
