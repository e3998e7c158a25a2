"""Absolute encodings: the right vector for every cell, on every grid and in every batch."""
import copy
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from mmposenc import encodings
from mmposenc.encodings import LearnedPositionEmbedding
from mmposenc.functional.position_tables import resize_axis_table


def test_vectors_of_prefix_tokens_are_those_of_the_first():
    embedding = LearnedPositionEmbedding(3, (2, 2), num_prefix_embeds=1)
    x = torch.randn(2, 2 + 6, 3)
    out = embedding(x, (2, 3), num_prefix_tokens=2)
    torch.testing.assert_close(out[:, 0], x[:, 0] + embedding.pos_embed[:, 0])
    torch.testing.assert_close(out[:, 1], x[:, 1], rtol=0, atol=0)


def gradients(out, parameters):
    return torch.autograd.grad((out.cos() * torch.arange(out.numel()).view_as(out)).sum(),
                               list(parameters))


@pytest.mark.parametrize('windows', [(1, 1), (2, 3), (4, 1)])
def test_hieras_windows(windows):
    hiera = pytest.importorskip('timm.models.hiera').Hiera
    ours = encodings.WindowedPositionEmbedding(3, (5, 4), window_shape=(3, 2),
                                     interpolation='bicubic_antialias')
    hw = (3 * windows[0], 2 * windows[1])
    x = torch.randn(2, hw[0] * hw[1], 3)
    expected = hiera._pos_embed(SimpleNamespace(
        pos_embed=ours.pos_embed, pos_embed_win=ours.pos_embed_win, mask_spatial_shape=windows), x)
    out = ours(x, hw)
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(gradients(out, ours.parameters()),
                               gradients(expected, ours.parameters()), atol=1e-3, rtol=1e-4)
    # A window that is cut off is the beginning of one.
    zero = torch.zeros(1, 1, 3)
    ours.pos_embed.data.zero_()
    torch.testing.assert_close(ours(zero.expand(1, 20, 3), (4, 5))[0, 3 * 5 + 4],
                               ours.pos_embed_win[0, :, 0, 0])


def test_a_grid_of_one_side_of_the_table_is_resized_to_a_square_too():
    embedding = LearnedPositionEmbedding(3, (4, 4), keep_aspect=True)
    square = embedding(torch.zeros(1, 36, 3), (6, 6)).unflatten(1, (6, 6))[:, :4].flatten(1, 2)
    torch.testing.assert_close(embedding(torch.zeros(1, 24, 3), (4, 6)), square)


def test_dropout_drops_while_training_only():
    embedding = LearnedPositionEmbedding(4, (8, 8), drop=0.5)
    x = torch.ones(1, 64, 4)
    assert (embedding(x, (8, 8)) == 0).float().mean() > 0.3
    assert (embedding.eval()(x, (8, 8)) == 0).sum() == 0


@pytest.mark.parametrize('cls, options', [
    (LearnedPositionEmbedding, {}), (LearnedPositionEmbedding, dict(keep_aspect=True)),
    (encodings.FactorizedPositionEmbedding, {}), (encodings.WindowedPositionEmbedding, {})])
def test_half_precision_is_rounded_once(cls, options):
    half = cls(8, (4, 5), **options).bfloat16()
    torch.nn.init.normal_(next(half.parameters()))
    exact = copy.deepcopy(half).double()(torch.zeros(1, 7 * 9, 8).double(), (7, 9))
    out = half(torch.zeros(1, 7 * 9, 8).bfloat16(), (7, 9))
    torch.testing.assert_close(out.double(), exact, rtol=2 ** -8 * 1.01, atol=1e-6)
    table = torch.randn(2, 5, 8).bfloat16()
    torch.testing.assert_close(resize_axis_table(table, 8), resize_axis_table(
        table.double(), 8).bfloat16(), rtol=2 ** -8, atol=1e-6)


@pytest.mark.parametrize('make, message', [
    (lambda: encodings.FactorizedPositionEmbedding(4, (2, 3), coordinates='absolute')(
        torch.zeros(1, 9, 4), (3, 3)), r'hw_shape=\(3, 3\) must fit into grid_shape=\(2, 3\)'),
    (lambda: LearnedPositionEmbedding(3, (2, 2), num_prefix_embeds=1)(
        torch.zeros(1, 6, 3), (2, 3)), 'num_prefix_tokens=0 must be at least num_prefix_embeds=1')])
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize('hw', [(3, 4), (2, 3), (6, 2), (1, 5), (4, 1)])
def test_a_cut_table_is_of_the_sequence(hw: tuple[int, int]) -> None:
    """AI Summer's one line, and every vector used has a gradient."""
    embedding = LearnedPositionEmbedding(3, (3, 4), interpolation='cut')
    cells = hw[0] * hw[1]
    x = torch.randn(1, cells, 3)
    out = embedding(x, hw)
    torch.testing.assert_close(out, x + embedding.pos_embed[:, :cells], rtol=0, atol=0)
    out.sum().backward()
    assert embedding.pos_embed.grad[0, :, 0].tolist() == [1.0] * cells + [0.0] * (12 - cells)
    with pytest.raises(ValueError, match=r"a table of 12 vectors is too short .* \[\[4, 4\]\]"):
        embedding(torch.randn(1, 16, 3), (4, 4))


@pytest.mark.parametrize('hw_shape', [(3, 5), (1, 4), (5, 1)])
def test_fourier_features(hw_shape):
    """Algorithm 1 of the paper, a cell at a time."""
    encoding = encodings.LearnableFourierFeatures(6, fourier_dims=8, hidden_dims=5, gamma=2.0)
    encoding.double()
    x = torch.randn(2, 1 + hw_shape[0] * hw_shape[1], 6, dtype=torch.float64)
    expected = x.clone()
    first, _, last = encoding.mlp
    for row in range(hw_shape[0]):
        for col in range(hw_shape[1]):
            angles = [row * w[0] + col * w[1] for w in encoding.frequencies.tolist()]
            features = torch.tensor([f(a) / 8 ** 0.5 for f in (math.cos, math.sin) for a in angles],
                                    dtype=torch.float64)
            hidden = F.gelu(first.weight @ features + first.bias)
            expected[:, 1 + row * hw_shape[1] + col] += last.weight @ hidden + last.bias
    out = encoding(x, hw_shape, num_prefix_tokens=1)
    torch.testing.assert_close(out, expected)


def test_fourier_frequencies_start_as_the_paper_says():
    features = encodings.LearnableFourierFeatures(4096, gamma=5.0).frequencies
    assert features.shape == (2048, 2)
    torch.testing.assert_close(features.std(), torch.tensor(0.2), atol=0.005, rtol=0)
