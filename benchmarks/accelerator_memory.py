"""Memory of one attention in training on an accelerator, counted without one.

    python benchmarks/accelerator_memory.py [--only NAME ...]

Two images, one of them padded, float32. The count is that of tests/accelerator/stand_in.py: tensors
of the form that is taken, saved for the backward pass and at the peak, inputs left out. A compiled
FlexAttention and SDPA's fast kernels count as their inputs, outputs, look-ups and masks. Needs g++.
"""
from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from unittest import mock

import torch

TESTS = Path(__file__).parent.parent / 'tests'
sys.path[:0] = [str(TESTS / 'accelerator'), str(TESTS / 'encodings')]
import examples  # noqa: E402
from stand_in import StandIn, install, leave  # noqa: E402

from mmposenc.attention import attend  # noqa: E402
from mmposenc.attention.attend import choose  # noqa: E402
from mmposenc.functional import Grid  # noqa: E402

NAMES = ('none', 'IRPE product k', 'IRPE product qkv', 'IRPE cross k', 'IRPE product bias',
         'RelativePositionBias', 'LogSpacedCPB', 'ShawRPE', 'ShawRPE with values', 'HuangRPE',
         'TransformerXLRPE', 'SASARPE', 'QueryRelative2D', 'QueryRelative1D', 'QueryAbsolute1D',
         'RotaryEmbedding2D', 'RotaryEmbedding2D mixed')
#: Heads, their channels, query grid and key grid.
SIZES = {'25x42': (8, 32, Grid(25, 42), Grid(25, 42)), '50x84': (8, 32, Grid(50, 84), Grid(50, 84)),
         'PVT stage 1': (1, 64, Grid(200, 336), Grid(25, 42, 8.0, 8.0))}


def count(name: str, size: str, form: str = 'auto') -> tuple[str, int, int]:
    """The form that is taken, bytes saved, bytes at the peak."""
    heads, dims, query, key = SIZES[size]
    encoding = None if name == 'none' else examples.relative(
        name, query, head_dims=dims, num_heads=heads, full_size=True)
    with StandIn(values=False) as gpu:
        q, k, v = (gpu.tensor(torch.empty(2, heads, grid.num_cells, dims), True)
                   for grid in (query, key, key))
        padding = torch.zeros(2, *key.hw, dtype=torch.bool)
        padding[0, key.height * 3 // 4:] = True
        hidden = gpu.tensor(padding.flatten(1))
        encoding = None if encoding is None else gpu.module(encoding)
        taken: list[str] = []
        before = gpu.memory.now
        gpu.memory.peak = before
        with mock.patch('mmposenc.attention.attend.choose',
                        lambda problem: taken.append(choose(problem)) or taken[-1]):
            out = attend(q, k, v, encoding, query, key, key_padding_mask=hidden, form=form)[0]
        saved = gpu.memory.now - before
        out.backward(torch.ones_like(out))
        assert not gpu.waits, gpu.report()
        return (taken or [form])[0], saved, gpu.memory.peak - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--only', nargs='+', default=NAMES, choices=NAMES)
    parser.add_argument('--sizes', nargs='+', default=list(SIZES), choices=list(SIZES))
    parser.add_argument('--form', default='auto')
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
    print(f'| encoding | {" | ".join(args.sizes)} |')
    print('|---' * (len(args.sizes) + 1) + '|')
    for name in args.only:
        cells = []
        for size in args.sizes:
            form, saved, peak = count(name, size, args.form)
            cells.append(f'{form} {saved / 2**20:.0f}/{peak / 2**20:.0f}')
        print(f'| {name} | {" | ".join(cells)} |', flush=True)


if __name__ == '__main__':
    main()
    leave(0)
