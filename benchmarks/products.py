"""The matrix products of a model, and how long they take when nothing else is done."""
from __future__ import annotations

import math
import time
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mmposenc.functional.linear import linear

#: Numbers of one result worked on at a time, so that it stays in the cache.
SLICE = 2 ** 18
ATEN = torch.ops.aten


class Products(TorchDispatchMode):
    """Counts products (batch, m, k, n) of what runs inside: (m, k) times (k, n), batch times."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[int, int, int, int]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func.overloadpacket
        if packet in (ATEN.mm, ATEN.bmm):
            self._add(args[0], args[1])
        elif packet in (ATEN.addmm, ATEN.baddbmm):
            self._add(args[1], args[2])
        elif 'linear_pointwise' in str(packet):
            self._add(args[0].flatten(0, -2), args[1].t())
        elif packet == ATEN.convolution:
            weight = args[1]
            self.counts[args[8], out.numel() // out.shape[1], weight[0].numel(),
                        weight.shape[0] // args[8]] += 1
        elif 'scaled_dot_product' in str(packet):
            query, key = args[:2]
            batch, length, dims = query[..., 0, 0].numel(), query.shape[-2], query.shape[-1]
            self.counts[batch, length, dims, key.shape[-2]] += 1
            self.counts[batch, length, key.shape[-2], dims] += 1
        return out

    def _add(self, a: Tensor, b: Tensor) -> None:
        self.counts[(math.prod(a.shape[:-2]), *a.shape[-2:], b.shape[-1])] += 1


def products(model: nn.Module, images: Tensor) -> Counter[tuple[int, int, int, int]]:
    """The products of one forward pass."""
    with Products() as found, torch.no_grad():
        model(images)
    return found.counts


def product_seconds(counts: Counter[tuple[int, int, int, int]], dtype: torch.dtype, *,
                    training: bool) -> float:
    """CPU seconds of the products, operands and results in the cache; ``training`` adds the two
    that each has in the backward pass."""
    total = 0.0
    for (batch, m, k, n), count in counts.items():
        total += count * _seconds(batch, m, k, n, dtype)
        if training:
            total += count * (_seconds(batch, m, n, k, dtype) + _seconds(batch, k, m, n, dtype))
    return total


def _seconds(batch: int, m: int, k: int, n: int, dtype: torch.dtype) -> float:
    """One product, from the time of a slice of it, by the faster of PyTorch's two libraries."""
    rows, depth = min(m, max(1, SLICE // n)), min(k, 2048)
    a, b = torch.randn(rows, depth).to(dtype), torch.randn(n, depth).to(dtype)
    with torch.no_grad():
        linear(a, b)
        done, start = 0, time.process_time()
        while done < 3 or time.process_time() - start < 0.02:
            linear(a, b)
            done += 1
        seconds = (time.process_time() - start) / done
    return seconds * batch * m * k / (rows * depth)
