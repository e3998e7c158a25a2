"""What a training step costs by how much of a pretrained model is trained.

    python benchmarks/finetune.py                # ViT-S/14 at 448, two images, a linear head

CPU time of forward and backward pass and the highest resident set above that before it.
"""
from __future__ import annotations

import argparse
from typing import Any

import measure
import torch
from torch import nn

from mmposenc.backbones import ViT

PEG = dict(pos_encoding=[dict(type='LearnedPositionEmbedding', num_prefix_embeds=1),
                         dict(type='PEG', zero_init=True)])
#: By what is trained besides the head.
CASES: dict[str, dict[str, Any]] = {
    'everything': {},
    'everything, blocks computed twice (`with_cp`)': dict(with_cp=True),
    'the last 4 blocks': dict(frozen_stages=8),
    'the last 4 blocks, the others in bfloat16': dict(frozen_stages=8, frozen_dtype='bfloat16'),
    'a PEG after block 0': dict(frozen_stages=12, trainable=['at.after0'], **PEG),
    'LoRA of rank 8 on queries, keys and values': dict(frozen_stages=12, lora=dict(r=8)),
    'nothing': dict(frozen_stages=12),
    'nothing, in bfloat16': dict(frozen_stages=12, frozen_dtype='bfloat16')}


def build(options: dict[str, Any], layers: int | None = None) -> ViT:
    """DINOv2's ViT-S/14, whose last map is normed."""
    torch.manual_seed(0)
    sizes = {} if layers is None else dict(num_layers=layers)
    last = (layers or 12) - 1
    return ViT('dinov2-small', out_indices=(last,), **sizes, **options).train()


def step(backbone: nn.Module, head: nn.Module, images: torch.Tensor) -> None:
    """Forward and backward pass."""
    head(backbone(images)[0]).square().mean().backward()
    for parameter in (*backbone.parameters(), *head.parameters()):
        parameter.grad = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    measure.add_arguments(parser, repeats=5)
    args = measure.parse(parser)
    side, batch = (56, 1) if args.tiny else (448, 2)
    images = torch.randn(batch, 3, side, side, device=args.device)
    print(measure.header(args))
    print('| trained besides the head | parameters, million | seconds | of everything | MiB |\n'
          '|---|---|---|---|---|')
    first = None
    for name, options in CASES.items():
        with measure.row(name):
            backbone = build(options).to(args.device)
            head = nn.Conv2d(384, 150, 1).to(args.device)
            trained = sum(p.numel() for p in backbone.parameters() if p.requires_grad)

            def run(backbone: nn.Module = backbone, head: nn.Module = head) -> None:
                step(backbone, head, images)
            memory = measure.peak_memory(run, args.device)
            seconds = measure.seconds(run, args.repeats, args.device)
            first = first or seconds
            print(f'| {name} | {trained / 1e6:.2f} | {seconds:.2f} | {seconds / first:.2f} | '
                  f'{memory / 2 ** 20:.0f} |', flush=True)


if __name__ == '__main__':
    main()
