"""How alike positions are: by a loop, of a constant table, and of rotary positions by angle."""
import math

import numpy as np
import pytest
import torch
from tinybackbones import randomized
from torch import nn

from mmposenc.backbones import ViT
from mmposenc.lab.diagnose import attention
from mmposenc.lab.diagnose.attention import (
    Positions,
    by_distance,
    measure_similarity,
    positions_of,
)
from mmposenc.lab.diagnose.features import Examined
from mmposenc.lab.diagnose.table import plain_run


def vit(**options):
    torch.manual_seed(0)
    return randomized(ViT(**{**dict(embed_dims=16, num_layers=2, num_heads=2, patch_size=8,
                                    img_size=(32, 48), pool='gap'), **options})).eval()


def measured(model):
    return measure_similarity(Examined(model, plain_run(model)), torch.randn(1, 3, 32, 48))[0]


@pytest.mark.parametrize('references', [14, 2])
def test_means_by_distance_by_a_loop(references, monkeypatch):
    monkeypatch.setattr(attention, 'REFERENCES', references)
    vectors = np.random.default_rng(0).normal(size=(15, 4))
    means: dict = {}
    chosen = range(15) if references == 14 else [5 * r + c for r in (0, 2) for c in (1, 3)]
    for i in chosen:
        for j in range(15):
            d = round(math.hypot(i // 5 - j // 5, i % 5 - j % 5))
            cos = vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j])
            means.setdefault(d, []).append(cos)
    found = by_distance(Positions('x', (3, 5), vectors))
    assert found == pytest.approx([np.mean(means[d]) for d in range(1, len(found) + 1)])
    assert len(found) == max(means)


def test_sines_and_cosines_of_known_positions():
    """Their vectors have one length, so that the cosine is that of their own table."""
    model = vit(pos_encoding=dict(type='mmposenc.SinCosPositionEncoding'))
    with torch.no_grad():
        table = model.pos_encodings.encodings(-1)[0](torch.zeros(1, 24, 16), (4, 6))[0].numpy()
    assert measured(model).series[0]['y'] == pytest.approx(
        by_distance(Positions('x', (4, 6), table)), abs=1e-5)


def test_a_rotary_query_turns_by_the_distance_times_the_frequency():
    model = vit(rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding2D'))
    encoding = model.blocks[0].attn.rel_pos_encoding
    found = positions_of(Examined(model, plain_run(model)), torch.randn(1, 3, 32, 48))
    assert [each.name for each in found] == ['blocks.0.attn', 'blocks.1.attn']
    # Turned vectors keep their length, and two cells' cosine is that of their offset alone.
    vectors = found[0].vectors
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([4.0] * 24, rel=1e-5)
    ones = torch.ones(1, 2, 24, encoding.head_dims)
    q, k = encoding.rotate(ones, ones, (4, 6))
    logits = (q @ k.transpose(-2, -1))[0].sum(0)
    np.testing.assert_allclose(vectors @ vectors.T, logits.detach().numpy(), rtol=1e-4, atol=1e-4)
    assert by_distance(found[0])[0] < 1


def test_terms_of_all_heads_and_keys_are_a_cells_position():
    model = vit(rel_pos_encoding=dict(type='mmposenc.RelativePositionBias', window_size=(4, 6)),
                pool='cls')
    bias = model.blocks[0].attn.rel_pos_encoding.bias_map((4, 6))[0].detach()[:, 1:, 1:]
    expected = by_distance(Positions('x', (4, 6), bias.transpose(0, 1).flatten(1).numpy()))
    assert measured(model).series[0]['y'] == pytest.approx(expected, abs=1e-5)


def test_tables_at_zero_and_no_encoding_say_so():
    model = vit(rel_pos_encoding=dict(type='mmposenc.RelativePositionBias', window_size=(4, 6)))
    for block in model.blocks:
        for table in block.attn.rel_pos_encoding.parameters():
            nn.init.zeros_(table)
    assert 'zero (blocks.0.attn, blocks.1.attn)' in measured(model).text
    assert not measured(model).measured and not measured(vit()).measured
