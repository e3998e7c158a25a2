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
from calls import kinds
from measure import Failed, Run
from torch import Tensor

from mmposenc.attention import attend
from mmposenc.encodings import RelativeEncoding
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


def ours(encoding: RelativeEncoding | None, size: Size, form: str = 'auto', dropout_p: float = 0.0
         ) -> Attention:
    """This project's attention."""
    grids = () if encoding is None else ((size.height, size.width), size.key)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, encoding, *grids, form=form, dropout_p=dropout_p)[0]
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


def in_fresh_process(args: argparse.Namespace) -> list:
    """What the same command measures as peak memory, where no earlier call has left freed memory
    behind."""
    done = subprocess.run([sys.executable, *sys.argv, '--memory'], check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout, object_hook=restored)


def restored(found: dict) -> object:
    """What :func:`as_json` wrote."""
    return Failed(found['failed']) if 'failed' in found else found


def as_json(peaks: list) -> str:
    """For :func:`in_fresh_process`."""
    def plain(value: object) -> object:
        if isinstance(value, Failed):
            return {'failed': value.reason}
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, list) else value
    return json.dumps(plain(peaks))
