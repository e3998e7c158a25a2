"""ContextPool's maps against the module itself, and the figures."""
import numpy as np
import pytest
import torch
from torch import nn

from mmposenc.encodings import ContextPool
from mmposenc.visualization import draw_context_pool, record_context_pools


class Model(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.pool = ContextPool(8, **options)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5)

    def forward(self, x, hw_shape):
        return self.pool(x, hw_shape, num_prefix_tokens=1)


@pytest.mark.parametrize('locality', ['gaussian', 'adaptive_window'])
@pytest.mark.parametrize('weights', ['learned', 'uniform'])
def test_share_is_what_the_token_pools(locality, weights):
    """The mean taken with the recorded weights is the module's output."""
    torch.manual_seed(0)
    model = Model(locality=locality, weights=weights, ratio=0.5)
    x = torch.randn(2, 1 + 35, 8)
    with record_context_pools(model, (0.3, 0.9)) as records:
        out = model(x, (5, 7))
    record, = records
    assert (record.name, record.hw_shape, record.cell) == ('pool', (5, 7), (1, 6))
    share = torch.from_numpy(record.share).flatten()
    torch.testing.assert_close(share @ x[0, 1:], out[0, 1 + 7 + 6], atol=1e-5, rtol=1e-5)
    logits, sigma = model.pool.predict(x[:1, 1:], (5, 7))
    np.testing.assert_array_equal(record.sigma, sigma.detach().view(5, 7).numpy())
    if weights == 'uniform':
        assert record.weights is None
    else:
        assert record.weights.mean() == pytest.approx(1)
        assert (record.weights > 1).sum() == int((logits.softmax(1) > 1 / 35).sum())
    assert not model.pool._forward_hooks


def test_options_without_sizes_or_weights():
    for options in (dict(locality='none'), dict(weights='nonlocal'), dict(dims=1)):
        model = Model(**options)
        with record_context_pools(model) as records:
            model(torch.randn(1, 13, 8), (3, 4))
        assert records[0].share is None
        assert (records[0].sigma is None) == ('locality' in options)


def test_figure():
    torch.manual_seed(0)
    model = Model(ratio=0.5)
    with record_context_pools(model) as records:
        model(torch.randn(1, 1 + 100, 8), (10, 10))
    figure = draw_context_pool(records[0], np.zeros((40, 40, 3)))
    first, weights, sizes, share = (axes for axes in figure.axes if axes.images)
    assert len(first.patches) == 25 and len(figure.axes) == 4 + 3
    radius = first.patches[0].radius
    assert radius == pytest.approx(float(records[0].sigma[1, 1]))
    np.testing.assert_array_equal(sizes.images[0].get_array(), records[0].sigma)
    assert len(draw_context_pool(records[0], np.zeros((40, 40, 3)), every=5).axes[0].patches) == 4


def test_place_outside_the_image():
    with pytest.raises(ValueError, match=r'at=\(1.0, 0.5\) must be two fractions'):
        with record_context_pools(Model(), (1.0, 0.5)):
            pass
