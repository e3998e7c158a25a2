"""ContextPool against its formula as one would write it: time, memory, and the block without it.

    python benchmarks/context_pool.py [--repeats 9] [--case 14x14 ...] [--large] [--block]

The naive form is the paper's equation in (L, L) tensors: distances of all pairs of cells,
exp(-d^2 / (2 sigma^2)), times the weights, divided by their sum, times the tokens.
Sizes are drawn as an untrained predictor would give them and worse: sigma = 0.1 s (H + W) / 2 with
s the sigmoid of normal numbers, independent from token to token. "products alone" is one product of
(L, L) weights that are there already with the tokens, or the three of training: what no exact form
can do without.
"""
from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from measure import paired_ratios, paired_times, peak_memory
from torch import Tensor

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc.functional import context_pool

#: name: (batch, height, width, channels)
CASES = {'14x14': (8, 14, 14, 384), '14x14, narrow': (8, 14, 14, 64),
         '24x24': (4, 24, 24, 768), '24x24, narrow': (4, 24, 24, 64),
         '50x84': (1, 50, 84, 256), '50x84, narrow': (1, 50, 84, 64)}
LARGE = (1, 200, 336, 64)


def inputs(batch: int, height: int, width: int, channels: int) -> list[Tensor]:
    """Tokens, weight logits and sizes."""
    torch.manual_seed(0)
    length = height * width
    x = torch.randn(batch, length, channels)
    sizes = 0.1 * torch.randn(batch, length).sigmoid() * (height + width) / 2
    return [each.requires_grad_() for each in (x, torch.randn(batch, length), sizes)]


def squared_distances(height: int, width: int) -> Tensor:
    """(L, L)."""
    rows, cols = torch.meshgrid(torch.arange(float(height)), torch.arange(float(width)),
                                indexing='ij')
    at = torch.stack((rows.flatten(), cols.flatten()), -1)
    return torch.cdist(at, at).square()


