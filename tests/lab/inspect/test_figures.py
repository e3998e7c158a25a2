"""Kernels against the convolution, similarity and offsets against loops, buckets, attention, and
the error under shifts where it is known."""
import math

import numpy as np
import pytest
import torch
from helpers.tiny_backbones import BUILD, randomized
from helpers.tiny_inspected import IRPE, calls_of, deit, image, pvt, subject, swin, vit
from torch import nn

from mmposenc.functional import bucket_ids
from mmposenc.functional.grids import key_grid
from mmposenc.lab.inspect.drawing import Panel, draw_maps, tile_sheet
from mmposenc.lab.inspect.figures import (
    all_pictures,
    attention_picture,
    buckets_picture,
    kernels_picture,
    offsets_picture,
    reference_cells,
    shift_error,
    similarity_picture,
)
from mmposenc.lab.inspect.recording import InspectedModel

TABLE = dict(type='mmposenc.RelativePositionBias')
#: Queries and keys of biases, which depend on neither.
NO_TOKENS = torch.zeros(0)


def test_kernels_are_what_an_impulse_gives():
    """A convolution is a correlation: the answer to an impulse is its kernel turned by half a
    turn."""
    model = deit(pos_encoding=dict(type='mmposenc.PEG'))
    peg = model.pos_encodings.encodings(0)[0]
    (name, found), = kernels_picture(model).numbers.items()
    assert name == 'PEG, pos_encodings.at.after0.0.proj.0.weight'
    for channel in (0, 7):
        x = torch.zeros(1, 25, 16)
        x[0, 12, channel] = 1.0
        with torch.no_grad():
            out = peg(x, (5, 5)) - peg(x * 0, (5, 5)) - x
        answer = out[0, :, channel].view(5, 5)[1:4, 1:4].flip(0, 1)
        np.testing.assert_allclose(found[channel], answer, atol=1e-6)
    assert not kernels_picture(deit(rel_pos_encoding=TABLE)).panels
    assert list(kernels_picture(deit(rel_pos_encoding=dict(type='mmposenc.LePE'))).numbers) == [
        'LePE, blocks.0.attn.rel_pos_encoding.get_v.weight']


def similarities(model):
    return similarity_picture(subject(model), image())


