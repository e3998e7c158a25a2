"""Relative encodings against attention without one; tables of relative.py."""
from __future__ import annotations

import argparse
import math

import torch
import torch.nn.functional as F
from measure import Run, header, paired_times, peak_memory, row, seconds
from relative_inputs import (
    Attention,
    Inputs,
    Size,
    both,
    chosen,
    examples,
    explicit,
    in_fresh_process,
    make_encoding,
    make_inputs,
    ours,
)

from mmposenc.encodings import RelativeEncoding


def cost_rows(size: Size, args: argparse.Namespace
              ) -> list[tuple[str, Attention, RelativeEncoding | None]]:
    """Attention without an encoding, then with each."""
    rows: list[tuple[str, Attention, RelativeEncoding | None]] = [
        ('none, SDPA', F.scaled_dot_product_attention, None), ('none, explicit', explicit, None)]
    for name in examples.RELATIVE:
        if not args.only or any(part in name for part in args.only):
            encoding = make_encoding(name, size, args)
            rows.append((name, ours(encoding, size), encoding))
    return rows


def cost(args: argparse.Namespace) -> None:
    """Every encoding as a multiple of SDPA without one."""
    memory = in_fresh_process(args)
    print(header(args))
    print('| encoding | L | forward | training | memory forward, MiB | memory training, MiB |')
    print('|---|---|---|---|---|---|')
    for length, size in chosen(args).items():
        inputs = make_inputs(size, args)
        repeats = max(2, args.repeats // 2) if length > 4000 else args.repeats
        for name, run, encoding in cost_rows(size, args):
            with row(name, length):
                pair = both({'SDPA': F.scaled_dot_product_attention, 'ours': run}, inputs,
                            encoding)
                times = [paired_times(kind, repeats, args.device)['ours'].ratio for kind in pair]
                peaks = [each / 2**20 for each in memory.pop(0)]
                print(f'| {name} | {length} | {times[0]:.2f} | {times[1]:.2f} | {peaks[0]:.0f} | '
                      f'{peaks[1]:.0f} |', flush=True)


def cost_memory(args: argparse.Namespace) -> list[list[float]]:
    """Peak memory of inference and training, for each row of the table 'cost'."""
    peaks = []
    for size in chosen(args).values():
        inputs = make_inputs(size, args)
        for _, run, encoding in cost_rows(size, args):
            peaks.append([peak_memory(kind['ours'], args.device)
                          for kind in both({'ours': run}, inputs, encoding)])
    return peaks


def growth(args: argparse.Namespace) -> None:
    """Exponent b of time ~ L ** b at a width of 42 cells, between 12 and 50 rows."""
    heights = (2, 3, 4) if args.tiny else (12, 25, 50)
    print(header(args))
    print('| encoding | ' + ' | '.join(f'{h} x 42, ms' for h in heights) + ' | exponent |')
    print('|---|---|---|---|---|')
    plain = {'none, SDPA': F.scaled_dot_product_attention, 'none, explicit': explicit}
    for name in (*plain, 'IRPE product k', 'IRPE cross k', 'IRPE product qkv',
                 'IRPE product bias'):
        for kind in (0, 1):
            with row(name):
                times = []
                for height in heights:
                    size = Size(args.batch or 1, 8, height, 42, 32, 0)
                    encoding = None if name in plain else make_encoding(name, size, args)
                    run = plain[name] if name in plain else ours(encoding, size)
                    calls = both({'run': run}, make_inputs(size, args), encoding)[kind]
                    times.append(seconds(calls['run'], args.repeats, args.device))
                exponent = math.log(times[-1] / times[0]) / math.log(heights[-1] / heights[0])
                cells = ' | '.join(f'{each * 1e3:.1f}' for each in times)
                print(f"| {name}, {('forward', 'training')[kind]} | {cells} | {exponent:.2f} |",
                      flush=True)


#: Rows of the table 'dropout'.
DROPPED = ('none', 'IRPE product k', 'IRPE product qkv', 'RelativePositionBias',
           'CombinedRPE of two')


def dropout_calls(size: Size, args: argparse.Namespace
                  ) -> list[tuple[str, dict[str, Run]]]:
    """Training with a dropout of .1: each encoding, and SDPA without one."""
    inputs, rows = make_inputs(size, args), []
    for name in DROPPED:
        encoding = None if name == 'none' else make_encoding(name, size, args)
        runs: dict[str, Attention] = {
            'SDPA': lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1),
            'ours': ours(encoding, size, dropout_p=0.1)}
        rows.append((name, both(runs, inputs, encoding)[1]))
    return rows


def dropout_sizes(args: argparse.Namespace) -> dict[int, Size]:
    return {length: size for length, size in chosen(args).items() if args.rows or length != 577}


