"""Maps against the definitions, records against the attention itself, figures as files."""
import numpy as np
import pytest
import torch
from PIL import Image
from tinyfigures import pvt

from mmposenc.attention import MultiheadAttention, ShiftWindowAttention
from mmposenc.encodings import IRPE
from mmposenc.functional.windows import Windows
from mmposenc.lab.figures import (
    Panel,
    bias_map,
    bucket_map,
    draw_panels,
    record_attention,
    save_figure,
)
from mmposenc.lab.figures.model_figures import attention_panels, draw_encodings
from mmposenc.lab.figures.panels import PALETTE, color_categories
from mmposenc.lab.figures.subjects import place_in_words


def test_bias_map_of_a_contextual_encoding():
    encoding = IRPE(4, 2, num_prefix_tokens=1)
    torch.nn.init.normal_(encoding.table_k)
    q, k = torch.randn(2, 1, 2, 13, 4)
    found = bias_map(encoding, (3, 4), (2, 1), q=q, k=k)
    expected = encoding.logits(q, k, (3, 4))[0, :, 1 + 9, 1:].detach().view(2, 3, 4)
    np.testing.assert_array_equal(found, expected.numpy())
    with pytest.raises(ValueError, match='q and k are None'):
        bias_map(encoding, (3, 4), (2, 1))


def test_record_of_multihead_attention():
    """Of two layers that share an encoding, whose terms are each layer's own."""
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(MultiheadAttention(
        8, 2, num_prefix_tokens=1, rel_pos_encoding=dict(type='IRPE')) for _ in range(2))
    module = layers[0]
    layers[1].rel_pos_encoding = module.rel_pos_encoding
    torch.nn.init.normal_(module.rel_pos_encoding.table_k)
    x = torch.randn(2, 13, 8)
    plain = module(x, (3, 4))
    with record_attention(layers, at=(0.99, 0.5)) as records:
        torch.testing.assert_close(module(x, (3, 4)), plain)  # a model sees no difference
        layers[1](x, (3, 4))
        module(x, hw_shape=(4, 3))
    assert [r.cell for r in records] == [(2, 2), (2, 2), (3, 1)]
    assert [r.name for r in records] == ['0', '1', '0']
    for layer, record in zip(layers, records, strict=False):
        q, k, _ = layer._project(x, x)
        weights = layer(x, (3, 4), need_weights=True)[1]
        terms = layer.rel_pos_encoding.logits(q * 0.5, k, (3, 4))
        for found, expected in ((record.weights, weights), (record.terms, terms)):
            torch.testing.assert_close(torch.from_numpy(found),
                                       expected[0, :, 1 + 10, 1:].view(2, 3, 4).detach())
    # Nothing stays behind.
    assert not module._forward_hooks and not module._forward_pre_hooks
    assert not {'logits', 'terms'} & set(vars(module.rel_pos_encoding))
    assert isinstance(module(x, (3, 4)), torch.Tensor) and len(records) == 3


@pytest.mark.parametrize('at, shift', [((0.0, 0.0), 2), ((0.0, 0.0), 0), ((0.5, 0.99), 2),
                                       ((0.99, 0.3), 2)])