def test_similarity_by_a_loop():
    model = deit(pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'))
    table = model.pos_encodings.encodings(-1)[0](torch.zeros(1, 21, 16), (4, 5),
                                                 num_prefix_tokens=1)[0, 1:].detach()
    (kind, found), = similarities(model).numbers.items()
    assert kind == 'LearnedPositionEmbedding' and found['cells'] == reference_cells((4, 5))
    for i, line in enumerate(found['cells']):
        for j, (row, column) in enumerate(line):
            for r, c in np.ndindex(4, 5):
                a, b = table[row * 5 + column], table[r * 5 + c]
                cosine = float(a @ b / a.norm() / b.norm())
                assert found['maps'][i, j, r, c] == pytest.approx(cosine, abs=1e-5)


def test_similarity_of_another_librarys_table():
    model = nn.Module()  # as mmpretrain's VisionTransformer: a class token, then 4 x 4 cells
    model.pos_embed = nn.Parameter(torch.randn(1, 17, 8))
    model.forward = lambda images: (images,)
    each = similarities(model).numbers["Module's own pos_embed"]
    a, b = model.pos_embed[0, 1 + 0].detach(), model.pos_embed[0, 1 + 6].detach()
    assert each['maps'].shape == (4, 4, 4, 4)
    assert each['maps'][0, 0, 1, 2] == pytest.approx(float(a @ b / a.norm() / b.norm()))
    model.pos_embed.data = torch.randn(1, 24, 8)  # no square after five tokens at most
    assert not similarities(model).panels


@pytest.mark.parametrize('hw, count, cells', [
    ((6, 10), 2, [[(1, 2), (1, 7)], [(4, 2), (4, 7)]]),
    ((1, 3), 5, [[(0, 0), (0, 1), (0, 2)]])])
def test_reference_cells_are_spread_evenly(hw, count, cells):
    assert reference_cells(hw, count) == cells


def loop_means(pairs, hw, hw_key, stride=1):
    """By offset, key minus query: the mean over all pairs of cells."""
    found = {}
    for row, col, r, c in np.ndindex(*hw, *hw_key):
        at = tuple((key + 0.5) * stride - 0.5 - query for query, key in ((row, r), (col, c)))
        found.setdefault(at, []).append(pairs[:, row * hw[1] + col, r * hw_key[1] + c])
    return {at: np.mean(values, 0) for at, values in found.items()}


def check(found, expected):
    rows, columns = found['rows'].tolist(), found['columns'].tolist()
    assert rows == sorted(rows) and columns == sorted(columns)
    assert {(row, col) for row in rows for col in columns} == set(expected)
    for (row, col), values in expected.items():
        np.testing.assert_allclose(found['table'][:, rows.index(row), columns.index(col)], values,
                                   atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize('encoding, unseen', [
    (TABLE, 0), (dict(type='mmposenc.LogSpacedCPB', hidden_dims=8), 0),
    (dict(IRPE, mode='bias', shared_heads=False), 0),
    (dict(type='mmposenc.LookHere', undirected_heads=0), 1)])
def test_biases_are_the_dense_terms(encoding, unseen):
    """Where nothing depends on the image, every pair with an offset has its one number; keys that a
    head does not attend to have none."""
    model = deit(rel_pos_encoding=encoding)
    dense = model.blocks[0].attn.rel_pos_encoding.logits(
        NO_TOKENS, NO_TOKENS, (4, 5))[0, :, 1:, 1:].detach().numpy()
    (found,) = offsets_picture(calls_of(model)).numbers.values()
    dense = np.where(dense < -1e3, np.nan, dense)
    check(found, {(r - row, c - col): dense[:, row * 5 + col, r * 5 + c]
                  for row, col, r, c in np.ndindex(4, 5, 4, 5)})
    assert np.isnan(found['table']).any() == unseen


@pytest.mark.parametrize('encoding', [IRPE, dict(type='mmposenc.DecomposedRPE')])
def test_terms_that_read_queries_are_means(encoding):
    model = deit(rel_pos_encoding=encoding)
    calls = calls_of(model)
    (found,) = offsets_picture(calls).numbers.values()
    check(found, loop_means(calls[0].added[0, :, 1:, 1:].numpy(), (4, 5), (4, 5)))


def test_reduced_keys_and_windows():
    reduced = pvt(rel_pos_encoding=dict(IRPE, mode='bias'))
    encoding = reduced.stages[0].blocks[0].attn.rel_pos_encoding
    nn.init.normal_(encoding.table_k)
    dense = encoding.logits(NO_TOKENS, NO_TOKENS, (8, 10), key_grid((8, 10), (4, 5)))[0]
    dense = dense.detach().numpy()
    (found,) = offsets_picture(calls_of(reduced)).numbers.values()
    check(found, loop_means(dense, (8, 10), (4, 5), stride=2))
    assert found['rows'][0] == -6.5  # half a cell off: keys lie between the cells that they pool
    windows = swin(2)
    (found,) = offsets_picture(calls_of(windows, 96, 128)).numbers.values()
    table = windows.stages[0].blocks[0].attn.w_msa.rel_pos_encoding.relative_position_bias_table
    # The table is by query minus key: turned by half a turn.
    np.testing.assert_allclose(found['table'][1].ravel()[::-1], table[:, 1].detach(), rtol=1e-6)


def test_rotary_similarity_is_a_mean_of_cosines():
    """Angles by the paper's formula, one plane at a time."""
    model = deit(rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding', directions='learned'))
    rotary = model.blocks[0].attn.rel_pos_encoding
    (found,) = offsets_picture(calls_of(model)).numbers.values()
    assert found['what'] == 'cosine' and found['table'].shape == (2, 7, 9)
    for head, row, col in np.ndindex(2, 7, 9):
        cosines = [math.cos(of_col * (col - 4) + of_row * (row - 3))
                   for of_col, of_row in rotary.freqs[:, head].detach().T.tolist()]
        assert found['table'][head, row, col] == pytest.approx(np.mean(cosines), abs=2e-5)


@pytest.mark.parametrize('method', ['product', 'cross', 'euclidean'])
def test_buckets_of_the_query_in_the_middle(method):
    model = deit(rel_pos_encoding=dict(IRPE, method=method))
    params = model.blocks[0].attn.rel_pos_encoding.params
    expected = bucket_ids(method, (4, 5), alpha=params.alpha, beta=params.beta, gamma=params.gamma)
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = buckets_picture(calls_of(model)).numbers
    assert len(found) == len(expected)  # of three layers that have the same ones
    for each, ids in zip(found.values(), expected, strict=True):
        assert each['query'] == [2, 2]
        np.testing.assert_array_equal(each['buckets'], ids[12].view(4, 5))
    assert not buckets_picture(calls_of(deit(rel_pos_encoding=TABLE))).panels


def test_attention_of_a_token_in_three_layers():
    model = deit(num_layers=4)
    calls = calls_of(model)
    found = attention_picture(calls, np.zeros((8, 10, 3)), (0.3, 0.9)).numbers
    assert found['at'] == [0.3, 0.9] and list(found['weights']) == [
        'blocks.0.attn', 'blocks.2.attn', 'blocks.3.attn']
    row = calls[3].weights[0, :, 1 + 1 * 5 + 4, 1:].mean(0).view(4, 5)
    np.testing.assert_array_equal(found['weights']['blocks.3.attn'], row)


def test_all_pictures_are_drawn():
    model = deit(pos_encoding=dict(type='mmposenc.PEG'), rel_pos_encoding=IRPE)
    found = all_pictures(subject(model), image(), np.full((16, 20, 3), 0.5), (0.5, 0.5))
    assert [each.name for each in found] == ['kernels', 'similarity', 'offsets', 'buckets',
                                             'attention']
    for each in found:
        assert each.draw().axes and each.sentence.endswith('.')
    assert all_pictures(subject(nn.Conv2d(3, 4, 4)), image(), None, (0.5, 0.5)) == []


def test_maps_have_one_range_of_colours_and_gaps():
    values = np.arange(6.0).reshape(2, 3)
    panels = [Panel('a', values, ((-1, 0), (2, 4)), star=(1, 2)), Panel('b', -2 * values)]
    figure = draw_maps(panels, 'x', 'c', 'r', diverging=True)
    assert [axes.images[0].get_clim() for axes in figure.axes[:2]] == [(-10, 10)] * 2
    first = figure.axes[0]
    assert [each.get_text() for each in first.get_yticklabels()] == ['-1', '0']
    assert [each.get_text() for each in first.get_xticklabels()] == ['2', '4']
    assert (first.lines[0].get_ydata()[0], first.lines[0].get_xdata()[0]) == (1, 2)
    sheet = tile_sheet(np.arange(8.0).reshape(1, 2, 2, 2))
    np.testing.assert_array_equal(sheet, [[0, 1, np.nan, 4, 5], [2, 3, np.nan, 6, 7]])


@pytest.mark.parametrize('build', [
    vit, BUILD['vit'], lambda: BUILD['pvt'](sr_ratios=(2, 1))])
def test_without_an_encoding_a_rolled_picture_gives_a_rolled_output(build):
    """Attention is the same whatever the order of the cells: of PVT by the cells of its keys, which
    are those of the last map here; a pooled vector stays as it is."""
    assert shift_error(subject(randomized(build())), image(64, 96), 8) < 1e-5


@pytest.mark.parametrize('shift', [1, 2])
def test_a_table_is_the_difference_of_its_own_cells(shift):
    """Tokens that are nothing but a table stay where they are: by a loop over the table."""
    rows = torch.randn(1, 3, 8, 12, generator=torch.Generator().manual_seed(0))
    table = InspectedModel(nn.Identity(), lambda images: (images[:, :1, ::8, ::8], rows))
    above = below = 0.0
    for row, col in np.ndindex(8, 12):
        moved = rows[0, :, (row - shift) % 8, (col - shift) % 12]
        above += float((rows[0, :, row, col] - moved).square().sum())
        below += float(rows[0, :, row, col].square().sum())
    assert shift_error(table, image(64, 96), 8 * shift) == pytest.approx((above / below) ** 0.5,
                                                                         rel=1e-5)


def test_a_peg_sees_the_border_and_an_image_of_one_cell_or_rows_of_tokens_are_not_measured():
    peg = subject(vit(pos_encoding=dict(type='mmposenc.PEG')))
    assert shift_error(peg, image(64, 96), 8) > 1e-3
    assert shift_error(peg, image(32, 96), 32) is None
    for output in (lambda images: None, lambda images: images.flatten(2)):
        assert shift_error(InspectedModel(nn.Identity(), output), image(64, 96), 8) is None
