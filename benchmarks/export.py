"""Differences of exported backbones from the models themselves, as docs/export.md lists them.

    python benchmarks/export.py                                # all pairs, ONNX by onnxruntime
    python benchmarks/export.py --how strict pvt --encodings PEG
    python benchmarks/export.py --padding                      # sizes of the images as an input

Small models with random weights, exported from two images of 60x76 pixels with any batch, height
and width, and compared at five other sizes with one image and with three.
"""
from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc.backbones import PVT, Swin, ViT
from mmposenc.engine.export import read_onnx

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    'pvt': lambda **o: PVT(embed_dims=(8, 16), num_layers=(1, 1), num_heads=(1, 2),
                           sr_ratios=(4, 2), mlp_ratios=(2, 2), patch_sizes=(4, 2),
                           out_indices=(0, 1), img_size=32, **o),
    'vit': lambda **o: ViT(embed_dims=16, num_layers=2, num_heads=2, patch_size=8, img_size=32,
                           out_indices=(1,), **o),
    'swin': lambda **o: Swin(embed_dims=16, num_layers=(2, 1), num_heads=(2, 2), window_size=4,
                             img_size=32, **{'window_bias': False, **o}),
}
TABLE = 'RelativePositionBias'
#: By the name of the table: of tokens, or of attention.
ENCODINGS: dict[str, dict[str, Any]] = {
    'none': {},
    'LearnedPositionEmbedding': dict(pos_encoding={}),
    'PEG': dict(pos_encoding={}),
    'IRPE': dict(rel_pos_encoding=dict(rpe_on='k')),
    TABLE: dict(rel_pos_encoding=dict(resize='bicubic')),
    'RotaryEmbedding2D': dict(rel_pos_encoding={}),
    'ContextPool': dict(pos_encoding={}),
}
SIZES = ((64, 64), (48, 80), (33, 47), (56, 40), (71, 64))
DYNAMIC = torch.export.Dim.DYNAMIC


def build(backbone: str, encoding: str, **options: Any) -> nn.Module:
    """A small model whose weights are all of one size, so that every part counts."""
    for section, arguments in ENCODINGS[encoding].items():
        options[section] = dict(type=f'mmposenc.{encoding}', **arguments)
    if backbone == 'swin' and encoding == TABLE:  # its own, on windows of one size
        options.pop('rel_pos_encoding')
        options['window_bias'] = True
    torch.manual_seed(0)
    model = BACKBONES[backbone](**options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
    return model


def exported(model: nn.Module, strict: bool = False, padding: bool = False
             ) -> torch.export.ExportedProgram:
    """The program for any number of images of any size; with ``padding`` their sizes are a second
    input."""
    args: tuple[Tensor, ...] = (torch.randn(2, 3, 60, 76),)
    shapes: tuple[Any, ...] = ({0: DYNAMIC, 2: DYNAMIC, 3: DYNAMIC},)
    if padding:
        args, shapes = (*args, torch.tensor([[60, 76], [41, 70]])), (*shapes, {0: DYNAMIC})
    with torch.no_grad():
        return torch.export.export(model, args, dynamic_shapes=shapes, strict=strict)


def onnx_run(program: torch.export.ExportedProgram, names: list[str], folder: Path
             ) -> Callable[..., list[Tensor]]:
    """The same program as an ONNX file, run by onnxruntime."""
    made = torch.onnx.export(program, (), dynamo=True, verbose=False, input_names=names)
    assert made is not None
    made.save(folder / 'model.onnx', external_data=False)
    return read_onnx(folder / 'model.onnx', names)


@torch.no_grad()
def difference(model: nn.Module, run: Callable[..., Any], padding: bool = False,
               sizes: Any = SIZES) -> float:
    """The largest over sizes, batches and outputs, in shares of an output's span."""
    worst = 0.0
    for size in sizes:
        for images in (1, 3):
            args: list[Tensor] = [torch.randn(images, 3, *size)]
            if padding:
                shares = torch.tensor([[1.0, 1.0], [0.6, 1.0], [0.9, 0.55]])[:images]
                args.append((shares * torch.tensor(size)).long())
            for ours, other in zip(model(*args), run(*args), strict=True):
                if ours.shape != other.shape:
                    return float('inf')
                worst = max(worst, float((ours - other).abs().max() / (ours.max() - ours.min())))
    return worst


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('backbones', nargs='*', choices=[[], *BACKBONES], default=[])
    parser.add_argument('--encodings', nargs='+', choices=ENCODINGS, default=list(ENCODINGS))
    parser.add_argument('--how', choices=('onnx', 'strict', 'nonstrict'), default='onnx')
    parser.add_argument('--padding', action='store_true')
    args = parser.parse_args(argv)
    logging.disable(logging.WARNING)
    warnings.filterwarnings('ignore')
    for encoding in args.encodings:
        for backbone in args.backbones or BACKBONES:
            start = time.process_time()
            try:
                model = build(backbone, encoding, mask_padding=args.padding)
                program = exported(model, args.how == 'strict', args.padding)
                with tempfile.TemporaryDirectory() as folder:
                    run = program.module() if args.how != 'onnx' else onnx_run(
                        program, ['images', 'img_shapes'][:1 + args.padding], Path(folder))
                    said = f'{difference(model, run, args.padding):.1e}'
            except Exception as error:
                said = f'{type(error).__name__}: {" ".join(str(error).split())[:300]}'
            print(f'| {encoding} | {backbone} | {said} | {time.process_time() - start:.1f} s |',
                  flush=True)


if __name__ == '__main__':
    main()
