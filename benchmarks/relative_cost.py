"""Relative encodings against attention without one; tables of relative.py."""
from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from measure import paired_ratios, paired_times, peak_memory
from relative_inputs import (
    SIZES,
    Attention,
    Inputs,
    Size,
    both,
    examples,
    explicit,
    in_fresh_process,
    make_encoding,
    make_inputs,
)
from torch import Tensor

from mmposenc.attention import attend
from mmposenc.encodings import RelativeEncoding


def cost_rows(length: int, args: argparse.Namespace
              ) -> list[tuple[str, Attention, RelativeEncoding | None]]:
    """Attention without an encoding, then with each."""
    size = SIZES[length]
    rows: list[tuple[str, Attention, RelativeEncoding | None]] = [
        ('none, SDPA', F.scaled_dot_product_attention, None), ('none, explicit', explicit, None)]
    for name in examples.RELATIVE:
        if args.only and not any(part in name for part in args.only):
            continue
        encoding = make_encoding(name, size).to(args.device, args.dtype)
        rows.append((name, lambda q, k, v, e=encoding, s=size: attend(
            q, k, v, e, (s.height, s.width))[0], encoding))
    return rows


def cost(args: argparse.Namespace) -> None:
    """Every encoding as a multiple of SDPA without one."""
    print('| encoding | L | forward | training | memory forward, MiB | memory training, MiB |')
    print('|---|---|---|---|---|---|')
    memory = in_fresh_process(args, 'cost')
    for length, size in SIZES.items():
        if args.rows and length not in args.rows:
            continue
        inputs = make_inputs(size, args.device, args.dtype)
        repeats = max(2, args.repeats // 2) if length > 4000 else args.repeats
        for name, run, encoding in cost_rows(length, args):
            pair = both({'SDPA': F.scaled_dot_product_attention, 'ours': run}, inputs, encoding)
            times = [paired_ratios(kind, 'SDPA', repeats)['ours'] for kind in pair]
            peaks = [each / 2**20 for each in memory.pop(0)]
            print(f'| {name} | {length} | {times[0]:.2f} | {times[1]:.2f} | {peaks[0]:.0f} | '
                  f'{peaks[1]:.0f} |', flush=True)


def cost_memory(args: argparse.Namespace) -> list[list[int]]:
    """Peak memory of inference and training, for each row of the table 'cost'."""
    peaks = []
    for length, size in SIZES.items():
        if not args.rows or length in args.rows:
            inputs = make_inputs(size, args.device, args.dtype)
            for _, run, encoding in cost_rows(length, args):
                peaks.append([peak_memory(kind['ours'])
                              for kind in both({'ours': run}, inputs, encoding)])
    return peaks


def growth(args: argparse.Namespace) -> None:
    """Exponent b of time ~ L ** b at a width of 42 cells, between 12 and 50 rows."""
    print('| encoding | ' + ' | '.join(f'{h} x 42, ms' for h in (12, 25, 50)) + ' | exponent |')
    print('|---|---|---|---|---|')
    chosen = ['IRPE product k', 'IRPE cross k', 'IRPE product qkv', 'IRPE product bias']
    for name in ('none, SDPA', 'none, explicit', *chosen):
        for kind in (0, 1):
            times = []
            for height in (12, 25, 50):
                size = Size(1, 8, height, 42, 32, 0)
                inputs = make_inputs(size, args.device, args.dtype)
                encoding = make_encoding(name, size) if name in chosen else None
                run: Attention = explicit
                if name == 'none, SDPA':
                    run = F.scaled_dot_product_attention
                if encoding is not None:
                    def run(q: Tensor, k: Tensor, v: Tensor, e=encoding, s=size) -> Tensor:
                        return attend(q, k, v, e, (s.height, s.width))[0]
                calls = both({'SDPA' if encoding is None else 'ours': run}, inputs, encoding)[kind]
                times.append(next(iter(paired_times(calls, args.repeats).values())))
            exponent = math.log(times[-1] / times[0]) / math.log(50 / 12)
            cells = ' | '.join(f'{each * 1e3:.1f}' for each in times)
            print(f"| {name}, {('forward', 'training')[kind]} | {cells} | {exponent:.2f} |",
                  flush=True)


#: Rows of the table 'dropout'.
DROPPED = ('none', 'IRPE product k', 'IRPE product qkv', 'RelativePositionBias',
           'CombinedRPE of two')


def dropout_calls(length: int, args: argparse.Namespace
                  ) -> list[tuple[str, list[dict[str, Callable[[], None]]]]]:
    """Inference and training with a dropout of .1: each encoding and SDPA without one."""
    size = SIZES[length]
    inputs, rows = make_inputs(size, args.device, args.dtype), []
    for name in DROPPED:
        encoding = None if name == 'none' else make_encoding(name, size).to(
            args.device, args.dtype)
        grid = None if encoding is None else (size.height, size.width)
        runs: dict[str, Attention] = {
            'SDPA': lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1),
            'ours': lambda q, k, v, e=encoding, g=grid: attend(q, k, v, e, g, dropout_p=0.1)[0]}
        rows.append((name, both(runs, inputs, encoding)))
    return rows