def test_record_of_the_window_that_holds_a_place(at, shift):
    """Found by where the token itself is after cutting; tokens of other regions have no weight."""
    torch.manual_seed(0)
    module = ShiftWindowAttention(8, 2, 4, shift,
                                  rel_pos_encoding=dict(type='RelativePositionBias'))
    x = torch.randn(2, 7 * 8, 8)  # rows are filled up to 8
    plain = module(x, (7, 8))
    with record_attention(module, at=at, whole=0) as records:
        torch.testing.assert_close(module(x, (7, 8)), plain)
    record, = records
    assert record.hw_shape == (4, 4) and record.name == 'w_msa'
    number = int(at[0] * 7) * 8 + int(at[1] * 8)
    cutting = Windows((7, 8), (4, 4), (shift, shift))
    numbers = cutting.cut(torch.arange(1.0, 57).view(1, 7 * 8, 1))
    window, place = (numbers[..., 0] == 1 + number).nonzero()[0].tolist()
    assert record.window == (window // 2, window % 2) and record.cell == (place // 4, place % 4)
    regions = cutting.regions(mask_window_padding=False)
    weights = module.w_msa(cutting.cut(x[:1]), regions, need_weights=True)[1][window].detach()
    for found, expected in (
            (record.all_weights, weights), (record.weights, weights[:, place].view(2, 4, 4)),
            (record.all_terms, module.w_msa.rel_pos_encoding.bias_map((4, 4))[0])):
        torch.testing.assert_close(torch.from_numpy(found), expected)
    if (at, shift) == ((0.0, 0.0), 2):  # the window of four corners
        assert (record.weights > 0).sum() == 2 * 4


def test_hooks_are_removed_after_an_error():
    module = MultiheadAttention(8, 2, rel_pos_encoding=dict(type='IRPE'))
    with pytest.raises(ValueError, match='tokens'), record_attention(module):
        module(torch.randn(1, 5, 8), (2, 3))
    assert not module._forward_hooks and 'logits' not in vars(module.rel_pos_encoding)
    with pytest.raises(ValueError, match=r'at=\(1.0, 0.5\) must be two fractions'):
        with record_attention(module, at=(1.0, 0.5)):
            pass
    for cell in ((3, 0), (0, 4), (-1, 0)):
        with pytest.raises(ValueError, match=r'cell=\(.*\) must lie on hw_shape=\(3, 4\)'):
            bucket_map('product', (3, 4), cell, ratio=1.9)


def test_figure_shows_the_values(tmp_path):
    values = np.arange(6.0).reshape(2, 3) - 2
    figure = draw_panels([Panel('a', values, (0, 1), diverging=True), Panel('b', values)],
                         title='both', same_scale=True)
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert np.array_equal(images[0].get_array(), values)
    assert images[0].get_clim() == (-3.0, 3.0) and images[1].get_clim() == (0.0, 3.0)
    path = save_figure(figure, tmp_path / 'new' / 'maps.png', dpi=50)
    with Image.open(path) as image:
        assert image.format == 'PNG' and len(np.unique(np.asarray(image))) > 50
    with pytest.raises(ValueError, match="panel 'c' has values of shape"):
        draw_panels([Panel('c', values[None])])
    with pytest.raises(ValueError, match='must hold at least one map'):
        draw_panels([])


class _Backbone(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attn = MultiheadAttention(8, 2, **options)

    def forward(self, x):
        return self.attn(x.flatten(2).transpose(1, 2), x.shape[2:])


def test_what_is_alike_in_a_figure():
    """Maps of one unit have one scale; a flat map says so; a head that is alone is drawn once."""
    values = np.arange(6.0).reshape(2, 3)
    figure = draw_panels([Panel('a', values, unit='x'), Panel('b', 2 * values, unit='x'),
                          Panel('c', values * 0 + 0.25, unit='y'), Panel('d', values / 100),
                          Panel('e', values, unit='z', limits=(0.0, 4.0)),
                          Panel('f', values, unit='z', limits=(0.0, 3.0))])
    clims = [axes.images[0].get_clim() for axes in figure.axes]
    assert clims == [(0, 10), (0, 10), (0, 0.25), (0, 0.05), (0, 4), (0, 4)]
    assert [axes.get_title() for axes in figure.axes] == [
        'a', 'b', 'c\nflat: 0.25 everywhere', 'd', 'e', 'f']
    model = pvt()  # two heads in the first stage, one in the second
    with record_attention(model) as records, torch.no_grad():
        model(torch.randn(1, 3, 16, 24))
    several, one = (attention_panels(each) for each in records)
    assert [each.title for each in several] == ['mean of the heads', 'head 0', 'head 1']
    assert [each.title for each in one] == ['one head']
    np.testing.assert_array_equal(one[0].values, records[1].weights[0])


@pytest.mark.parametrize('name, words', [
    ('blocks.3.attn', 'block 3'), ('stages.0.blocks.1.attn.w_msa', 'stage 0, block 1'),
    ('pos_encodings.at.before.0', 'before the first block'), ('attn', 'attn'),
    ('stages.2.pos_encodings.at.after0.0', 'stage 2, after block 0'),
    ('encoder.layers.5.self_attn', 'encoder, layer 5')])
def test_titles_name_places_in_words(name, words):
    assert place_in_words(name) == words


def test_figures_of_a_model(tmp_path):
    model = _Backbone(rel_pos_encoding=dict(type='IRPE', method='cross'), attn_drop=0.5).train()
    files = draw_encodings(model, torch.randn(1, 8, 4, 5), tmp_path)
    assert {file.name for file in files} == {'attention_attn.png', 'logits_attn.png',
                                             'buckets_cross_4x5.png'}
    assert all(file.stat().st_size > 2000 for file in files) and model.training
    files = draw_encodings(pvt(pos_encoding=dict(type='mmposenc.PEG')), torch.randn(1, 3, 16, 24),
                           tmp_path / 'pvt')
    assert {file.name for file in files} == {
        *(f'attention_stages_{stage}_blocks_0_attn.png' for stage in (0, 1)),
        *(f'{kind}_stages_{stage}_pos_encodings_at_after0_0.png' for stage in (0, 1)
          for kind in ('added', 'kernels'))}
    with pytest.raises(ValueError, match='Identity runs no attention of mmposenc.attention'):
        draw_encodings(torch.nn.Identity(), torch.zeros(1), tmp_path)


def differ(categories, colors):
    """Whether cells that touch, corners included, differ in colour wherever in category."""
    height, width = categories.shape
    return all(colors[row, col] != colors[r, c]
               for row in range(height) for col in range(width)
               for r in range(max(row - 1, 0), min(row + 2, height))
               for c in range(max(col - 1, 0), min(col + 2, width))
               if categories[row, col] != categories[r, c])


@pytest.mark.parametrize('grid, cells', [((14, 14), [(0, 0), (7, 7), (13, 2)]),
                                         ((25, 42), [(3, 30)])])
@pytest.mark.parametrize('method, options', [
    ('euclidean', dict(ratio=1.0)), ('quantization', dict(ratio=1.9, quantization='rank')),
    ('cross', dict(ratio=1.9)), ('product', dict(ratio=3.0, index='clip'))])
def test_neighbours_differ_and_a_category_has_one_color_in_all_maps(grid, cells, method, options):
    found = [bucket_map(method, grid, cell, **options) for cell in cells]
    maps = [each[0] if each.ndim == 3 else each for each in found]
    colors = color_categories(maps)
    values, drawn = np.concatenate(maps).ravel(), np.concatenate(colors).ravel()
    for value in np.unique(values):
        assert len(set(drawn[values == value])) == 1
    assert all(differ(*pair) for pair in zip(maps, colors, strict=True))
    assert len(PALETTE) > max(drawn)


def test_as_many_categories_as_colors_all_differ():
    few = np.arange(len(PALETTE))[None]
    assert len(set(color_categories([few])[0].ravel())) == len(PALETTE)
    # More than can differ: all touch all, and still each has a colour.
    centre = np.array([[1, 2, 3], [4, 0, 5], [6, 7, 8]])
    assert color_categories([centre])[0].max() < len(PALETTE)
