"""Training step of PVT-tiny: this project's against mmdet's PyramidVisionTransformer, paired.

    python benchmarks/pvt.py [--case 800x1344x1] [--repeats 9] [--threads 1]
"""
from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from measure import matmul_rate, paired_ratios, paired_times, peak_memory
from torch import nn

from mmposenc.backbones import PVT, load_pretrained
from mmposenc.encodings import PEG

CASES = {'224x224x8': (224, 224, 8), '512x512x2': (512, 512, 2), '800x1344x1': (800, 1344, 1)}
LEARNED = dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear')
LAYERS, DIMS, MLP, SR = (2, 2, 2, 2), (64, 128, 320, 512), (8, 8, 4, 4), (8, 4, 2, 1)


def build() -> dict[str, nn.Module]:
    """mmdet's model, ours with the same weights, and ours with other encodings."""
    from mmdet.models import PyramidVisionTransformer  # after mmposenc, which lets it import
    theirs = PyramidVisionTransformer(num_layers=list(LAYERS), drop_path_rate=0.1)
    ours = PVT('tiny', pos_encoding=LEARNED, embed_norm_eps=1e-6)
    load_pretrained(ours, theirs.state_dict())
    return {'mmdet': theirs, 'ours': ours,
            'ours, no encoding': PVT('tiny'),
            'ours, PEG': PVT('tiny', pos_encoding=dict(type='mmposenc.PEG'))}


def step(model: nn.Module, images: torch.Tensor) -> Callable[[], None]:
    """Forward and backward of the sum of all maps."""
    def run() -> None:
        model.zero_grad(set_to_none=True)
        sum(out.square().mean() for out in model(images)).backward()
    return run


def multiplications(height: int, width: int, batch: int) -> int:
    """Multiply-adds of one forward pass: every matrix product and strided convolution."""
    total, cells, channels = 0, height * width // 16, 3
    for i, dims in enumerate(DIMS):
        patch = 16 if i == 0 else 4
        cells = cells if i == 0 else cells // 4
        keys = cells // SR[i] ** 2
        block = cells * dims * dims * 2 + keys * dims * dims * 2  # q, out; k, v
        block += 2 * cells * keys * dims + 2 * cells * dims * dims * MLP[i]
        block += cells * dims * dims if SR[i] > 1 else 0
        total += cells * patch * channels * dims + LAYERS[i] * block
        channels = dims
    return total * batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--case', choices=sorted(CASES), action='append')
    parser.add_argument('--repeats', type=int, default=9)
    parser.add_argument('--threads', type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    rate = matmul_rate()
    print('| case | model | time / mmdet | memory MiB | memory / mmdet | limit / mmdet |')
    print('|---|---|---|---|---|---|')
    models = build()
    for case in args.case or CASES:
        height, width, batch = CASES[case]
        images = torch.randn(batch, 3, height, width)
        runs = {name: step(model, images) for name, model in models.items()}
        ratios = paired_ratios(runs, 'mmdet', args.repeats)
        seconds = paired_times({n: runs[n] for n in ('mmdet', 'ours, PEG')}, 3)
        memory = {name: peak_memory(run) for name, run in runs.items()}
        # Forward once, backward twice: the time if every other operation were free.
        limit = 3 * 2 * multiplications(height, width, batch) / rate / seconds['mmdet']
        for name in runs:
            print(f'| {case} | {name} | {ratios[name]:.2f} | {memory[name] / 2 ** 20:.0f} | '
                  f'{memory[name] / memory["mmdet"]:.2f} | {limit:.2f} |', flush=True)
        share = peg_share(height, width, batch, seconds['ours, PEG'])
        print(f'{case}: the four PEGs take {share:.1%} of the step', flush=True)


def peg_share(height: int, width: int, batch: int, step_seconds: float) -> float:
    """CPU time of the four PEGs alone, forward and backward, over that of a training step.

    The difference of two whole steps is too small to read off a noisy machine.
    """
    seconds = 0.0
    for i, dims in enumerate(DIMS):
        grid = (height // (4 * 2 ** i), width // (4 * 2 ** i))
        peg = PEG(dims)
        tokens = torch.randn(batch, grid[0] * grid[1], dims, requires_grad=True)
        grad = torch.randn_like(tokens)
        run = partial(lambda peg, tokens, grid, grad: peg(tokens, grid).backward(grad),
                      peg, tokens, grid, grad)
        seconds += paired_times({'peg': run}, 9)['peg']
    return seconds / step_seconds


if __name__ == '__main__':
    main()
