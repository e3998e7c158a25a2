"""Whole backbones against the best peer: training steps and inference, paired, one thread.

    .venv/bin/pip install --no-deps -r requirements/benchmarks.txt
    python benchmarks/backbones.py [--case 'DeiT-S 224'] [--repeats 9] [--dtype float32 bfloat16]

Both sides hold the same weights and compute the same: drop path is off, and outputs are compared
before anything is timed (an encoding's tables start at zero). bfloat16 is autocast, float32
weights. --compile adds the same model with its blocks compiled for this one size. 'Limit' is the
time of the matrix products alone, same shapes, operands in the cache: three of each in training.
'bf16' is the time under autocast over that of the same model in float32.
"""
from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from measure import paired_times, peak_memory
from products import product_seconds, products
from torch import Tensor, nn

from mmposenc.backbones import PVT, DeiT, Swin, load_pretrained
from mmposenc.engine.compiling import compile_regions

LEARNED = dict(type='mmposenc.LearnedPositionEmbedding')
IRPE = dict(type='mmposenc.IRPE')


def pvt(height: int, width: int) -> dict[str, nn.Module]:
    from mmdet.models import PyramidVisionTransformer  # after mmposenc, which lets it import
    peer = PyramidVisionTransformer(num_layers=[2, 2, 2, 2], drop_path_rate=0.0)
    ours = PVT('tiny', pos_encoding=dict(LEARNED, interpolation='bilinear'), embed_norm_eps=1e-6,
               drop_path_rate=0.0)
    load_pretrained(ours, peer.state_dict())
    return {'mmdet': peer, 'ours': ours}


def swin(height: int, width: int) -> dict[str, nn.Module]:
    import timm
    peer = timm.create_model('swin_tiny_patch4_window7_224', num_classes=0, drop_path_rate=0.0,
                             img_size=(height, width))
    # timm lets tokens attend to the zeros that fill up the last windows.
    ours = Swin('tiny', pool='gap', drop_path_rate=0.0, mask_window_padding=False)
    load_pretrained(ours, peer.state_dict())
    return {'timm': peer, 'ours': ours}


def deit(height: int, width: int) -> dict[str, nn.Module]:
    import timm
    peer = timm.create_model('deit_small_patch16_224', num_classes=0, drop_path_rate=0.0)
    models = {'timm': peer, 'ours': DeiT('small', pos_encoding=LEARNED),
              'ours, iRPE k': DeiT('small', pos_encoding=LEARNED, rel_pos_encoding=IRPE)}
    for name, model in models.items():
        if name != 'timm':
            load_pretrained(model, peer.state_dict(), strict=name == 'ours')
    return models


class Case(NamedTuple):
    """Models of one row, peer first, and the batch they take."""

    build: Callable[[int, int], dict[str, nn.Module]]
    batch: int
    height: int
    width: int


CASES = {'PVT-tiny 800x1344': Case(pvt, 1, 800, 1344), 'PVT-tiny 224': Case(pvt, 8, 224, 224),
         'Swin-T 800x1344': Case(swin, 1, 800, 1344),
         'Swin-T 224': Case(swin, 8, 224, 224), 'DeiT-S 224': Case(deit, 8, 224, 224)}
MODES = ('training', 'inference')


def outputs(model: nn.Module, images: Tensor) -> Sequence[Tensor]:
    out = model(images)
    return (out,) if isinstance(out, Tensor) else out


def run_of(model: nn.Module, images: Tensor, dtype: torch.dtype, mode: str) -> Callable[[], None]:
    """A training step on the sum of all outputs, or a forward pass in evaluation."""
    def run() -> None:
        model.train(mode == 'training')
        with torch.autocast('cpu', dtype, enabled=dtype != torch.float32), \
                torch.set_grad_enabled(mode == 'training'):
            outs = outputs(model, images)
            loss = sum(out.float().square().mean() for out in outs)
        if mode == 'training':
            model.zero_grad(set_to_none=True)
            loss.backward()
    return run


def check_equal(models: dict[str, nn.Module]) -> None:
    """All models give the first one's outputs of 224x224, which windows divide: elsewhere timm's
    Swin rolls the map before it fills it up, and the release fills it up first."""
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        expected, *others = (outputs(model.eval(), images) for model in models.values())
    for outs in others:
        for out, right in zip(outs, expected, strict=True):
            torch.testing.assert_close(out, right, atol=2e-4, rtol=1e-3)


def measure(name: str, dtypes: list[torch.dtype], repeats: int, memory: bool, compiled: bool
            ) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    models = case.build(case.height, case.width)
    images = torch.randn(case.batch, 3, case.height, case.width)
    check_equal(case.build(224, 224))
    if compiled:
        models['ours, compiled'] = copy.deepcopy(models['ours'])
        compile_regions(models['ours, compiled'], dynamic=False)
    counts = products(models['ours'].eval(), images)
    peer = next(iter(models))
    for mode in MODES:
        runs = {(model, dtype): run_of(module, images, dtype, mode)
                for dtype in dtypes for model, module in models.items()}
        seconds = paired_times({repr(key): run for key, run in runs.items()}, repeats)
        peaks = {key: peak_memory(run) if memory else 0 for key, run in runs.items()}
        for (model, dtype), run in runs.items():
            del run
            key, base = repr((model, dtype)), repr((peer, dtype))
            plain = seconds[repr((model, dtypes[0]))]
            limit = product_seconds(counts, dtype, training=mode == 'training')
            print(f'| {name} | {mode} | {str(dtype)[6:]} | {model} | {seconds[key]:.3f} | '
                  f'{seconds[key] / seconds[base]:.2f} | {limit / seconds[base]:.2f} | '
                  f'{seconds[key] / plain:.2f} | {peaks[model, dtype] / 2 ** 20:.0f} | '
                  f'{peaks[model, dtype] / max(1, peaks[peer, dtype]):.2f} |', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--case', choices=sorted(CASES), action='append')
    parser.add_argument('--repeats', type=int, default=9)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--dtype', nargs='+', choices=['float32', 'bfloat16'],
                        default=['float32', 'bfloat16'])
    parser.add_argument('--no-memory', action='store_true')
    parser.add_argument('--compile', action='store_true')
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print('| case | mode | dtype | model | s | / peer | limit / peer | / float32 | MiB | / peer |')
    print('|---|---|---|---|---|---|---|---|---|---|')
    for name in args.case or CASES:
        measure(name, [getattr(torch, dtype) for dtype in args.dtype], args.repeats,
                not args.no_memory, args.compile)


if __name__ == '__main__':
    main()
