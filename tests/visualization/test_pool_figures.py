"""ContextPool's maps against the module itself, and the figures."""
import csv

import numpy as np
import pytest
import torch
from torch import nn

from mmposenc.encodings import ContextPool
from mmposenc.lab.figures import (
    draw_context_pool,
    draw_size_distributions,
    record_context_pools,
    size_distributions,
    write_size_distributions,
)


class Pools(nn.ModuleList):
    """One after the other, with parameters that say something."""

    def __init__(self, *options):
        torch.manual_seed(0)
        super().__init__(ContextPool(8, **each) for each in options)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5)

    def forward(self, x, hw_shape):
        for pool in self:
            x = pool(x, hw_shape, num_prefix_tokens=1)
        return x


def test_figure():
    model = Pools(dict(ratio=0.5))
    with record_context_pools(model) as records:
        model(torch.randn(1, 1 + 100, 8), (10, 10))
    figure = draw_context_pool(records[0], np.zeros((40, 40, 3)))
    first, _, sizes, _ = (axes for axes in figure.axes if axes.images)
    assert len(first.patches) == 25
    assert first.patches[0].radius == pytest.approx(float(records[0].sigma[1, 1]))
    np.testing.assert_array_equal(sizes.images[0].get_array(), records[0].sigma)


@pytest.mark.parametrize('locality', ['gaussian', 'adaptive_window'])
@pytest.mark.parametrize('weights', ['learned', 'uniform'])
def test_share_is_what_the_token_pools(locality, weights):
    """The mean taken with the recorded weights is the module's output."""
    model = Pools(dict(locality=locality, weights=weights, ratio=0.5))
    x = torch.randn(2, 1 + 35, 8)
    with record_context_pools(model, (0.3, 0.9)) as records:
        out = model(x, (5, 7))
    record, = records
    assert (record.name, record.hw_shape, record.cell) == ('0', (5, 7), (1, 6))
    share = torch.from_numpy(record.share).flatten()
    torch.testing.assert_close(share @ x[0, 1:], out[0, 1 + 7 + 6], atol=1e-5, rtol=1e-5)
    logits, sigma = model[0].predict(x[:1, 1:], (5, 7))
    np.testing.assert_array_equal(record.sigma, sigma.detach().view(5, 7).numpy())
    if weights == 'uniform':
        assert record.weights is None
    else:
        assert record.weights.mean() == pytest.approx(1)
        assert (record.weights > 1).sum() == int((logits.softmax(1) > 1 / 35).sum())
    assert not model[0]._forward_hooks


@pytest.mark.parametrize('options', [dict(), dict(ratio=0.4), dict(dims=1)])
def test_sizes_by_layer_over_two_images(options, tmp_path):
    """Numbers against the predictor's own sigmoid, taken apart. The second pool has no sizes."""
    fixed = dict(locality='fixed_window', window_size=3)
    model, seen = Pools(options, fixed, options), []
    model[2].predictor.register_forward_hook(lambda m, args, out: seen.append(out.detach()))
    records = []
    for _ in range(2):
        with record_context_pools(model) as found:
            model(torch.randn(1, 1 + 35, 8), (5, 7))
        records += found
    first, last = rows = size_distributions(records)
    assert (first['layer'], last['layer'], last['tokens']) == ('0', '2', 70)
    # The predictor runs once in the layer and once for the record.
    sizes = torch.stack(seen[::2])[..., 1].sigmoid().flatten().numpy()
    for key, share in (('least', 0), ('q25', .25), ('median', .5), ('q75', .75), ('most', 1)):
        assert last[key] == pytest.approx(np.quantile(sizes, share), abs=1e-6)
    assert last['mean'] == pytest.approx(sizes.mean(), abs=1e-6)
    cells = options.get('ratio', 0.1) * (35 if options.get('dims') == 1 else 6)
    assert last['median_cells'] == pytest.approx(np.median(sizes) * cells, rel=1e-5)
    with write_size_distributions(rows, tmp_path / 'sizes.csv').open() as file:
        lines = list(csv.DictReader(file))
    assert [line['layer'] for line in lines] == ['0', '2']
    assert float(lines[1]['q75']) == last['q75']
    axes, = draw_size_distributions(rows).axes
    medians = [line.get_ydata()[0] for line in axes.lines if len(set(line.get_ydata())) == 1]
    assert all(row['median'] in medians for row in rows)
    with pytest.raises(ValueError, match='rows=.. must hold a layer'):
        draw_size_distributions([])
