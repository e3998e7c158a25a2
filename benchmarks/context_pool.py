"""ContextPool against its formula as one would write it: time, memory, and the block without it.

    python benchmarks/context_pool.py [--repeats 9] [--case 14x14 ...] [--large] [--block]
    python benchmarks/context_pool.py --device cuda --dtype bfloat16      # never tried

The naive form is the paper's equation in (L, L) tensors: distances of all pairs of cells,
exp(-d^2 / (2 sigma^2)), times the weights, divided by their sum, times the tokens.
Sizes are drawn as an untrained predictor would give them and worse: sigma = 0.1 s (H + W) / 2 with
s the sigmoid of normal numbers, independent from token to token. "products alone" is one product of
(L, L) weights that are there already with the tokens, or the three of training: what no exact form
can do without.
"""
from __future__ import annotations

import argparse

import torch
from measure import (
    add_arguments,
    header,
    kinds,
    paired_times,
    parse,
    peak_memory,
    row,
    seconds,
)
from torch import Tensor

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc.functional import context_pool

#: name: (batch, height, width, channels)
CASES = {'14x14': (8, 14, 14, 384), '14x14, narrow': (8, 14, 14, 64),
         '24x24': (4, 24, 24, 768), '24x24, narrow': (4, 24, 24, 64),
         '50x84': (1, 50, 84, 256), '50x84, narrow': (1, 50, 84, 64), 'tiny': (1, 4, 5, 8)}
LARGE = (1, 200, 336, 64)


def inputs(batch: int, height: int, width: int, channels: int, args: argparse.Namespace
           ) -> list[Tensor]:
    """Tokens, weight logits and sizes; all in the dtype that is asked for."""
    torch.manual_seed(0)
    length = height * width
    x = torch.randn(batch, length, channels)
    sizes = 0.1 * torch.randn(batch, length).sigmoid() * (height + width) / 2
    return [each.to(args.device, getattr(torch, args.dtype)).requires_grad_()
            for each in (x, torch.randn(batch, length), sizes)]


def squared_distances(height: int, width: int, device: torch.device) -> Tensor:
    """(L, L)."""
    rows, cols = torch.meshgrid(torch.arange(float(height), device=device),
                                torch.arange(float(width), device=device), indexing='ij')
    at = torch.stack((rows.flatten(), cols.flatten()), -1)
    return torch.cdist(at, at).square()


