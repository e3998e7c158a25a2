"""ContextPool against its formula as one would write it: time and memory.

    python benchmarks/context_pool.py [--repeats 9] [--case 14x14 ...]
    python benchmarks/context_pool.py --device cuda --dtype bfloat16

The naive implementation is the paper's equation in (L, L) tensors: distances of all pairs of cells,
exp(-d^2 / (2 sigma^2)), times the weights, divided by their sum, times the tokens.
Sizes are drawn as an untrained predictor would give them and worse: sigma = 0.1 s (H + W) / 2 with
s the sigmoid of normal numbers, independent from token to token. "products alone" is one product of
(L, L) weights that are there already with the tokens, or the three of training: what nothing exact
can do without.
"""
from __future__ import annotations

import argparse

import torch
from measure import add_arguments, header, kinds, paired_times, parse, peak_memory, row
from torch import Tensor

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc.functional import context_pool

#: name: (batch, height, width, channels)
CASES = {'14x14': (8, 14, 14, 384), '14x14, narrow': (8, 14, 14, 64),
         '24x24': (4, 24, 24, 768), '24x24, narrow': (4, 24, 24, 64),
         '50x84': (1, 50, 84, 256), '50x84, narrow': (1, 50, 84, 64), 'tiny': (1, 4, 5, 8)}


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
    """Two lines: ratios of the products alone, and of ours, to the naive implementation."""
    batch, height, width, channels = CASES[case]
    leaves = inputs(batch, height, width, channels, args)
    hw_shape = (height, width)
    runs = {'naive': lambda: naive(*leaves, hw_shape)}
    runs['exact'] = lambda: context_pool(*leaves, hw_shape, implementation='exact')
    reference = runs['naive']().detach()
    error = float((runs['exact']().detach() - reference).abs().max())
    print(f'<!-- {case}: largest difference {error:.1e} -->')
    dense = torch.rand(batch, height * width, height * width, dtype=reference.dtype,
                       device=args.device, requires_grad=True)
    grad = torch.randn_like(leaves[0])
    both = kinds(runs, leaves, grad)
    products = kinds({'products alone': lambda: dense @ leaves[0]}, [leaves[0], dense], grad)
    timed = {name: paired_times({**kind, **products[name]}, args.repeats, args.device)
             for name, kind in both.items()}
    peaks = {name: {how: peak_memory(run, args.device) for how, run in kind.items()}
             for name, kind in both.items()}
    cells = [f"{timed[name]['products alone'].ratio:.3f}" for name in timed]
    print(f'| {case}, B={batch}, C={channels} | products alone | ' + ' | '.join(cells)
          + ' | | |', flush=True)
    cells = [f"{timed[name]['exact'].ratio:.3f}" for name in timed]
    for name in peaks:
        own, other = peaks[name]['exact'], peaks[name]['naive']
        cells.append(f'{own / 2 ** 20:.0f} / {other / 2 ** 20:.0f} MiB'
                     + (f' = {own / other:.3f}' if other else ''))
    print(f'| {case}, B={batch}, C={channels} | exact | ' + ' | '.join(cells) + ' |', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, repeats=9)
    parser.add_argument('--case', choices=sorted(CASES), nargs='*')
    args = parse(parser)
    cases = args.case
    if cases is None:
        cases = [case for case in CASES if (case == 'tiny') == args.tiny]
    print(header(args))
    print('| case | implementation | forward | forward+backward | memory forward | memory both |')
    print('|---|---|---|---|---|---|')
    for case in cases:
        with row(case):
            compare(case, args)


if __name__ == '__main__':
    main()
