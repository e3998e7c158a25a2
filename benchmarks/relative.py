"""Relative encodings inside attention: time and peak memory against the released formulation, and
against attention without an encoding.

    python benchmarks/relative.py targets            # iRPE against the release's formulation
    python benchmarks/relative.py cost               # every encoding against none, four sizes
    python benchmarks/relative.py growth             # exponent of the time in L
    python benchmarks/relative.py buckets            # bucket ids
    python benchmarks/relative.py forms              # on a GPU, see relative_forms.py
    options: --rows 1050 --repeats 7 --threads 1 --device cpu|cuda --dtype float32|bfloat16

Everything is measured in one process in turn (A, B, A, B, ...); a number is the median over the
rounds of the ratio within a round (CPU time); memory is the highest resident set above that before
the call, in a process of its own. 'forward' is inference (no_grad), 'training' forward and
backward. What is timed lies between the two projections of an attention: q, k, v (B, heads, L,
head_dims) to the output.

The reference is written from the paper the way the release computes it: the look-up of a table is
read with a flattened index; for values, a (heads, L, L, head_dims) weight is gathered.
"""
from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from measure import paired_ratios, paired_times, peak_memory
from relative_forms import all_forms, check
from torch import Tensor

from mmposenc.attention import attend
from mmposenc.encodings import IRPE, RelativeEncoding, build_encoding
from mmposenc.functional import bucket_ids

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


class Size(NamedTuple):
    """Batch, heads, grid, head_dims and prefix tokens."""

    batch: int
    heads: int
    height: int
    width: int
    dims: int
    prefix: int

    @property
    def length(self) -> int:
        return self.prefix + self.height * self.width


#: DeiT-S at 224 and 384; DETR at 800 x 1333 (strides 32 and 16).
SIZES = {
    197: Size(8, 6, 14, 14, 64, 1),
    577: Size(2, 6, 24, 24, 64, 1),
    1050: Size(1, 8, 25, 42, 32, 0),
    4200: Size(1, 8, 50, 84, 32, 0),
}

#: Encodings of the table 'cost': name and config. Add a line for a new one.
ENCODINGS: dict[str, dict] = {
    'iRPE product k': dict(type='IRPE', rpe_on='k'),
    'iRPE product qk': dict(type='IRPE', rpe_on='qk'),
    'iRPE product qkv': dict(type='IRPE', rpe_on='qkv'),
    'iRPE cross k': dict(type='IRPE', method='cross', rpe_on='k'),
    'iRPE cross qkv': dict(type='IRPE', method='cross', rpe_on='qkv'),
    'iRPE euclidean k': dict(type='IRPE', method='euclidean', rpe_on='k'),
    'iRPE quantization k': dict(type='IRPE', method='quantization', rpe_on='k'),
    'iRPE product bias': dict(type='IRPE', mode='bias', rpe_on='k', shared_heads=False),
    'Swin table': dict(type='RelativePositionBias'),
    'log-spaced CPB': dict(type='LogSpacedCPB'),
    'Shaw': dict(type='ShawRPE'),
    'Shaw + values': dict(type='ShawRPE', on_values=True),
    'Transformer-XL': dict(type='TransformerXLRPE'),
    'Huang': dict(type='HuangRPE'),
    'SASA': dict(type='SASARPE'),
    'query absolute 1-D': dict(type='QueryAbsolute1D'),
    'query relative 1-D': dict(type='QueryRelative1D'),
    'query relative 2-D': dict(type='QueryRelative2D'),
    'rotary axial': dict(type='RotaryEmbedding2D'),
    'rotary mixed': dict(type='RotaryEmbedding2D', mode='mixed'),
}


class Inputs(NamedTuple):
    """q, k, v and the gradient of the output."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor


def make_inputs(size: Size, device: str, dtype: torch.dtype) -> Inputs:
    torch.manual_seed(0)
    shape = (size.batch, size.heads, size.length, size.dims)
    q, k, v = (torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
               for _ in range(3))
    return Inputs(q, k, v, torch.randn(shape, device=device, dtype=dtype))


def explicit(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention without encoding, as releases write it."""
    return ((q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)).softmax(-1) @ v


def release_term(x: Tensor, table: Tensor, index: Tensor) -> Tensor:
    """Look-up of a contextual table, read with a flattened index of (query, bucket)."""
    batch, heads, length, dims = x.shape
    lookup = torch.matmul(x.transpose(0, 1).reshape(-1, batch * length, dims), table)
    lookup = lookup.view(heads, batch, length, -1).transpose(0, 1)
    return lookup.flatten(2)[:, :, index].view(batch, heads, length, -1)


