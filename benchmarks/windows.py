"""Swin's window attention with its bias table: this project's against the release's formulation.

    python benchmarks/windows.py [--repeats 15] [--threads 1] [--dtype float32]
    python benchmarks/windows.py --device cuda --dtype bfloat16      # never tried

Two parts are timed: 'attention' is everything between the joint projection and the output
projection, 'block' also has both projections, the cutting into windows and the shift. The
reference is written from the release: scaled product, table read by an index of all pairs, shift
mask added, softmax, product, transposed back. 'Limit' is both products and the softmax alone:
queries, keys and values lie ready one window and head behind the other, and what is between stays
in the cache.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from calls import kinds
from measure import add_arguments, header, paired_times, parse, peak_memory, row
from torch import Tensor

from mmposenc.attention import ShiftWindowAttention
from mmposenc.attention.attend import attend_joint
from mmposenc.functional.windows import join_windows, partition_windows, window_regions

#: name: (batch, height, width, embed_dims, heads, window)
CASES = {
    '224, stage 1, B=8': (8, 56, 56, 96, 3, 7),
    '224, stage 3, B=8': (8, 14, 14, 384, 12, 7),
    '384, stage 3, B=4': (4, 24, 24, 512, 16, 12),
    '800x1333, stage 1': (1, 200, 334, 96, 3, 7),
    '800x1333, stage 3': (1, 50, 84, 384, 12, 7),
    'tiny': (1, 8, 8, 8, 2, 4),
}


def release_index(window: int) -> Tensor:
    """Row of the table for every pair of a window's tokens, by query minus key."""
    axis = torch.arange(window)
    row, col = (grid.flatten() for grid in torch.meshgrid(axis, axis, indexing='ij'))
    rows = row[:, None] - row + window - 1
    return rows * (2 * window - 1) + col[:, None] - col + window - 1


def release_mask(height: int, width: int, window: int, shift: int) -> Tensor | None:
    """0 or -100 for every pair of every window."""
    regions = window_regions((height, width), (window, window), (shift, shift))
    if regions is None:
        return None
    return (regions[:, :, None] != regions[:, None, :]).float() * -100.0


