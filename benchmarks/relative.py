"""Relative encodings inside attention: time and peak memory against the released formulation, and
against attention without an encoding.

    python benchmarks/relative.py targets            # iRPE against the release's formulation
    python benchmarks/relative.py cost               # every encoding against none, four sizes
    python benchmarks/relative.py dropout            # training with dropout
    python benchmarks/relative.py small              # pieces against the definition, small grids
    python benchmarks/relative.py plain              # without an encoding, against SDPA
    python benchmarks/relative.py growth             # exponent of the time in L
    python benchmarks/relative.py buckets            # bucket ids
    python benchmarks/relative.py forms              # every form, see relative_forms.py
    python benchmarks/relative.py thresholds         # of mmposenc/functional/limits.py on a GPU
    options: --rows 1050 --repeats 7 --threads 1 --device cpu|cuda --dtype float32|bfloat16|float16

Everything is measured in one process in turn (A, B, A, B, ...); a number is the median over the
rounds of the ratio within a round; memory is measured in a process of its own. 'forward' is
inference (no_grad), 'training' forward and backward. What is timed lies between the two projections
of an attention: q, k, v (B, heads, L, head_dims) to the output. --device cuda was never tried.

The reference is written from the paper the way the release computes it: the look-up of a table is
read with a flattened index; for values, a (heads, L, L, head_dims) weight is gathered.
"""
from __future__ import annotations

import argparse
import math

import relative_cost
import torch
import torch.nn.functional as F
from measure import Run, add_arguments, header, paired_times, parse, peak_memory, row
from relative_forms import FORM_SIZES, forms
from relative_inputs import (
    TINY,
    Attention,
    Size,
    as_json,
    both,
    chosen,
    explicit,
    in_fresh_process,
    make_inputs,
    ours,
    random_tables,
)
from relative_thresholds import thresholds
from torch import Tensor

from mmposenc.encodings import IRPE
from mmposenc.functional import bucket_ids
from mmposenc.functional.buckets import Buckets


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


def target_calls(size: Size, options: dict, args: argparse.Namespace) -> list[dict[str, Run]]:
    """Inference and training calls of one row of TARGETS, after checking that they agree."""
    encoding = IRPE(size.dims, size.heads, num_prefix_tokens=size.prefix, **options)
    random_tables(encoding)
    encoding.to(args.device, getattr(torch, args.dtype))
    inputs = make_inputs(size, args)
    runs: dict[str, Attention] = {
        'reference': reference(encoding, size, args.device),
        'ours': ours(encoding, size, args.form), 'explicit': explicit,
        'SDPA': F.scaled_dot_product_attention}
    atol = 2e-5 if args.dtype == 'float32' else 2e-2
    with torch.no_grad():
        torch.testing.assert_close(runs['ours'](*inputs[:3]), runs['reference'](*inputs[:3]),
                                   atol=atol, rtol=1e-2)
    return both(runs, inputs, encoding)


def target_rows(args: argparse.Namespace
                ) -> list[tuple[Size, dict, tuple[float, float, float]]]:
    """Those of TARGETS at the sizes that are asked for."""
    if args.tiny:
        return [(*TINY.values(), options, asked) for _, options, asked in TARGETS[:3]]
    sizes = chosen(args)
    return [(sizes[length], options, asked) for length, options, asked in TARGETS
            if length in sizes]