def dropout(args: argparse.Namespace) -> None:
    """Training with dropout of the weights, as every DETR recipe has it, as a multiple of SDPA
    without an encoding and with the same dropout."""
    memory = in_fresh_process(args)
    print(header(args))
    print('| encoding, dropout .1 | L | training | memory, MiB | SDPA\'s, MiB |')
    print('|---|---|---|---|---|')
    for length, size in dropout_sizes(args).items():
        for name, runs in dropout_calls(size, args):
            with row(name, length):
                repeats = max(3, args.repeats // 2) if length > 4000 else args.repeats
                ratio = paired_times(runs, repeats, args.device)['ours'].ratio
                own, sdpa = (each / 2 ** 20 for each in memory.pop(0))
                print(f'| {name} | {length} | {ratio:.2f} | {own:.0f} | {sdpa:.0f} |', flush=True)


def dropout_memory(args: argparse.Namespace) -> list[list[float]]:
    """Peak memory of training, for each row of the table 'dropout'."""
    return [[peak_memory(runs[run], args.device) for run in ('ours', 'SDPA')]
            for size in dropout_sizes(args).values() for _, runs in dropout_calls(size, args)]


#: Images x heads x queries x keys x channels: PVT at 800x1344 (the first two stages with a fourth
#: of the queries) and 224, DeiT, DETR.
PLAIN = ((8, 6, 197, 197, 64), (2, 6, 577, 577, 64), (1, 8, 1050, 1050, 32),
         (1, 8, 4200, 4200, 32), (1, 1, 16800, 1050, 64), (1, 2, 4200, 1050, 64),
         (1, 5, 4200, 1050, 64), (1, 8, 1050, 1050, 64), (8, 1, 3136, 49, 64))


def plain(args: argparse.Namespace) -> None:
    """Attention without an encoding, as it is chosen and in pieces, as a multiple of SDPA: where
    limits.PLAIN_PIECES_FROM is; on a CPU in bfloat16 too."""
    print(header(args))
    print('| images x heads x queries x keys x channels | dtype | chosen | pieces |')
    print('|---|---|---|---|')
    for shape in ((1, 2, 9, 7, 8),) if args.tiny else PLAIN:
        batch, heads, len_q, len_k, dims = shape
        for dtype in dict.fromkeys((args.dtype, *(['bfloat16'] if args.device == 'cpu' else []))):
            with row(*shape, dtype):
                q, k, v = (torch.randn(batch, length, heads, dims, device=args.device,
                                       dtype=getattr(torch, dtype)).transpose(1, 2)
                           .requires_grad_() for length in (len_q, len_k, len_k))
                size = Size(batch, heads, 1, len_q, dims, 0)
                runs: dict[str, Attention] = {'SDPA': F.scaled_dot_product_attention,
                                              'chosen': ours(None, size),
                                              'pieces': ours(None, size, 'pieces')}
                times = [paired_times(kind, args.repeats, args.device)
                         for kind in both(runs, Inputs(q, k, v, torch.randn_like(q)), None)]
                cells = [' / '.join(f'{each[name].ratio:.2f}' for each in times)
                         for name in ('chosen', 'pieces')]
                print(f'| {" x ".join(map(str, shape))} | {dtype} | {" | ".join(cells)} |',
                      flush=True)


def small(args: argparse.Namespace) -> None:
    """Pieces as a multiple of the definition on small grids: where limits.DEFINITION_BYTES is."""
    print(header(args))
    print('| encoding | images x heads x tokens | logits, KiB | forward | training |')
    print('|---|---|---|---|---|')
    grids = ((1, 2, 3), (1, 4, 5), (1, 7, 7), (2, 7, 7), (8, 7, 7), (1, 10, 10), (1, 14, 14),
             (4, 14, 14))
    for name in ('IRPE product k', 'RelativePositionBias', 'SASARPE'):
        for batch, height, width in grids[:1] if args.tiny else grids:
            size = Size(batch, 4, height, width, 32, 0)
            with row(name, f'{batch} x 4 x {size.length}'):
                inputs, encoding = make_inputs(size, args), make_encoding(name, size, args)
                runs = {form: ours(encoding, size, form) for form in ('definition', 'pieces')}
                ratios = [paired_times(kind, 4 * args.repeats, args.device)['pieces'].ratio
                          for kind in both(runs, inputs, encoding)]
                kib = batch * 4 * size.length ** 2 * inputs.q.element_size() / 1024
                print(f'| {name} | {batch} x 4 x {size.length} | {kib:.0f} | {ratios[0]:.2f} | '
                      f'{ratios[1]:.2f} |', flush=True)
