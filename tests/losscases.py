"""Training steps of narrow models, with draws that do not depend on a batch; run as a script, two
processes compare models that padding is kept out of with the models without padding."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tinyfamilies as families
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mmposenc.padding import keep_padding_out, losses

#: Pictures (height, width, seed) of one size and of two; seeds of those without objects.
SIZES = [(96, 128, 0), (96, 128, 1)]
PAIR = [(97, 122, 0), (128, 86, 1)]
EMPTY = (1,)
Found = tuple[float, dict[str, Tensor]]


class Doubled(TorchFunctionMode):
    """Within it, what asks for float32 by name gets float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def wide(value):
            return torch.float64 if value is torch.float32 else value
        func = torch.Tensor.double if func is torch.Tensor.float else func
        return func(*map(wide, args), **{key: wide(each) for key, each in (kwargs or {}).items()})


@contextmanager
def float64() -> Iterator[None]:
    """All of mmdet's and mmseg's code in float64. A gradient jumps where the input of a ReLU, or of
    a sampling that is linear between cells, changes sides; in float32, two ways to one result round
    to either side of one of a million such inputs, each processor its own."""
    torch.set_default_dtype(torch.float64)
    try:
        with Doubled():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def build(name: str) -> nn.Module:
    """A model on a ResNet-50, as :func:`training` makes it."""
    return training(families.build(name, 'ResNet-50'))


def training(model: nn.Module) -> nn.Module:
    """A model that trains, without dropout, and whose BatchNorms do not."""
    for module in model.train().modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
        elif isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    model.data_preprocessor.batch_augments = None  # which pad
    setattr(model.data_preprocessor, 'pad_size_divisor' if hasattr(
        model.data_preprocessor, 'pad_size_divisor') else 'size_divisor', 32)
    return model


def padded(model: nn.Module, sizes: list[Any], empty: tuple[int, ...] = (), border: int = 0,
           junk: float | None = None) -> dict[str, Any]:
    """Losses of a batch that ends in so many more rows and columns of junk."""
    data = families.batch(model, sizes, junk, training=True)
    noted = getattr(data['inputs'], 'img_shapes', None)
    dtype = next(model.parameters()).dtype
    data['inputs'] = F.pad(data['inputs'].to(dtype), (0, border, 0, border), value=1e3)
    if noted is not None:
        data['inputs'].img_shapes = noted
    for sample, (_, _, seed) in zip(data['data_samples'], sizes, strict=True):
        if seed in empty and 'gt_instances' in sample:
            sample.gt_instances = sample.gt_instances[torch.zeros(2, dtype=torch.bool)]
    torch.manual_seed(0)
    draw = torch.rand

    def points(*size: Any, **kwargs: Any) -> Tensor:
        """Those of masks, (N, points, 2), are the same for all."""
        size = size[0] if isinstance(size[0], (tuple, torch.Size)) else size
        if len(size) != 3:
            return draw(*size, **kwargs)
        return draw(1, *size[1:], generator=torch.Generator().manual_seed(7)).repeat(size[0], 1, 1)
    torch.rand = points  # type: ignore[assignment]
    try:
        return model(**data, mode='loss')  # type: ignore[no-any-return]
    finally:
        torch.rand = draw


def found(model: nn.Module, *args: Any, **kwargs: Any) -> Found:
    """The loss of :func:`padded` and its gradients."""
    model.zero_grad()
    loss = families.total(padded(model, *args, **kwargs)).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), {key: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                         for key, p in model.named_parameters()}


def assert_close(got: Found, want: Found, most: float = 1e-6) -> None:
    """Losses, and gradients by the norm of all."""
    norm = sum(grad.square().sum() for grad in want[1].values()) ** 0.5
    assert abs(got[0] - want[0]) <= most * abs(want[0]), (got[0], want[0])
    for key, grad in want[1].items():
        assert (got[1][key] - grad).norm() <= most * norm, (key, (got[1][key] - grad).norm() / norm)


def work(rank: int, out: str) -> None:
    """One has two pictures that go one by one, the other has one."""
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'file://{out}/meet', rank=rank, world_size=2)
    sizes = [SIZES, [(64, 96, 2)]][rank]
    losses._one_size = lambda images: rank == 1  # type: ignore[assignment]
    for name in ('FCOS', 'Deformable DETR', 'Mask2Former'):
        with float64():
            want = found(build(name), sizes, EMPTY)
            kept = keep_padding_out(build(name))
            assert_close(found(kept, sizes, EMPTY, border=32), want)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    mp.start_processes(work, (sys.argv[1],), nprocs=2, start_method='fork')