def naive(x: Tensor, weight_logits: Tensor, sigma: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """The equation as it stands."""
    distances = squared_distances(*hw_shape, x.device).to(x.dtype)
    gaussian = torch.exp(-distances / (2 * sigma[..., None] ** 2))
    weights = weight_logits.softmax(-1)[:, None] * gaussian
    return weights / weights.sum(-1, keepdim=True) @ x


def compare(case: str, args: argparse.Namespace) -> None:
    """One line a form: ratios to the naive form."""
    batch, height, width, channels = CASES[case]
    leaves = inputs(batch, height, width, channels, args)
    hw_shape = (height, width)
    runs = {'naive': lambda: naive(*leaves, hw_shape)}
    for form in ('exact', 'windowed'):
        runs[form] = lambda form=form: context_pool(*leaves, hw_shape, form=form,
                                                    truncate=args.truncate)
    reference = runs['naive']().detach()
    for form in ('exact', 'windowed'):
        error = float((runs[form]().detach() - reference).abs().max())
        print(f'<!-- {case} {form}: largest difference {error:.1e} -->')
    dense = torch.rand(batch, height * width, height * width, dtype=reference.dtype,
                       device=args.device, requires_grad=True)
    grad = torch.randn_like(leaves[0])
    both = kinds(runs, leaves, grad)
    products = kinds({'products alone': lambda: dense @ leaves[0]}, [leaves[0], dense], grad)
    timed = {name: paired_times({**kind, **products[name]}, args.repeats, args.device)
             for name, kind in both.items()}
    peaks = {name: {form: peak_memory(run, args.device) for form, run in kind.items()}
             for name, kind in both.items()}
    cells = [f"{timed[name]['products alone'].ratio:.3f}" for name in timed]
    print(f'| {case}, B={batch}, C={channels} | products alone | ' + ' | '.join(cells)
          + ' | | |', flush=True)
    for form in ('exact', 'windowed'):
        cells = [f'{timed[name][form].ratio:.3f}' for name in timed]
        for name in peaks:
            own, other = peaks[name][form], peaks[name]['naive']
            cells.append(f'{own / 2 ** 20:.0f} / {other / 2 ** 20:.0f} MiB'
                         + (f' = {own / other:.3f}' if other else ''))
        print(f'| {case}, B={batch}, C={channels} | {form} | ' + ' | '.join(cells) + ' |',
              flush=True)


def large(args: argparse.Namespace) -> None:
    """What the naive form has no memory for, in seconds and MiB."""
    size = CASES['tiny'] if args.tiny else LARGE
    leaves = inputs(*size, args)
    print(f'\n| {size[1]}x{size[2]}, C={size[3]} | forward | forward+backward | extra memory |\n'
          '|---|---|---|---|')
    for form in ('exact', 'windowed'):
        with row(form):
            both = kinds({form: lambda form=form: context_pool(
                *leaves, size[1:3], form=form, truncate=args.truncate)}, leaves,
                torch.randn_like(leaves[0]))
            cells = [f'{seconds(kind[form], 1, args.device):.3f} s' for kind in both.values()]
            peak = peak_memory(both['training'][form], args.device)
            print(f'| {form} | ' + ' | '.join(cells) + f' | {peak / 2 ** 20:.0f} MiB |',
                  flush=True)


def linear(args: argparse.Namespace) -> None:
    """Peak memory of training against the number of tokens."""
    print('\n| tokens | extra memory, exact, forward+backward | bytes a token and channel |')
    print('|---|---|---|')
    for height, width in ((4, 5),) if args.tiny else ((25, 42), (50, 84), (100, 84), (100, 168)):
        with row(height * width):
            leaves = inputs(1, height, width, 64, args)
            run = kinds({'exact': lambda leaves=leaves, hw=(height, width): context_pool(
                *leaves, hw, form='exact', truncate=args.truncate)}, leaves,
                torch.randn_like(leaves[0]))['training']['exact']
            peak = peak_memory(run, args.device)
            print(f'| {height * width} | {peak / 2 ** 20:.1f} MiB | '
                  f'{peak / (height * width * 64):.1f} |', flush=True)


def block(args: argparse.Namespace) -> None:
    """A ViT-B block on 14 x 14 tokens with and without ContextPool behind it."""
    from mmposenc.backbones.vit_layers import ViTBlock
    from mmposenc.encodings import ContextPool
    torch.manual_seed(0)
    place = dict(device=args.device, dtype=getattr(torch, args.dtype))
    part = ViTBlock(768, 12, 3072, num_prefix_tokens=1).eval().to(**place)
    batch = 1 if args.tiny else 8
    x = torch.randn(batch, 197, 768, requires_grad=True, **place)
    runs = {'without': lambda: part(x, (14, 14))}
    for hidden in (192, 26):
        pool = ContextPool(768, hidden_dims=hidden).eval().to(**place)
        runs[f'{hidden} hidden channels'] = lambda pool=pool: pool(
            part(x, (14, 14)), (14, 14), num_prefix_tokens=1)
    print(f'\n| 14x14, ViT-B block, B={batch} | with ContextPool / without |\n|---|---|')
    for name, kind in kinds(runs, [x], torch.randn_like(x)).items():
        times = paired_times(kind, args.repeats, args.device)
        for width in list(runs)[1:]:
            print(f'| {name}, {width} | {times[width].ratio:.3f} '
                  f"({1e3 * times['without'].seconds:.0f} ms without) |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, repeats=9)
    parser.add_argument('--case', choices=sorted(CASES), nargs='*')
    parser.add_argument('--truncate', type=float, default=5.0)
    parser.add_argument('--large', action='store_true', help='200x336 tokens (minutes)')
    parser.add_argument('--linear', action='store_true', help='memory against tokens')
    parser.add_argument('--block', action='store_true', help='a block with and without it')
    args = parse(parser)
    cases = args.case
    if cases is None:
        cases = [case for case in CASES if (case == 'tiny') == args.tiny]
    print(header(args))
    if cases:
        print('| case | form | forward | forward+backward | memory forward | memory both |')
        print('|---|---|---|---|---|---|')
    for case in cases:
        with row(case):
            compare(case, args)
    for wanted, table in ((args.linear, linear), (args.large, large), (args.block, block)):
        if wanted:
            table(args)


if __name__ == '__main__':
    main()
