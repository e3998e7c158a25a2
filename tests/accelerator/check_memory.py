"""Memory of one attention in training, counted with the stand-in: two images, one of them padded,
float32, inputs left out. What docs/results_gpu.md says, with a tenth to spare."""
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from stand_in import StandIn

from mmposenc.attention import attend
from mmposenc.attention.attend import choose
from mmposenc.functional import Grid
from mmposenc.functional.masking import note_extents

sys.path.insert(0, str(Path(__file__).parent.parent / 'encodings'))
import examples  # noqa: E402

#: Form, and MiB at the peak: 50x84 tokens of two images in 8 heads of 32 channels, float32.
PEAKS = {
    'none': ('fused', 58), 'IRPE product k': ('flex', 83), 'IRPE product qkv': ('pieces', 167),
    'IRPE cross k': ('flex', 141), 'IRPE product bias': ('flex', 59),
    'RelativePositionBias': ('flex', 59), 'LogSpacedCPB': ('flex', 90), 'ShawRPE': ('flex', 206),
    'ShawRPE with values': ('pieces', 142), 'HuangRPE': ('flex', 354),
    'TransformerXLRPE': ('flex', 167), 'SASARPE': ('flex', 136),
    'QueryRelative2D': ('flex', 141), 'QueryRelative1D': ('pieces', 102)}


#: Most MiB at the peak of PVT's first stage at 800x1344, 64 queries a key: an eighth of what all
#: pairs took (of iRPE with values a tenth), but for Transformer-XL: its goal of 51 is less than the
#: output, its gradient and that of the queries, 33 each.
REDUCED = {'IRPE product k': 285, 'IRPE product qkv': 395, 'ShawRPE': 300, 'TransformerXLRPE': 240,
           'SASARPE': 225, 'QueryRelative2D': 227}


#: Heads, their channels, query grid and key grid.
SIZES = {'50x84': (8, 32, Grid(50, 84), Grid(50, 84)),
         'PVT stage 1': (1, 64, Grid(200, 336), Grid(25, 42, 8.0, 8.0))}


def count(name, size):
    """The form that is taken, bytes saved, bytes at the peak."""
    heads, dims, query, key = SIZES[size]
    encoding = None if name == 'none' else examples.relative(
        name, query, head_dims=dims, num_heads=heads, full_size=True)
    with StandIn(values=False) as gpu:
        q, k, v = (gpu.tensor(torch.empty(2, heads, grid.num_cells, dims), True)
                   for grid in (query, key, key))
        padding = torch.zeros(2, *key.hw, dtype=torch.bool)
        padding[0, key.height * 3 // 4:] = True
        hidden = note_extents(gpu.tensor(padding.flatten(1)),
                              [(key.height * 3 // 4, key.width), key.hw])
        encoding = None if encoding is None else gpu.module(encoding)
        taken = []
        before = gpu.memory.now
        gpu.memory.peak = before
        with mock.patch('mmposenc.attention.attend.choose',
                        lambda *given: taken.append(choose(*given)) or taken[-1]):
            out = attend(q, k, v, encoding, query, key, key_padding_mask=hidden)[0]
        saved = gpu.memory.now - before
        out.backward(torch.ones_like(out))
        assert not gpu.waits, gpu.report()
        return (taken or ['auto'])[0], saved, gpu.memory.peak - before


@pytest.mark.parametrize('name', REDUCED)
def test_peak_of_reduced_keys(name):
    form, saved, peak = count(name, 'PVT stage 1')
    assert form == 'pieces' and saved < peak <= REDUCED[name] * 2 ** 20


@pytest.mark.parametrize('name', PEAKS)
def test_peak(name):
    form, peak = PEAKS[name]
    taken, saved, found = count(name, '50x84')
    assert taken == form and saved < found <= 1.1 * peak * 2 ** 20


def test_the_count_is_arithmetic():
    """Plain attention keeps its output and what became of padded images; the backward pass adds
    the gradients of the output, twice, and of queries, keys and values."""
    tokens = 2 * 4200 * 8 * 32 * 4  # bytes
    _, saved, peak = count('none', '50x84')
    assert 2 * tokens < saved < 2.1 * tokens and 7 * tokens < peak < 7.1 * tokens


def test_storages_are_counted_once():
    with StandIn(values=False) as gpu:
        x = gpu.tensor(torch.empty(10, 10))
        assert gpu.memory.now == 400
        view = x[2:].t()
        assert gpu.memory.now == 400
        y = view + 1
        assert gpu.memory.now == 400 + 320
        del x, view
        assert gpu.memory.now == 320 and gpu.memory.peak == 720
        del y
        assert gpu.memory.now == 0
