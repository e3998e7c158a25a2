"""Distance and entropy of attention, and how alike positions are: loops, and weights whose numbers
are arithmetic."""
import math

import numpy as np
import pytest
import torch
from tinybackbones import BUILD, randomized
from tinyfigures import examined, vit
from torch import nn

from mmposenc.backbones import PVT, Swin
from mmposenc.lab.diagnose import attention as module
from mmposenc.lab.diagnose.attention import (
    Positions,
    by_distance,
    layers_of,
    measure_attention,
    measure_similarity,
    positions_of,
)


def image(height=40, width=64, count=2):
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(3))


def far(i, j, width):
    return math.hypot(i // width - j // width, i % width - j % width)


def test_uniform_attention_is_arithmetic():
    """Without queries all logits are 0: log2 of all tokens, class token included; the mean distance
    of all pairs of cells."""
    model = vit(pool='cls', num_layers=1)
    nn.init.zeros_(model.blocks[0].attn.qkv.weight)
    nn.init.zeros_(model.blocks[0].attn.qkv.bias)
    found = {each.name: each for each in measure_attention(examined(model), {'noise': image()})}
    cells = range(5 * 8)
    pairs = [far(i, j, 8) for i in cells for j in cells]
    expected = dict(attention_distance=8 * sum(pairs) / len(pairs),
                    attention_distance_cells=sum(pairs) / len(pairs),
                    attention_entropy=math.log2(41), attention_entropy_share=1.0)
    for name, value in expected.items():
        assert found[name].value == pytest.approx(value, rel=1e-5)
        assert found[name].map['values'] == [pytest.approx([value, value], rel=1e-5)]
        for each in found[name].series:  # what was measured, and 'uniform'
            assert each['y'] == pytest.approx([value], rel=1e-5)


@torch.no_grad()
def test_reduced_keys_of_a_pvt_by_a_loop():
    torch.manual_seed(0)
    model = randomized(PVT(embed_dims=(8,), num_layers=(1,), num_heads=(2,), sr_ratios=(4,),
                           mlp_ratios=(1,), patch_sizes=(4,), out_indices=(0,)), 0.5).eval()
    images, called = image(32, 48), []
    attn = model.stages[0].blocks[0].attn
    hook = attn.register_forward_pre_hook(lambda _, args: called.append(args))
    model(images)
    hook.remove()
    weights = attn(*called[0][:2], need_weights=True)[1]  # 8 x 12 to 2 x 3
    reach, bits = [[], []], [[], []]
    for b, head, i in np.ndindex(2, 2, 96):
        row = weights[b, head, i].tolist()
        reach[head].append(sum(
            w * math.hypot(i // 12 - (j // 3 * 4 + 1.5), i % 12 - (j % 3 * 4 + 1.5))
            for j, w in enumerate(row)))
        bits[head].append(-sum(w * math.log2(w) for w in row if w))
    (layer,) = layers_of(examined(model), images)
    assert layer.name == 'stages.0.blocks.0'
    cells, entropies = ([sum(each) / len(each) for each in both] for both in (reach, bits))
    for name, expected in (('attention_distance_cells', cells),
                           ('attention_distance', [4 * each for each in cells]),
                           ('attention_entropy', entropies),
                           ('attention_entropy_share', [e / math.log2(6) for e in entropies])):
        assert layer.values[name].tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize('masked', [True, False])
def test_shifted_windows_by_a_loop_over_the_map(masked):
    """Windows of 4 on 6 x 7 cells, shifted by 2: a pair of cells is in one window when both lie in
    it after the shift; zeros fill the windows up."""
    torch.manual_seed(0)
    model = randomized(Swin(embed_dims=8, num_layers=(2,), num_heads=(2,), window_size=4,
                            out_indices=(0,), mask_window_padding=masked))
    for block in model.stages[0].blocks:  # uniform, so that who meets whom is all that counts
        for parameter in (block.attn.w_msa.qkv.weight, block.attn.w_msa.qkv.bias,
                          block.attn.w_msa.rel_pos_encoding.relative_position_bias_table):
            nn.init.zeros_(parameter)
    layers = layers_of(examined(model), image(24, 28))
    for layer, shift in zip(layers, (0, 2), strict=True):
        reach, bits = [], []
        for r in range(6):
            for c in range(7):
                meet = [(a, b) for a in range(8) for b in range(8)
                        if _window(a, shift) == _window(r, shift)
                        and _window(b, shift) == _window(c, shift)]
                real = [(a, b) for a, b in meet if a < 6 and b < 7]
                reach.append(sum(math.hypot(a - r, b - c) for a, b in real) / len(real))
                bits.append(math.log2(len(real if masked else meet)))
        reach, bits = sum(reach) / 42, sum(bits) / 42
        for name, value in (('attention_distance_cells', reach), ('attention_distance', 4 * reach),
                            ('attention_entropy', bits)):
            assert layer.values[name].tolist() == pytest.approx([value] * 2, rel=1e-5)
            assert layer.uniform[name] == pytest.approx(value, rel=1e-5)


def _window(place, shift):
    """Rolled by the shift, the last window holds the end and the beginning, which do not meet."""
    return (place - shift) // 4


def test_windows_of_a_plain_transformer_are_told_apart_too():
    model = vit(window_size=3, global_blocks=(1,), mask_window_padding=True)
    for block in model.blocks:
        nn.init.zeros_(block.attn.qkv.weight)
        nn.init.zeros_(block.attn.qkv.bias)
    windowed, everywhere = layers_of(examined(model), image())
    bits = [math.log2(rows * cols) for rows, cols in
            [(min(3, 5 - r // 3 * 3), min(3, 8 - c // 3 * 3)) for r in range(5) for c in range(8)]]
    assert windowed.values['attention_entropy'].tolist() == pytest.approx(
        [sum(bits) / 40] * 2, rel=1e-5)
    assert everywhere.values['attention_entropy'].tolist() == pytest.approx(
        [math.log2(40)] * 2, rel=1e-5)


def test_heads_differ_in_number_and_what_has_no_attention_says_so():
    found = measure_attention(examined(randomized(BUILD['pvt']())), {'noise': image(32, 64)})
    for each in found:
        assert each.map['rows'] == ['stages.0.blocks.0', 'stages.1.blocks.0', 'stages.1.blocks.1']
        assert each.map['columns'] == ['head 0', 'head 1'] and each.map['values'][0][1] is None
    for each in measure_attention(examined(nn.Conv2d(3, 4, 3)), {'noise': image()}):
        assert not each.measured and each.text.startswith('Not measured: there is no attention')


def grid(**options):
    """On 4 x 6 cells."""
    return vit(img_size=(32, 48), **options)


def measured(model):
    return measure_similarity(examined(model), torch.randn(1, 3, 32, 48))[0]


@pytest.mark.parametrize('references', [14, 2])
def test_means_by_distance_by_a_loop(references, monkeypatch):
    monkeypatch.setattr(module, 'REFERENCES', references)
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
    model = grid(pos_encoding=dict(type='mmposenc.SinCosPositionEncoding'))
    with torch.no_grad():
        table = model.pos_encodings.encodings(-1)[0](torch.zeros(1, 24, 16), (4, 6))[0].numpy()
    assert measured(model).series[0]['y'] == pytest.approx(
        by_distance(Positions('x', (4, 6), table)), abs=1e-5)


def test_a_rotary_query_turns_by_the_distance_times_the_frequency():
    model = grid(rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding2D'))
    encoding = model.blocks[0].attn.rel_pos_encoding
    found = positions_of(examined(model), torch.randn(1, 3, 32, 48))
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
    model = grid(rel_pos_encoding=dict(type='mmposenc.RelativePositionBias', window_size=(4, 6)),
                pool='cls')
    bias = model.blocks[0].attn.rel_pos_encoding.bias_map((4, 6))[0].detach()[:, 1:, 1:]
    expected = by_distance(Positions('x', (4, 6), bias.transpose(0, 1).flatten(1).numpy()))
    assert measured(model).series[0]['y'] == pytest.approx(expected, abs=1e-5)


def test_tables_at_zero_and_no_encoding_say_so():
    model = grid(rel_pos_encoding=dict(type='mmposenc.RelativePositionBias', window_size=(4, 6)))
    for block in model.blocks:
        for table in block.attn.rel_pos_encoding.parameters():
            nn.init.zeros_(table)
    assert 'zero (blocks.0.attn, blocks.1.attn)' in measured(model).text
    assert not measured(model).measured and not measured(grid()).measured
