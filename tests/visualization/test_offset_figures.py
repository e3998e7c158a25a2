"""Biases by offset and rotary similarity against loops over pairs of cells."""
import math

import numpy as np
import pytest
import torch
from tinyfigures import IRPE, deit, draw, inputs_of, pvt, swin
from torch import nn

from mmposenc.functional.grids import key_grid


def loop_means(pairs, hw, hw_key, stride=1):
    """By offset, key minus query: the mean over all pairs of cells."""
    found = {}
    for row, col, r, c in np.ndindex(*hw, *hw_key):
        at = tuple((key + 0.5) * stride - 0.5 - query for query, key in ((row, r), (col, c)))
        found.setdefault(at, []).append(pairs[:, row * hw[1] + col, r * hw_key[1] + c])
    return {at: np.mean(values, 0) for at, values in found.items()}


def check(arrays, expected, name='bias'):
    table, rows, columns = arrays[name], arrays['rows'].tolist(), arrays['columns'].tolist()
    assert rows == sorted(rows) and columns == sorted(columns)
    assert {(row, col) for row in rows for col in columns} == set(expected)
    for (row, col), values in expected.items():
        np.testing.assert_allclose(table[:, rows.index(row), columns.index(col)], values,
                                   atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize('encoding', [
    dict(type='mmposenc.RelativePositionBias'), dict(type='mmposenc.LogSpacedCPB', hidden_dims=8),
    dict(IRPE, mode='bias', shared_heads=False)])
def test_biases_are_the_dense_terms(encoding):
    """Where nothing depends on the image, every pair with an offset has its one number."""
    model = deit(rel_pos_encoding=encoding)
    dense = model.blocks[1].attn.rel_pos_encoding.bias_map((4, 5))[0, :, 1:, 1:].numpy()
    drawing = draw('bias', model, block=1)
    check(drawing.arrays, {  # any pair with the offset, no mean
        (r - row, c - col): dense[:, row * 5 + col, r * 5 + c]
        for row, col, r, c in np.ndindex(4, 5, 4, 5)})
    shown = drawing.figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, drawing.arrays['bias'][0] - dense[0].mean(), atol=1e-5)
    star = drawing.figure.axes[0].lines[0]
    assert (star.get_ydata()[0], star.get_xdata()[0]) == (3, 4)  # no offset


@torch.no_grad()
@pytest.mark.parametrize('encoding', [IRPE, dict(type='mmposenc.DecomposedRPE')])
def test_contextual_terms_are_means_over_queries(encoding):
    model = deit(rel_pos_encoding=encoding)
    attn = model.blocks[2].attn
    x = inputs_of(attn, model)[0]
    q, k, _ = attn.qkv(x).view(1, -1, 3, 2, 8).permute(2, 0, 3, 1, 4)
    dense = attn.rel_pos_encoding.logits(q / math.sqrt(8), k, (4, 5))[0, :, 1:, 1:].numpy()
    check(draw('bias', model, block=2).arrays, loop_means(dense, (4, 5), (4, 5)))


def test_reduced_keys_and_windows():
    reduced = pvt(rel_pos_encoding=dict(IRPE, mode='bias'))
    encoding = reduced.stages[0].blocks[0].attn.rel_pos_encoding
    nn.init.normal_(encoding.table_k)
    dense = encoding.bias_map((8, 10), key_grid((8, 10), (4, 5)))[0].numpy()
    arrays = draw('bias', reduced).arrays
    check(arrays, loop_means(dense, (8, 10), (4, 5), stride=2))
    assert arrays['rows'][0] == -6.5  # half a cell off: keys lie between the cells that they pool
    windows = swin(2)
    arrays = draw('bias', windows, (96, 128), block=1).arrays
    table = windows.stages[0].blocks[1].attn.w_msa.rel_pos_encoding.relative_position_bias_table
    # The table is by query minus key: turned by half a turn.
    np.testing.assert_allclose(arrays['bias'][1].ravel()[::-1], table[:, 1].detach(), rtol=1e-6)


@pytest.mark.parametrize('options', [
    dict(), dict(mode='mixed'), dict(axes='yx', planes='halves', normalize='separate')])
def test_rotary_similarity_is_a_mean_of_cosines(options):
    """Angles by the paper's formula, one plane at a time."""
    model = deit(rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding', **options))
    rotary = model.blocks[0].attn.rel_pos_encoding
    table = draw('rotary', model).arrays['similarity']
    assert table.shape == ((2 if 'mode' in options else 1), 7, 9)
    for head in range(len(table)):
        if 'mode' in options:
            planes = rotary.freqs[:, head].detach().T.tolist()
        else:
            unit = (1, 1) if 'normalize' not in options else (2 / 5 * 2 * math.pi,
                                                              2 / 4 * 2 * math.pi)
            freqs = [100.0 ** (-4 * i / 8) for i in range(2)]
            planes = ([(f * unit[0], 0) for f in freqs] + [(0, f * unit[1]) for f in freqs])
        for place_r, place_c in np.ndindex(7, 9):
            dr, dc = place_r - 3, place_c - 4
            cosines = [math.cos(of_col * dc + of_row * dr) for of_col, of_row in planes]
            assert table[head, place_r, place_c] == pytest.approx(np.mean(cosines), abs=2e-5)


def test_rotary_inside_a_sum():
    both = dict(type='mmposenc.CombinedRPE', encodings=[
        dict(type='mmposenc.RotaryEmbedding'), dict(type='mmposenc.RelativePositionBias')])
    model = deit(rel_pos_encoding=both)
    alone = deit(rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding'))
    np.testing.assert_array_equal(*(draw('rotary', each).arrays['similarity']
                                    for each in (model, alone)))


def test_panels_have_one_scale():
    model = deit(rel_pos_encoding=dict(type='mmposenc.RelativePositionBias'), num_heads=4)
    figure = draw('bias', model, width=3.3).figure
    assert figure.get_figwidth() == 3.3
    assert [bool(axes.get_ylabel()) for axes in figure.axes] == [True, False, True, False]
    clims = {axes.images[0].get_clim() for axes in figure.axes}
    assert len(clims) == 1 and sum(clims.pop()) == 0  # centred at zero