def release_attention(joint: Tensor, table: Tensor, index: Tensor, mask: Tensor | None,
                      heads: int) -> Tensor:
    """(windows, L, 3 C) -> (windows, L, C)."""
    windows, length, channels = joint.shape
    q, k, v = joint.view(windows, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
    attn = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    bias = table[index.view(-1)].view(length, length, heads).permute(2, 0, 1).contiguous()
    attn = attn + bias[None]
    if mask is not None:
        attn = attn.view(-1, mask.shape[0], heads, length, length) + mask[None, :, None]
        attn = attn.view(-1, heads, length, length)
    attn = attn.softmax(-1)
    return (attn @ v).transpose(1, 2).reshape(windows, length, channels // 3)


def attention_runs(case: str, shift: int, dtype: torch.dtype, device: str
                   ) -> tuple[dict[str, Callable[[], Tensor]], list[Tensor]]:
    """Both formulations between the projections, and the leaves they have gradients of."""
    batch, height, width, dims, heads, window = CASES[case]
    module = ShiftWindowAttention(dims, heads, window, shift,
                                  rel_pos_encoding=dict(type='mmposenc.RelativePositionBias'))
    module.to(device, dtype)
    sides = (window, window)
    joint = partition_windows(
        torch.randn(batch, height, width, 3 * dims, dtype=dtype, device=device), sides)
    joint.requires_grad_()
    table = module.w_msa.rel_pos_encoding.relative_position_bias_table
    index, mask = release_index(window).to(device), release_mask(height, width, window, shift)
    mask = None if mask is None else mask.to(device, dtype)
    regions = window_regions((height, width), sides, (shift, shift))
    flat = None if regions is None else regions.to(device)

    def ours() -> Tensor:
        out, _ = attend_joint(joint.view(*joint.shape[:2], 3, heads, -1),
                              module.w_msa.rel_pos_encoding, sides, regions=flat)
        return out.transpose(1, 2).flatten(2)

    return {'release': lambda: release_attention(joint, table, index, mask, heads),
            'ours': ours}, [joint, table]


def limit(case: str, windows: int, dtype: torch.dtype, device: str) -> Callable[[], Tensor]:
    """Products and softmax of as many windows, without a bias, a mask or a transposition."""
    _, _, _, dims, heads, window = CASES[case]
    length = window ** 2
    q, k, v = torch.randn(3, windows * heads, length, dims // heads, dtype=dtype,
                          device=device)
    out = torch.empty_like(q)
    # On a GPU all of them at once: its caches are no place for weights to wait in.
    step = 2 ** 16 // length ** 2 if device == 'cpu' else len(q)
    buffer = torch.empty(step, length, length, dtype=dtype, device=device)

    def run() -> Tensor:
        for first in range(0, len(q), step):
            part = slice(first, min(first + step, len(q)))
            weights = buffer[:part.stop - first]
            torch.bmm(q[part], k[part].transpose(1, 2), out=weights)
            torch.softmax(weights, -1, out=weights)
            torch.bmm(weights, v[part], out=out[part])
        return out
    return run


def block_runs(case: str, shift: int, dtype: torch.dtype, device: str
               ) -> tuple[dict[str, Callable[[], Tensor]], list[Tensor]]:
    """Both formulations from map to map."""
    batch, height, width, dims, heads, window = CASES[case]
    module = ShiftWindowAttention(dims, heads, window, shift,
                                  rel_pos_encoding=dict(type='mmposenc.RelativePositionBias'))
    module.to(device, dtype)
    x = torch.randn(batch, height * width, dims, dtype=dtype, device=device, requires_grad=True)
    table = module.w_msa.rel_pos_encoding.relative_position_bias_table
    index, mask = release_index(window).to(device), release_mask(height, width, window, shift)
    mask = None if mask is None else mask.to(device, dtype)
    sides, shifts = (window, window), (shift, shift)

    def release() -> Tensor:
        grid = x.view(batch, height, width, dims)
        joint = module.w_msa.qkv(partition_windows(grid, sides, shifts))
        out = module.w_msa.proj(release_attention(joint, table, index, mask, heads))
        return join_windows(out, (height, width), sides, shifts).flatten(1, 2)

    return {'release': release, 'ours': lambda: module(x, (height, width))}, [
        x, *module.parameters()]


def measure(case: str, shift: int, part: str, args: argparse.Namespace) -> None:
    """One row."""
    build, dtype = PARTS[part], getattr(torch, args.dtype)
    runs, leaves = build(case, shift, dtype, args.device)
    expected = runs['release']().detach()
    torch.testing.assert_close(runs['ours'](), expected, rtol=2e-2,
                               atol=2e-5 if dtype == torch.float32 else 2e-2)
    both = kinds(runs, leaves, torch.randn_like(expected))
    timed = dict(both['inference'])
    if part == 'attention':
        timed.update(kinds({'limit': limit(case, len(leaves[0]), dtype, args.device)}, [],
                           expected)['inference'])
    found = paired_times(timed, args.repeats, args.device)
    cells = [found['ours'].ratio, found['limit'].ratio if 'limit' in found else float('nan'),
             paired_times(both['training'], args.repeats, args.device)['ours'].ratio]
    for kind in both.values():
        peaks = {name: peak_memory(run, args.device) for name, run in kind.items()}
        cells.append(peaks['ours'] / (peaks['release'] or 1))
    print(f'| {case} | {shift} | {part} | '
          + ' | '.join(f'{cell:.2f}' for cell in cells) + ' |', flush=True)


PARTS = {'attention': attention_runs, 'block': block_runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, repeats=15)
    parser.add_argument('--case', choices=sorted(CASES), action='append')
    args = parse(parser)
    print(header(args))
    print('| case | shift | part | inference | limit | training | memory inference | '
          'memory training |\n|---|---|---|---|---|---|---|---|')
    for case in args.case or [case for case in CASES if (case == 'tiny') == args.tiny]:
        for shift in (0, CASES[case][-1] // 2):
            for part in PARTS:
                with row(case, shift, part):
                    measure(case, shift, part, args)


if __name__ == '__main__':
    main()