def naive(x: Tensor, weight_logits: Tensor, sigma: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """The equation as it stands."""
    distances = squared_distances(*hw_shape)
    gaussian = torch.exp(-distances / (2 * sigma[..., None] ** 2))
    weights = weight_logits.softmax(-1)[:, None] * gaussian
    return weights / weights.sum(-1, keepdim=True) @ x


def kinds(runs: dict[str, Callable[[], Tensor]], leaves: list[Tensor]
          ) -> dict[str, dict[str, Callable[[], object]]]:
    """Each run as forward alone, and with its backward pass."""
    grad = torch.randn_like(leaves[0])

    def forward(run: Callable[[], Tensor]) -> Callable[[], None]:
        def call() -> None:
            with torch.no_grad():
                run()
        return call

    def both(run: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(run(), leaves, grad)

    return {'forward': {name: forward(run) for name, run in runs.items()},
            'forward+backward': {name: both(run) for name, run in runs.items()}}


def compare(case: str, repeats: int, truncate: float) -> None:
    """One line a form: ratios to the naive form."""
    batch, height, width, channels = CASES[case]
    leaves = inputs(batch, height, width, channels)
    hw_shape = (height, width)
    runs = {'naive': lambda: naive(*leaves, hw_shape)}
    for form in ('exact', 'windowed'):
        runs[form] = lambda form=form: context_pool(*leaves, hw_shape, form=form,
                                                    truncate=truncate)
    reference = runs['naive']().detach()
    for form in ('exact', 'windowed'):
        error = float((runs[form]().detach() - reference).abs().max())
        print(f'<!-- {case} {form}: largest difference {error:.1e} -->')
    dense = torch.rand(batch, height * width, height * width, requires_grad=True)
    products = kinds({'products alone': lambda: dense @ leaves[0]}, [leaves[0], dense])
    timed = {name: paired_ratios({**kind, **products[name]}, 'naive', repeats)
             for name, kind in kinds(runs, leaves).items()}
    peaks = {name: {form: peak_memory(run) for form, run in kind.items()}
             for name, kind in kinds(runs, leaves).items()}
    cells = [f"{timed[name]['products alone']:.3f}" for name in timed]
    print(f'| {case}, B={batch}, C={channels} | products alone | ' + ' | '.join(cells)
          + ' | | |', flush=True)
    for form in ('exact', 'windowed'):
        cells = [f'{timed[name][form]:.3f}' for name in timed]
        for name in peaks:
            own, other = peaks[name][form], peaks[name]['naive']
            cells.append(f'{own / 2 ** 20:.0f} / {other / 2 ** 20:.0f} MiB'
                         + (f' = {own / other:.3f}' if other else ''))
        print(f'| {case}, B={batch}, C={channels} | {form} | ' + ' | '.join(cells) + ' |',
              flush=True)


def large(truncate: float) -> None:
    """What the naive form has no memory for, in seconds and MiB."""
    leaves = inputs(*LARGE)
    hw_shape = LARGE[1:3]
    print('\n| 200x336, C=64 | forward | forward+backward | extra memory |\n|---|---|---|---|')
    for form in ('exact', 'windowed'):
        run = kinds({form: lambda form=form: context_pool(*leaves, hw_shape, form=form,
                                                          truncate=truncate)}, leaves)
        cells = []
        for name in ('forward', 'forward+backward'):
            start = time.process_time()
            run[name][form]()
            cells.append(f'{time.process_time() - start:.1f} s')
        peak = peak_memory(run['forward+backward'][form])
        print(f'| {form} | ' + ' | '.join(cells) + f' | {peak / 2 ** 20:.0f} MiB |', flush=True)


def linear(truncate: float) -> None:
    """Peak memory of training against the number of tokens."""
    print('\n| tokens | extra memory, exact, forward+backward | bytes a token and channel |')
    print('|---|---|---|')
    for height, width in ((25, 42), (50, 84), (100, 84), (100, 168)):
        leaves = inputs(1, height, width, 64)
        run = kinds({'exact': lambda leaves=leaves, hw=(height, width): context_pool(
            *leaves, hw, form='exact', truncate=truncate)}, leaves)
        peak = peak_memory(run['forward+backward']['exact'])
        print(f'| {height * width} | {peak / 2 ** 20:.1f} MiB | '
              f'{peak / (height * width * 64):.1f} |', flush=True)


def block(repeats: int) -> None:
    """A ViT-B block on 14 x 14 tokens with and without ContextPool behind it."""
    from mmposenc.backbones.deit import DeiTBlock
    from mmposenc.encodings import ContextPool
    torch.manual_seed(0)
    part = DeiTBlock(768, 12, 4.0, num_prefix_tokens=1).eval()
    x = torch.randn(8, 197, 768, requires_grad=True)
    leaves = [x]
    runs = {'without': lambda: part(x, (14, 14))}
    for hidden in (192, 26):
        pool = ContextPool(768, hidden_dims=hidden).eval()
        runs[f'{hidden} hidden channels'] = lambda pool=pool: pool(
            part(x, (14, 14)), (14, 14), num_prefix_tokens=1)
    print('\n| 14x14, ViT-B block, B=8 | with ContextPool / without |\n|---|---|')
    for name, kind in kinds(runs, leaves).items():
        times = paired_times(kind, repeats)
        ratios = paired_ratios(kind, 'without', repeats)
        for width in list(runs)[1:]:
            print(f"| {name}, {width} | {ratios[width]:.3f} "
                  f"({1e3 * times['without']:.0f} ms without) |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--case', choices=sorted(CASES), nargs='*', default=list(CASES))
    parser.add_argument('--repeats', type=int, default=9)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--truncate', type=float, default=5.0)
    parser.add_argument('--large', action='store_true', help='200x336 tokens (minutes)')
    parser.add_argument('--linear', action='store_true', help='memory against tokens')
    parser.add_argument('--block', action='store_true', help='a block with and without it')
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.case:
        print('| case | form | forward | forward+backward | memory forward | memory both |')
        print('|---|---|---|---|---|---|')
    for case in args.case:
        compare(case, args.repeats, args.truncate)
    if args.linear:
        linear(args.truncate)
    if args.large:
        large(args.truncate)
    if args.block:
        block(args.repeats)


if __name__ == '__main__':
    main()
