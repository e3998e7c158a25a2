"""Relative encodings inside attention: time and peak memory against the released formulation, and
against attention without an encoding.

    python benchmarks/relative.py targets            # iRPE against the release's formulation
    python benchmarks/relative.py implementations   # every encoding in each of them
    python benchmarks/relative.py slower             # where 'auto' does not take the fastest
    python benchmarks/relative.py cost --rows 197 1050 > docs/tables/encoding-cost.csv
    options: --rows 1050 --only IRPE --repeats 7 --threads 1 --device cpu|cuda
             --dtype float32|bfloat16|float16

Everything is measured in one process in turn (A, B, A, B, ...); a number is the median over the
rounds of the ratio within a round. 'forward' is inference (no_grad), 'training' forward and
backward. What is timed lies between the two projections of an attention: q, k, v (B, heads, L,
head_dims) to the output.

targets: the reference is written from the paper the way the release computes it: the look-up of a
table is read with a flattened index; for values, a (heads, L, L, head_dims) weight is gathered.

implementations: times are multiples of scaled_dot_product_attention without an encoding; 'differs'
is the largest difference from the reference over the largest output. An implementation that cannot
run, or that gives something else, is a row that says so.

slower: the rows, of attention without an encoding too, where 'auto' twice takes over 5% more time
than the best of the others.

cost: every encoding in turn with attention without one and with iRPE on keys. A token encoding is
called once before attention, on the tokens of all heads (ConvMLP on a hidden layer four times as
wide).
"""
from __future__ import annotations

import argparse
import csv
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from measure import (
    Failed,
    Paired,
    Run,
    add_arguments,
    difference,
    header,
    kinds,
    paired_times,
    parse,
    peak_memory,
    row,
)
from torch import Tensor

from mmposenc.attention import attend
from mmposenc.attention.fast import thresholds
from mmposenc.encodings import IRPE, RelativeEncoding
from mmposenc.functional import Grid

sys.path.insert(0, str(Path(__file__).parent.parent / 'tests' / 'encodings'))
import examples  # noqa: E402

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


class Size(NamedTuple):
    """Batch, heads, grid, head_dims, prefix tokens and the grid of the keys where it is another."""

    batch: int
    heads: int
    height: int
    width: int
    dims: int
    prefix: int
    key: Grid | None = None

    @property
    def length(self) -> int:
        return self.prefix + self.height * self.width

    @property
    def key_length(self) -> int:
        return self.length if self.key is None else self.key.num_cells


#: DeiT-S at 224 and 384; DETR at 800 x 1333 (strides 32 and 16).
SIZES = {
    197: Size(8, 6, 14, 14, 64, 1),
    577: Size(2, 6, 24, 24, 64, 1),
    1050: Size(1, 8, 25, 42, 32, 0),
    4200: Size(1, 8, 50, 84, 32, 0),
}
TINY = {13: Size(1, 2, 3, 4, 16, 1)}


def chosen(args: argparse.Namespace, sizes: dict[int, Size] = SIZES) -> dict[int, Size]:
    """The sizes of a table."""
    sizes = TINY if args.tiny else {length: size for length, size in sizes.items()
                                    if not args.rows or length in args.rows}
    return {length: size._replace(batch=args.batch or size.batch)
            for length, size in sizes.items()}


def names_to_measure(names: Sequence[str], args: argparse.Namespace) -> list[str]:
    """All names, or those that contain one of ``--only``."""
    return [name for name in names
            if not args.only or any(part in name for part in args.only)]


class Inputs(NamedTuple):
    """q, k, v and the gradient of the output."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor


def make_inputs(size: Size, args: argparse.Namespace) -> Inputs:
    torch.manual_seed(0)
    q, k, v = (torch.randn(size.batch, size.heads, length, size.dims, device=args.device,
                           dtype=getattr(torch, args.dtype), requires_grad=True)
               for length in (size.length, size.key_length, size.key_length))
    return Inputs(q, k, v, torch.randn_like(q))


def ours(encoding: RelativeEncoding | None, size: Size, how: str = 'auto') -> Attention:
    """This project's attention."""
    grids = () if encoding is None else ((size.height, size.width), size.key)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, encoding, *grids, implementation=how,
                      tokens=q.transpose(1, 2).flatten(2))[0]
    return run