def dropout(args: argparse.Namespace) -> None:
    """Training with dropout of the weights, as every DETR recipe has it, as a multiple of SDPA
    without an encoding and with the same dropout."""
    print('| encoding, dropout .1 | L | training | memory, MiB | SDPA\'s, MiB |')
    print('|---|---|---|---|---|')
    memory = in_fresh_process(args, 'dropout')
    for length in args.rows or (197, 1050, 4200):
        for name, kinds in dropout_calls(length, args):
            repeats = max(3, args.repeats // 2) if length > 4000 else args.repeats
            ratio = paired_ratios(kinds[1], 'SDPA', repeats)['ours']
            ours, sdpa = (each / 2 ** 20 for each in memory.pop(0))
            print(f'| {name} | {length} | {ratio:.2f} | {ours:.0f} | {sdpa:.0f} |', flush=True)


def dropout_memory(args: argparse.Namespace) -> list[list[int]]:
    """Peak memory of training, for each row of the table 'dropout'."""
    return [[peak_memory(kinds[1][run]) for run in ('ours', 'SDPA')]
            for length in args.rows or (197, 1050, 4200)
            for _, kinds in dropout_calls(length, args)]


def plain(args: argparse.Namespace) -> None:
    """Attention without an encoding, as it is chosen and in pieces, as a multiple of SDPA: where
    limits.PLAIN_PIECES_FROM is. Queries x keys of PVT at 800x1344 (the first two stages with a
    fourth of the queries) and 224, of DeiT and of DETR."""
    print('| images x heads x queries x keys x channels | dtype | chosen | pieces |')
    print('|---|---|---|---|')
    for batch, heads, len_q, len_k, dims in (
            (8, 6, 197, 197, 64), (2, 6, 577, 577, 64), (1, 8, 1050, 1050, 32),
            (1, 8, 4200, 4200, 32), (1, 1, 16800, 1050, 64), (1, 2, 4200, 1050, 64),
            (1, 5, 4200, 1050, 64), (1, 8, 1050, 1050, 64), (8, 1, 3136, 49, 64)):
        for dtype in (torch.float32, torch.bfloat16):
            q, k, v = (torch.randn(batch, length, heads, dims, dtype=dtype).transpose(1, 2)
                       .requires_grad_() for length in (len_q, len_k, len_k))
            inputs = Inputs(q, k, v, torch.randn_like(q))
            runs: dict[str, Attention] = {
                'SDPA': F.scaled_dot_product_attention, 'chosen': lambda *x: attend(*x)[0],
                'pieces': lambda *x: attend(*x, form='pieces')[0]}
            ratios = [paired_ratios(kind, 'SDPA', args.repeats)
                      for kind in both(runs, inputs, None)]
            cells = [' / '.join(f'{each[name]:.2f}' for each in ratios)
                     for name in ('chosen', 'pieces')]
            print(f'| {batch} x {heads} x {len_q} x {len_k} x {dims} | '
                  f'{str(dtype).removeprefix("torch.")} | {" | ".join(cells)} |', flush=True)


def small(args: argparse.Namespace) -> None:
    """Pieces as a multiple of the definition on small grids: where limits.DEFINITION_BYTES is."""
    print('| encoding | images x heads x tokens | logits, KiB | forward | training |')
    print('|---|---|---|---|---|')
    for name in ('IRPE product k', 'RelativePositionBias', 'SASARPE'):
        for batch, height, width in ((1, 2, 3), (1, 4, 5), (1, 7, 7), (2, 7, 7), (8, 7, 7),
                                     (1, 10, 10), (1, 14, 14), (4, 14, 14)):
            size = Size(batch, 4, height, width, 32, 0)
            inputs, encoding = make_inputs(size, args.device, args.dtype), make_encoding(name, size)
            runs: dict[str, Attention] = {
                form: lambda q, k, v, f=form, e=encoding, s=size: attend(
                    q, k, v, e, (s.height, s.width), form=f)[0]
                for form in ('definition', 'pieces')}
            ratios = [paired_ratios(kind, 'definition', 4 * args.repeats)['pieces']
                      for kind in both(runs, inputs, encoding)]
            kib = batch * 4 * size.length ** 2 * 4 / 1024
            print(f'| {name} | {batch} x 4 x {size.length} | {kib:.0f} | {ratios[0]:.2f} | '
                  f'{ratios[1]:.2f} |', flush=True)
