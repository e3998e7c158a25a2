"""Attention and rollout on the photo: the numbers, and where they lie."""
import numpy as np
import pytest
import torch
from tinyfigures import IRPE, close, deit, draw, naive_weights, pvt, subject, swin

from mmposenc.functional.windows import Windows
from mmposenc.lab.figures import draw_panels
from mmposenc.lab.figures.paper_figures import Choice, Subject, draw_figure
from mmposenc.lab.figures.photo_figures import (
    PhotoPanel,
    on_photo,
    outline,
    query_box,
)
from mmposenc.lab.figures.recording import AttentionRecord, record_attention

PLACES = ((0.1, 0.9), (0.7, 0.25))


def photo_subject(model, size=(32, 40), photo=(60, 150)):
    """A photo of another aspect than the input."""
    found = subject(model, size)
    return Subject(model, found.run, found.source,
                   np.random.default_rng(0).random((*photo, 3)), size)


def test_overlay_is_rows_of_the_attention():
    model = deit(rel_pos_encoding=IRPE)
    expected = naive_weights(model, 1)
    found = draw_figure('overlay', [photo_subject(model)], Choice(1, places=PLACES)).arrays
    close(found['prefix'], expected.mean(0)[0, 1:].reshape(4, 5))
    for number, (row, col) in enumerate(((0, 4), (2, 1)), 1):
        close(found[f'point_{number}'], expected.mean(0)[1 + row * 5 + col, 1:].reshape(4, 5))
        assert found['cells'][number - 1].tolist() == [row / 4, col / 5, 1 / 4, 1 / 5]
    one = draw_figure('overlay', [photo_subject(model)],
                      Choice(1, head=1, places=PLACES, prefix=False)).arrays
    assert 'prefix' not in one
    close(one['point_2'], expected[1, 1 + 2 * 5 + 1, 1:].reshape(4, 5))


def test_panels_lie_on_the_photo_at_its_own_aspect():
    figure = draw_figure('overlay', [photo_subject(deit())], Choice(places=PLACES)).figure
    bare, prefix, first, second = figure.axes
    assert [axes.get_title() for axes in figure.axes] == [
        'photo', 'first prefix token', 'point 1', 'point 2']
    for axes in figure.axes:
        assert axes.get_box_aspect() == 60 / 150 and axes.get_ylim() == (1, 0)
    assert bare.images[0].get_array().shape == (60, 150, 3) and len(bare.lines) == 2
    grey, weights = first.images
    assert grey.get_extent() == weights.get_extent() == [0, 1, 1, 0]
    assert (grey.get_array()[..., 0] == grey.get_array()[..., 2]).all()
    assert weights.get_array().shape == (4, 5) and weights.get_cmap().name == 'viridis'
    box, star = first.lines
    assert (box.get_xdata().min(), box.get_xdata().max()) == (4 / 5, 1)
    assert (box.get_ydata().min(), box.get_ydata().max()) == (0, 1 / 4)
    assert (star.get_ydata()[0], star.get_xdata()[0]) == PLACES[0]
    assert len(second.images) == 2 and not prefix.lines


@pytest.mark.parametrize('at', [(0.0, 0.0), (0.49, 0.51), (0.99, 0.3), (0.55, 0.99)])
def test_the_querys_cell_holds_the_point(at):
    """In a plain model, reduced keys and shifted windows, on maps that are not square."""
    for model, size in ((deit(), (32, 40)), (pvt(), (32, 56)), (swin(2), (96, 112))):
        with record_attention(model, at) as records, torch.no_grad():
            subject(model, size).run()
        for record in records:
            top, left, height, width = query_box(record)
            assert top <= at[0] < top + height and left <= at[1] < left + width, record.name
            values, covers = on_photo(record, record.weights[0])
            assert covers == (1.0, 1.0)
            cell = int(at[0] * values.shape[0]), int(at[1] * values.shape[1])
            assert np.isfinite(values[cell])  # the query is a key of its own


def test_reduced_keys_that_pool_more_than_the_map():
    """Nine rows of queries, keys that pool two: the fifth lies half beyond the photo."""
    record = AttentionRecord('x', (9, 10), (8, 0), (5, 5), np.zeros((1, 5, 5)), key_strides=(2, 2))
    values, covers = on_photo(record, np.arange(25.0).reshape(5, 5))
    assert covers == (10 / 9, 1.0) and values.shape == (5, 5)
    axes = draw_panels([PhotoPanel('', None, 0.9, values, covers)]).axes[0]
    assert axes.images[0].get_extent() == [0, 1, 10 / 9, 0] and axes.get_ylim() == (1, 0)
    apart = AttentionRecord('x', (4, 4), (0, 0), (4, 4), np.zeros((1, 4, 4)), window=(0, 0))
    for ask in (query_box, lambda each: on_photo(each, each.weights[0])):
        with pytest.raises(ValueError, match='x runs in windows that were cut from no map'):
            ask(apart)


@pytest.mark.parametrize('at', [(0.05, 0.05), (0.5, 0.6), (0.97, 0.97)])
@pytest.mark.parametrize('block', [0, 1])
def test_a_window_lies_where_it_was_cut(at, block):
    """Cells by their numbers: those of the window with the point are those that are shown."""
    model = swin(2)  # 6 x 7 cells, filled up to 8 x 8
    found = draw('overlay', model, (24, 28), block=block, places=(at,)).arrays['point_1']
    with record_attention(model, at, whole=block) as records, torch.no_grad():
        subject(model, (24, 28)).run()
    weights = records[block].all_weights.mean(0)
    shift = (2, 2) if block else (0, 0)
    numbers = Windows((6, 7), (4, 4), shift).cut(torch.arange(1.0, 43).view(1, 42, 1))[..., 0]
    own = int(at[0] * 6) * 7 + int(at[1] * 7)
    window, place = (numbers == own + 1).nonzero()[0].tolist()
    expected = np.full(43, np.nan)
    expected[numbers[window].int().numpy()] = weights[place]
    close(found.ravel(), expected[1:])


def test_rollout_is_the_product_of_the_layers():
    model = deit(rel_pos_encoding=IRPE)
    product = np.eye(21)
    for block in range(3):
        mean = naive_weights(model, block).mean(0).astype(np.float64)
        product = (0.5 * np.eye(21) + 0.5 * mean) @ product
    found = draw_figure('rollout', [photo_subject(model)], Choice(places=PLACES)).arrays
    close(found['matrix'], product)
    np.testing.assert_allclose(found['matrix'].sum(1), 1, rtol=1e-9)
    close(found['first'], product[0, 1:].reshape(4, 5))
    close(found['point_2'], product[1 + 2 * 5 + 1, 1:].reshape(4, 5))
    plain = deit(pool='gap')
    found = draw('rollout', plain).arrays
    assert found['matrix'].shape == (20, 20)
    close(found['first'], found['matrix'].mean(0).reshape(4, 5))


def test_outline_of_cells():
    inside = np.zeros((3, 4), bool)
    inside[1, 1:3] = inside[0, 3] = True
    edges = {tuple(map(tuple, edge)) for edge in outline(inside).tolist()}
    assert edges == {((1, 1), (1, 2)), ((1, 2), (1, 3)), ((2, 1), (2, 2)), ((2, 2), (2, 3)),
                     ((1, 1), (2, 1)), ((1, 3), (2, 3)),
                     ((0, 3), (0, 4)), ((1, 3), (1, 4)), ((0, 3), (1, 3)), ((0, 4), (1, 4))}