def targets(args: argparse.Namespace) -> None:
    """iRPE against the reference, explicit attention and SDPA without an encoding."""
    memory = in_fresh_process(args)
    print(header(args))
    print('| case | forward | asked | training | asked | memory forward | memory training | asked |'
          ' explicit, no encoding | SDPA, no encoding |')
    print('|---|---|---|---|---|---|---|---|---|---|')
    for index, (size, options, asked) in enumerate(target_rows(args)):
        with row(target_name(size.length, options)):
            repeats = min(args.repeats, 5) if 'v' in options['rpe_on'] else args.repeats
            forward, backward = ({name: each.ratio for name, each in paired_times(
                kind, repeats, args.device).items()} for kind in target_calls(size, options, args))
            ratios = [f"{p['ours'] / p['reference']:.3f} ({p['ours'] / 2**20:.0f} of "
                      f"{p['reference'] / 2**20:.0f} MiB)"
                      for p in memory[index]]
            print(f"| {target_name(size.length, options)} | {forward['ours']:.3f} | {asked[0]} | "
                  f"{backward['ours']:.3f} | {asked[1]} | {ratios[0]} | {ratios[1]} | {asked[2]} | "
                  + ' | '.join(f'{forward[n]:.2f} / {backward[n]:.2f}'
                               for n in ('explicit', 'SDPA')) + ' |', flush=True)


def target_memory(args: argparse.Namespace) -> list[list[dict[str, float]]]:
    """Peak memory of inference and training, for each row of the table 'targets'."""
    return [[{name: peak_memory(kind[name], args.device) for name in ('reference', 'ours')}
             for kind in target_calls(size, options, args)]
            for size, options, _ in target_rows(args)]


def target_name(length: int, options: dict) -> str:
    method, mode = options.get('method', 'product'), options.get('mode', 'contextual')
    heads = '' if options.get('shared_heads', True) else ', per head'
    return f"{mode} {method} {options['rpe_on']}{heads}, L={length}"


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
    when grids take turns. Beside them the time to copy as many numbers: ids can't be faster. On a
    CPU, whatever the device."""
    from mmposenc.attention.fast.runs import row_patterns
    from mmposenc.functional.grids import Grid
    full = bucket_ids('product', (25, 42), ratio=1.9)
    assert torch.equal(release_ids(25, 42), full)
    print(header(args))
    shapes = {'25x42': [(25, 42)], '25x42 and 42x25 in turn': [(25, 42), (42, 25)]}
    print('| grids | reference, ms | row patterns, ms | ratio | (L, L) ids, ms | ratio | copy of '
          'them, ms | ratio |')
    print('|---|---|---|---|---|---|---|---|')
    for name, grids in shapes.items():
        plan = IRPE(32, 8)
        times = paired_times({
            'reference': lambda g=grids: [release_ids(*each) for each in g],
            'ids': lambda g=grids: [bucket_ids('product', each, ratio=1.9) for each in g],
            'copy': lambda g=grids: [full.clone() for _ in g],
            'patterns': lambda g=grids, p=plan: [row_patterns(
                Buckets('product', p.params, Grid(*each), Grid(*each)), torch.float32,
                torch.device('cpu')) for each in g]}, args.repeats, 'cpu')
        ms = {key: value.seconds * 1e3 / len(grids) for key, value in times.items()}
        cells = ' | '.join(f"{ms[key]:.2f} | {ms[key] / ms['reference']:.4f}"
                           for key in ('patterns', 'ids', 'copy'))
        print(f"| {name} | {ms['reference']:.1f} | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    tables = dict(targets=targets, buckets=buckets, forms=forms, thresholds=thresholds, **{
        table.__name__: table for table in (
            relative_cost.cost, relative_cost.dropout, relative_cost.growth, relative_cost.plain,
            relative_cost.small)})
    add_arguments(parser, repeats=7)
    parser.add_argument('table', choices=tables)
    parser.add_argument('--rows', type=int, nargs='*', choices=list(FORM_SIZES))
    parser.add_argument('--only', nargs='*', help='parts of the names of encodings: cost, forms')
    parser.add_argument('--batch', type=int, help="images, instead of the row's")
    parser.add_argument('--form', default='auto', help='form of the attention, for targets')
    parser.add_argument('--memory', action='store_true', help='print peak memory as json')
    args = parse(parser)
    if args.memory:
        peaks = dict(targets=target_memory, cost=relative_cost.cost_memory,
                     dropout=relative_cost.dropout_memory)
        print(as_json(peaks[args.table](args)))
    else:
        tables[args.table](args)


if __name__ == '__main__':
    main()