def reference(encoding: IRPE, size: Size, device: str) -> Attention:
    """Attention with iRPE in the released formulation; index tensors are made beforehand."""
    ids = encoding.bucket_ids((size.height, size.width), device=device)
    buckets = encoding.num_buckets + (size.prefix > 0)
    first = torch.arange(size.length, device=device)[:, None] * buckets
    flat, index = [each.flatten() for each in ids], [(each + first).flatten() for each in ids]
    square = (size.length, size.length)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scale = size.dims ** -0.5
        q = q * scale
        attn = q @ k.transpose(-2, -1)
        for side in 'kq':
            if side not in encoding.rpe_on:
                continue
            for table, where, each in zip(encoding.tables(side), index, flat, strict=True):
                if encoding.mode == 'bias':
                    term = table[:, each].view(1, -1, *square)
                else:
                    term = release_term(q if side == 'k' else k * scale, table, where)
                attn = attn + (term if side == 'k' else term.transpose(-2, -1))
        attn = attn.softmax(-1)
        out = attn @ v
        if 'v' in encoding.rpe_on:
            for table, each in zip(encoding.tables('v'), flat, strict=True):
                weight = table[:, each].view(-1, *square, size.dims)
                out = out + (attn.permute(1, 2, 0, 3) @ weight).permute(2, 0, 1, 3)
        return out
    return run


def inference(run: Attention, inputs: Inputs) -> Callable[[], None]:
    def call() -> None:
        with torch.no_grad():
            run(*inputs[:3])
    return call


def training(run: Attention, inputs: Inputs, leaves: list[Tensor]) -> Callable[[], None]:
    def call() -> None:
        torch.autograd.grad(run(*inputs[:3]), [*inputs[:3], *leaves], inputs.grad,
                            allow_unused=True)
    return call


def both(runs: dict[str, Attention], inputs: Inputs, encoding: RelativeEncoding | None
         ) -> list[dict[str, Callable[[], None]]]:
    """Inference and training calls; what has no encoding has no parameters either."""
    tables = [] if encoding is None else list(encoding.parameters())
    return [{name: inference(run, inputs) for name, run in runs.items()},
            {name: training(run, inputs, [] if name in ('explicit', 'SDPA') else tables)
             for name, run in runs.items()}]


#: Rows of the table 'targets': size, arguments of IRPE, and the ratios asked for (forward,
#: training, peak memory) against the reference.
TARGETS: list[tuple[int, dict, tuple[float, float, float]]] = [
    (1050, dict(rpe_on='k'), (.30, .50, .10)),
    (4200, dict(rpe_on='k'), (.30, .50, .10)),
    (1050, dict(rpe_on='qkv'), (.08, .10, .03)),
    (197, dict(rpe_on='k'), (.60, .70, .60)),
    (197, dict(rpe_on='qkv'), (.30, .35, .20)),
    (1050, dict(method='cross', rpe_on='k'), (.28, .50, .05)),
    (1050, dict(method='cross', rpe_on='qkv'), (.04, .06, .05)),
    (1050, dict(method='euclidean', rpe_on='k'), (.35, .55, .12)),
    (1050, dict(method='quantization', rpe_on='k'), (.35, .55, .12)),
    (1050, dict(mode='bias', rpe_on='k'), (.31, .75, .25)),
    (1050, dict(mode='bias', rpe_on='k', shared_heads=False), (.31, .75, .25)),
]


def random_tables(encoding: RelativeEncoding) -> None:
    for table in encoding.parameters():
        torch.nn.init.normal_(table, std=0.02)


def target_calls(length: int, options: dict, args: argparse.Namespace
                 ) -> list[dict[str, Callable[[], None]]]:
    """Inference and training calls of one row of TARGETS, after checking that they agree."""
    size = SIZES[length]
    encoding = IRPE(size.dims, size.heads, num_prefix_tokens=size.prefix, **options)
    random_tables(encoding)
    encoding.to(args.device, args.dtype)
    inputs = make_inputs(size, args.device, args.dtype)

    def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, encoding, (size.height, size.width), form=args.form)[0]

    runs: dict[str, Attention] = {
        'reference': reference(encoding, size, args.device), 'ours': ours,
        'explicit': explicit, 'SDPA': F.scaled_dot_product_attention}
    atol = 2e-5 if args.dtype == torch.float32 else 2e-2
    with torch.no_grad():
        torch.testing.assert_close(ours(*inputs[:3]), runs['reference'](*inputs[:3]), atol=atol,
                                   rtol=1e-2)
    return both(runs, inputs, encoding)


