"""What the tables of relative.py share: sizes, inputs, calls, memory in a fresh process."""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from mmposenc.encodings import RelativeEncoding

sys.path.insert(0, str(Path(__file__).parent.parent / 'tests' / 'encodings'))
import examples  # noqa: E402

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


def random_tables(encoding: RelativeEncoding) -> None:
    for table in encoding.parameters():
        torch.nn.init.normal_(table, std=0.02)


def make_encoding(name: str, size: Size) -> RelativeEncoding:
    """An encoding of tests/encodings/examples.py at its papers' sizes, with random tables."""
    encoding = examples.relative(name, (size.height, size.width), head_dims=size.dims,
                                 num_heads=size.heads, num_prefix_tokens=size.prefix,
                                 full_size=True)
    random_tables(encoding)
    return encoding


def in_fresh_process(args: argparse.Namespace, table: str) -> list:
    """Peak memory, measured where no earlier call has left freed memory behind."""
    command = [sys.executable, str(Path(__file__).with_name('relative.py')), table, '--memory',
               '--threads', str(args.threads), '--device', args.device,
               '--dtype', str(args.dtype).removeprefix('torch.'), '--form', args.form]
    for name in ('rows', 'only'):
        if getattr(args, name):
            command += [f'--{name}', *map(str, getattr(args, name))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)