def explicit(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention without encoding, as releases write it."""
    return ((q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)).softmax(-1) @ v


def both(runs: dict[str, Attention], inputs: Inputs, encoding: RelativeEncoding | None
         ) -> list[dict[str, Run]]:
    """Inference and training calls; what has no encoding has no parameters either."""
    leaves = [*inputs[:3], *([] if encoding is None else encoding.parameters())]
    return list(kinds({name: lambda run=run: run(*inputs[:3]) for name, run in runs.items()},
                      leaves, inputs.grad).values())


def random_tables(encoding: RelativeEncoding) -> None:
    for table in encoding.parameters():
        torch.nn.init.normal_(table, std=0.02)


def make_encoding(name: str, size: Size, args: argparse.Namespace) -> RelativeEncoding:
    """An encoding of tests/encodings/examples.py at its papers' sizes, with random tables."""
    encoding = examples.relative(name, (size.height, size.width), head_dims=size.dims,
                                 num_heads=size.heads, num_prefix_tokens=size.prefix,
                                 full_size=True)
    random_tables(encoding)
    return encoding.to(args.device, getattr(torch, args.dtype))


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
            for table, where, each in zip(encoding.tables_of_side(side), index, flat, strict=True):
                if encoding.mode == 'bias':
                    term = table[:, each].view(1, -1, *square)
                else:
                    term = release_term(q if side == 'k' else k * scale, table, where)
                attn = attn + (term if side == 'k' else term.transpose(-2, -1))
        attn = attn.softmax(-1)
        out = attn @ v
        if 'v' in encoding.rpe_on:
            for table, each in zip(encoding.tables_of_side('v'), flat, strict=True):
                weight = table[:, each].view(-1, *square, size.dims)
                out = out + (attn.permute(1, 2, 0, 3) @ weight).permute(2, 0, 1, 3)
        return out
    return run


#: Rows of the table 'targets': tokens, and arguments of IRPE.
TARGETS: list[tuple[int, dict]] = [
    (1050, dict(rpe_on='k')), (4200, dict(rpe_on='k')), (1050, dict(rpe_on='qkv')),
    (197, dict(rpe_on='k')), (197, dict(rpe_on='qkv')),
    (1050, dict(method='cross', rpe_on='k')), (1050, dict(method='cross', rpe_on='qkv')),
    (1050, dict(method='euclidean', rpe_on='k')), (1050, dict(method='quantization', rpe_on='k')),
    (1050, dict(mode='bias', rpe_on='k')),
    (1050, dict(mode='bias', rpe_on='k', shared_heads=False))]


def target_calls(size: Size, options: dict, args: argparse.Namespace) -> list[dict[str, Run]]:
    """Inference and training calls of one row of TARGETS, after checking that they agree."""
    encoding = IRPE(size.dims, size.heads, num_prefix_tokens=size.prefix, **options)
    random_tables(encoding)
    encoding.to(args.device, getattr(torch, args.dtype))
    inputs = make_inputs(size, args)
    runs = {'reference': reference(encoding, size, args.device), 'ours': ours(encoding, size)}
    atol = 2e-5 if args.dtype == 'float32' else 2e-2
    with torch.no_grad():
        torch.testing.assert_close(runs['ours'](*inputs[:3]), runs['reference'](*inputs[:3]),
                                   atol=atol, rtol=1e-2)
    return both(runs, inputs, encoding)


def targets(args: argparse.Namespace) -> None:
    """iRPE against the reference: shares of its time and memory."""
    print(header(args))
    print('| case | forward | training | memory forward | memory training |\n|---|---|---|---|---|')
    sizes = chosen(args)
    for length, options in [(13, each) for _, each in TARGETS[:3]] if args.tiny else TARGETS:
        if length not in sizes:
            continue
        with row(target_name(length, options)):
            repeats = min(args.repeats, 5) if 'v' in options['rpe_on'] else args.repeats
            calls = target_calls(sizes[length], options, args)
            peaks = [[peak_memory(kind[name], args.device) for name in ('ours', 'reference')]
                     for kind in calls]
            cells = [f"{paired_times(kind, repeats, args.device)['ours'].ratio:.3f}"
                     for kind in calls]
            cells += [f'{own / (theirs or 1):.3f} ({own / 2**20:.0f} of {theirs / 2**20:.0f} MiB)'
                      for own, theirs in peaks]
            print(f'| {target_name(length, options)} | {" | ".join(cells)} |', flush=True)


def target_name(length: int, options: dict) -> str:
    method, mode = options.get('method', 'product'), options.get('mode', 'contextual')
    heads = '' if options.get('shared_heads', True) else ', per head'
    return f"{mode} {method} {options['rpe_on']}{heads}, L={length}"


#: Also PVT's first stage at 800x1344, whose keys lie on a grid of eighths.
GRID_SIZES = {**SIZES, 67200: Size(2, 1, 200, 336, 64, 0, Grid(25, 42, 8.0, 8.0))}
#: One of each kind of term; tables on values last.
ENCODING_NAMES = ('IRPE product k', 'IRPE product bias', 'RelativePositionBias', 'SASARPE',
              'IRPE cross k', 'LogSpacedCPB', 'ShawRPE', 'TransformerXLRPE', 'HuangRPE',
              'QueryRelative2D', 'RotaryEmbedding', 'IRPE product qkv')
IMPLEMENTATIONS = ('reference', 'auto', 'chunked', 'sdpa')
#: Most that 'differs' may say.
MOST = {'float32': 1e-4, 'bfloat16': 3e-2, 'float16': 5e-3}


def implementations(args: argparse.Namespace) -> None:
    """All of them against SDPA without an encoding."""
    print(header(args))
    print('| encoding | L | implementation | forward, ms | / SDPA | training, ms | / SDPA | '
          'forward, MiB | training, MiB | differs |\n|---|---|---|---|---|---|---|---|---|---|')
    for length, size in chosen(args, GRID_SIZES).items():
        for name in names_to_measure(ENCODING_NAMES, args):
            with row(name, length):
                measure(name, size, args)


def measure(name: str, size: Size, args: argparse.Namespace) -> None:
    """The rows of one encoding at one size."""
    inputs, encoding = make_inputs(size, args), make_encoding(name, size, args)
    runs = {'SDPA': F.scaled_dot_product_attention,
            **{how: ours(encoding, size, how) for how in IMPLEMENTATIONS}}
    with torch.no_grad():
        expected = runs['reference'](*inputs[:3])
        differs = {how: difference(lambda run=run: run(*inputs[:3]), expected,
                                    MOST[args.dtype])
                   for how, run in runs.items() if how != 'SDPA'}
    right = {how: run for how, run in runs.items()
             if not isinstance(differs.get(how), Failed)}
    cells: dict[str, list[str]] = {how: [] for how in right}
    peaks: dict[str, list[str]] = {how: [] for how in right}
    for kind in both(right, inputs, encoding):
        found: dict[str, Paired] = paired_times(kind, args.repeats, args.device)
        for how, run in kind.items():
            cells[how] += [f'{found[how].seconds * 1e3:.3f}', f'{found[how].ratio:.2f}']
            peaks[how].append(f'{peak_memory(run, args.device) / 2 ** 20:.0f}')
    for how in runs:
        values = [*cells[how], *peaks[how]] if how in right else ['-'] * 6
        print(f'| {name} | {size.length} | {how} | {" | ".join(values)} | '
              + ('none' if how == 'SDPA' else f'{differs[how]:.0e}') + ' |', flush=True)


#: Ends of the names of examples that have no row in 'cost': they are like a row that is there.
ALIKE = ('sequence', 'per head', 'resized', 'geometric', 'stretched', 'of cells', 'of DINOv3',
         'of EVA-02', 'of masks', 'of convolutions', 'CombinedRPE', '90', '45', ' q', ' v')
#: Runs of inference and of training by name: attention without an encoding, with iRPE on keys, and
#: what is measured.
Trio = list[dict[str, Run]]


#: What 'slower' compares, where it looks (also windows of Swin-T's third stage at 800x1344), and
#: from which ratio on a row is printed.
COMPARED, MOST_SLOWER = ('auto', 'reference', 'chunked', 'sdpa'), 1.05
SLOWER_SIZES = {49: Size(96, 12, 7, 7, 32, 0), **SIZES}


def slower(args: argparse.Namespace) -> None:
    """Where 'auto' is not the fastest."""
    print(header(args))
    print('| encoding | L | pass | fastest | auto / fastest |\n|---|---|---|---|---|')
    for length, size in chosen(args, SLOWER_SIZES).items():
        for name in names_to_measure(('none', *ENCODING_NAMES), args):
            with row(name, length):
                encoding = None if name == 'none' else make_encoding(name, size, args)
                kinds_of_run = both({how: ours(encoding, size, how) for how in COMPARED},
                                    make_inputs(size, args), encoding)
                for mode, runs in zip(('inference', 'training'), kinds_of_run, strict=True):
                    best, ratio = against_fastest(runs, args)
                    if ratio > MOST_SLOWER:  # It may have been disturbed.
                        again = {how: runs[how] for how in ('auto', best)}
                        ratio = min(ratio, against_fastest(again, args)[1])
                    if ratio > MOST_SLOWER:
                        print(f'| {name} | {length} | {mode} | {best} | {ratio:.2f} |', flush=True)


def against_fastest(runs: dict[str, Run], args: argparse.Namespace) -> tuple[str, float]:
    """The fastest of the others than 'auto', which is the first, and how much longer that takes."""
    ratios = {how: times.ratio for how, times in
              paired_times(runs, args.repeats, args.device).items()
              if how != 'auto' and not isinstance(times.ratio, Failed)}
    best = min(ratios, key=lambda how: ratios[how])
    return best, 1 / ratios[best]


def cost_names() -> list[str]:
    """Rows of the table 'cost'."""
    names = (name for name in (*examples.RELATIVE, *examples.TOKEN) if not name.endswith(ALIKE))
    return ['explicit product', *names]


def in_attention(name: str, size: Size, args: argparse.Namespace) -> Trio:
    """A relative encoding, or none as releases write it."""
    encoding = None if name == 'explicit product' else make_encoding(name, size, args)
    key = make_encoding('IRPE product k', size, args)
    inputs = make_inputs(size, args)
    base = both({'none': F.scaled_dot_product_attention, 'iRPE k': ours(key, size)}, inputs, key)
    own = both({'own': explicit if encoding is None else ours(encoding, size)}, inputs, encoding)
    return [{**others, **mine} for others, mine in zip(base, own, strict=True)]


def before_attention(name: str, size: Size, args: argparse.Namespace) -> Trio:
    """A token encoding alone: the table adds the time of attention to it."""
    width = size.heads * size.dims * (4 if name == 'ConvMLP' else 1)
    grid = (size.height, size.width)
    encoding = examples.token(name, grid, embed_dims=width)
    dtype = getattr(torch, args.dtype)
    encoding.to(args.device, dtype)
    tokens = torch.randn(size.batch, size.length, width, device=args.device, dtype=dtype,
                         requires_grad=True)
    own = kinds({'own': lambda: encoding(tokens, grid, num_prefix_tokens=size.prefix)},
                [tokens, *encoding.parameters()], torch.randn_like(tokens))
    return [{**others, **mine} for others, mine in zip(
        in_attention('explicit product', size, args), own.values(), strict=True)]


def cost(args: argparse.Namespace) -> None:
    """All encodings beside none and beside iRPE on keys, as lines of a csv file."""
    print(header(args), file=sys.stderr)
    sizes = chosen(args)
    write = csv.writer(sys.stdout, lineterminator='\n').writerow
    write(['encoding', *(f'{length}{of}' for length in sizes for of in ('', ': of iRPE k'))])
    for name in names_to_measure(cost_names(), args):
        write([name, *itertools.chain(*(cost_cells(name, size, args) for size in sizes.values()))])
        sys.stdout.flush()


def cost_cells(name: str, size: Size, args: argparse.Namespace) -> tuple[str, str]:
    """'forward/training (MiB/MiB)' in multiples of none's time, and in multiples of iRPE's."""
    before = name in examples.TOKEN
    make = before_attention if before else in_attention
    none, other, peaks = [], [], []
    for runs in make(name, size, args):
        times = paired_times(runs, args.repeats, args.device)
        none.append(times['own'].ratio + before)
        other.append(none[-1] / times['iRPE k'].ratio)
        peaks.append(peak_memory(runs['own'], args.device) / 2 ** 20)
    ratios, others, memory = ('/'.join(format(each, how) for each in cells) for cells, how in (
        (none, '.2f'), (other, '.2f'), (peaks, '.0f')))
    return f'{ratios} ({memory})', others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    tables = dict(targets=targets, implementations=implementations, slower=slower, cost=cost)
    add_arguments(parser, repeats=7)
    parser.add_argument('table', choices=tables)
    parser.add_argument('--rows', type=int, nargs='*', choices=[49, *GRID_SIZES])
    parser.add_argument('--only', nargs='*', help='parts of the names of encodings; not '
                        'for targets')
    parser.add_argument('--batch', type=int, help="images, instead of the row's")
    parser.add_argument('--chunk-mib', type=int, help='of the buffer of a chunk on a GPU')
    args = parse(parser)
    if args.chunk_mib:
        thresholds.ACCELERATOR_CHUNK_BYTES = args.chunk_mib * 2 ** 20
    tables[args.table](args)


if __name__ == '__main__':
    main()