def targets(args: argparse.Namespace) -> None:
    """iRPE against the reference, explicit attention and SDPA without an encoding."""
    rows = [row for row in TARGETS if not args.rows or row[0] in args.rows]
    times = []
    for length, options, _ in rows:
        calls = target_calls(length, options, args)
        repeats = min(args.repeats, 5) if 'v' in options['rpe_on'] else args.repeats
        times.append([paired_ratios(kind, 'reference', repeats) for kind in calls])
    print('| case | forward | asked | training | asked | memory forward | memory training | asked |'
          ' explicit, no encoding | SDPA, no encoding |')
    print('|---|---|---|---|---|---|---|---|---|---|')
    memory = in_fresh_process(args, 'targets')
    for index, ((length, options, asked), (forward, backward)) in enumerate(
            zip(rows, times, strict=True)):
        ratios = [f"{p['ours'] / p['reference']:.3f} ({p['ours'] / 2**20:.0f} of "
                  f"{p['reference'] / 2**20:.0f} MiB)" for p in memory[index]]
        print(f"| {target_name(length, options)} | {forward['ours']:.3f} | {asked[0]} | "
              f"{backward['ours']:.3f} | {asked[1]} | {ratios[0]} | {ratios[1]} | {asked[2]} | "
              + ' | '.join(f'{forward[n]:.2f} / {backward[n]:.2f}' for n in ('explicit', 'SDPA'))
              + ' |', flush=True)


def target_memory(args: argparse.Namespace) -> list[list[dict[str, int]]]:
    """Peak memory of inference and training, for each row of the table 'targets'."""
    return [[{run: peak_memory(kind[run]) for run in ('reference', 'ours')}
             for kind in target_calls(length, options, args)]
            for length, options, _ in TARGETS if not args.rows or length in args.rows]


def in_fresh_process(args: argparse.Namespace, table: str) -> list:
    """Peak memory, measured where no earlier call has left freed memory behind."""
    command = [sys.executable, __file__, table, '--memory', '--threads', str(args.threads),
               '--device', args.device, '--dtype', str(args.dtype).removeprefix('torch.'),
               '--form', args.form]
    for name in ('rows', 'only'):
        if getattr(args, name):
            command += [f'--{name}', *map(str, getattr(args, name))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def target_name(length: int, options: dict) -> str:
    method, mode = options.get('method', 'product'), options.get('mode', 'contextual')
    heads = '' if options.get('shared_heads', True) else ', per head'
    return f"{mode} {method} {options['rpe_on']}{heads}, L={length}"


def make_encoding(cfg: dict, size: Size) -> RelativeEncoding:
    encoding = build_encoding(
        dict(cfg), RelativeEncoding, 'encoding', head_dims=size.dims, num_heads=size.heads,
        num_prefix_tokens=size.prefix, window_size=(size.height, size.width),
        max_size=(size.height, size.width), max_tokens=size.length)
    random_tables(encoding)
    return encoding


def cost_rows(length: int, args: argparse.Namespace
              ) -> list[tuple[str, Attention, RelativeEncoding | None]]:
    """Attention without an encoding, then with each."""
    size = SIZES[length]
    rows: list[tuple[str, Attention, RelativeEncoding | None]] = [
        ('none, SDPA', F.scaled_dot_product_attention, None), ('none, explicit', explicit, None)]
    for name, cfg in ENCODINGS.items():
        if args.only and not any(part in name for part in args.only):
            continue
        encoding = make_encoding(cfg, size).to(args.device, args.dtype)
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
    chosen = ['iRPE product k', 'iRPE cross k', 'iRPE product qkv', 'iRPE product bias']
    for name in ('none, SDPA', 'none, explicit', *chosen):
        for kind in (0, 1):
            times = []
            for height in (12, 25, 50):
                size = Size(1, 8, height, 42, 32, 0)
                inputs = make_inputs(size, args.device, args.dtype)
                encoding = None if name not in ENCODINGS else make_encoding(ENCODINGS[name], size)
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


def release_ids(height: int, width: int, beta: int = 3) -> Tensor:
    """Product ids the way the release gets them: g of every pair of cells, twice."""
    rows, cols = torch.meshgrid(torch.arange(height), torch.arange(width), indexing='ij')
    cells = torch.stack([rows.flatten(), cols.flatten()], -1)
    offsets = cells[:, None] - cells[None]
    ids = []
    for axis in range(2):
        x = offsets[..., axis]
        near = x.abs() <= 1.9
        out = x.clone()
        far = x[~near]
        out[~near] = (far.sign() * (1.9 + torch.log(far.abs() / 1.9) / math.log(8) * 1.9
                                    ).round().clip(max=3.8)).long()
        ids.append(out + beta)
    return ids[0] * (2 * beta + 1) + ids[1]


def buckets(args: argparse.Namespace) -> None:
    """Bucket ids, and the row patterns that attention uses instead, which are kept (under 1 MiB)
    when grids take turns. Beside them the time to copy as many numbers: ids can't be faster."""
    full = bucket_ids('product', (25, 42), ratio=1.9)
    assert torch.equal(release_ids(25, 42), full)
    shapes = {'25x42': [(25, 42)], '25x42 and 42x25 in turn': [(25, 42), (42, 25)]}
    print('| grids | reference, ms | row patterns, ms | ratio | (L, L) ids, ms | ratio | copy of '
          'them, ms | ratio |')
    print('|---|---|---|---|---|---|---|---|')
    for name, grids in shapes.items():
        plan = IRPE(32, 8)
        from mmposenc.functional.row_patterns import row_patterns

        from mmposenc.functional.grids import Grid
        times = paired_times({
            'reference': lambda g=grids: [release_ids(*each) for each in g],
            'ids': lambda g=grids: [bucket_ids('product', each, ratio=1.9) for each in g],
            'copy': lambda g=grids: [full.clone() for _ in g],
            'patterns': lambda g=grids, p=plan: [row_patterns(
                'product', Grid(*each), Grid(*each), p.params, torch.float32,
                torch.device('cpu')) for each in g]}, args.repeats)
        ms = {key: value * 1e3 / len(grids) for key, value in times.items()}
        cells = ' | '.join(f"{ms[key]:.2f} | {ms[key] / ms['reference']:.4f}"
                           for key in ('patterns', 'ids', 'copy'))
        print(f"| {name} | {ms['reference']:.1f} | {cells} |", flush=True)


def forms(args: argparse.Namespace) -> None:
    """Forms of contextual iRPE against SDPA without an encoding, for a GPU."""
    sizes = [Size(1, 2, 3, 4, 16, 1)] if args.smoke else [
        SIZES[length] for length in SIZES if not args.rows or length in args.rows]
    print('| encoding | form | L | forward, ms | training, ms | memory forward, MiB | memory '
          'training, MiB | differs from the release by |')
    print('|---|---|---|---|---|---|---|---|')
    for size in sizes:
        for method, rpe_on in (('product', 'k'), ('euclidean', 'k'), ('cross', 'k'),
                               ('product', 'qkv')):
            encoding = IRPE(size.dims, size.heads, method, rpe_on=rpe_on,
                            num_prefix_tokens=size.prefix)
            random_tables(encoding)
            encoding.to(args.device, args.dtype)
            inputs = make_inputs(size, args.device, args.dtype)
            runs = all_forms(encoding, (size.height, size.width), args.device, not args.smoke,
                             reference(encoding, size, args.device))
            differs = check(runs, *inputs[:3])
            for name, run in runs.items():
                tables = [] if name.startswith('none') else list(encoding.parameters())
                kinds = [inference(run, inputs)]
                if not (args.smoke and name.startswith('Flex')):  # no backward without compiling
                    kinds.append(training(run, inputs, tables))
                ms = [f'{paired_times({name: kind}, args.repeats)[name] * 1e3:.2f}'
                      for kind in kinds]
                peaks = [f'{peak_memory(kind) / 2**20:.0f}' for kind in kinds]
                missing = ['-'] * (2 - len(kinds))
                cells = [*ms, *missing, *peaks, *missing, f'{differs.get(name, 0.0):.0e}']
                print(f'| {method} {rpe_on} | {name} | {size.length} | {" | ".join(cells)} |',
                      flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = dict(targets=targets, cost=cost, growth=growth, buckets=buckets, forms=forms)
    parser.add_argument('table', choices=tables)
    parser.add_argument('--rows', type=int, nargs='*', choices=list(SIZES))
    parser.add_argument('--only', nargs='*', help='parts of the names of encodings, for cost')
    parser.add_argument('--form', default='auto', help='form of the attention, for targets')
    parser.add_argument('--repeats', type=int, default=7)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--dtype', default='float32')
    parser.add_argument('--smoke', action='store_true', help='forms: small, and not compiled')
    parser.add_argument('--memory', action='store_true', help='print peak memory as json')
    args = parser.parse_args()
    args.dtype = getattr(torch, args.dtype)
    torch.set_num_threads(args.threads)
    if args.memory:
        peaks = dict(targets=target_memory, cost=cost_memory)
        print(json.dumps(peaks[args.table](args)))
    else:
        tables[args.table](args)


if __name__ == '__main__':
    main()
