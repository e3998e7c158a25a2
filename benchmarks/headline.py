"""The table of README on your processor: DeiT first (a minute), then the longer ones, each row as
soon as it is measured. Use a quiet machine.

    python benchmarks/headline.py                                  # float32, one thread
    python benchmarks/headline.py --dtype bfloat16 --threads 2
    ATEN_CPU_CAPABILITY=avx2 python benchmarks/headline.py         # as without AVX-512
    python benchmarks/headline.py --case 'RT-DETR-R18 640x640'     # with transformers installed

Each cell is our time as a share of the peer's, training / inference: the median of rounds in turns,
and the least and largest of a round. Two runs on one machine differ by up to 0.08.
"limit" is the share that the peer's linear layers and convolutions take alone, each by the faster
of MKL and oneDNN: no implementation can be below it. The products of attention, which are not
counted, come on top: half of our step of PVT, an eighth of that of DeiT (Zen 4). "memory" is the
share of the peer's peak.
"""
from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import torch
from measure import (
    add_arguments,
    header,
    model_step,
    paired_times,
    parse,
    peak_memory,
    row,
)
from mmengine.logging import MMLogger
from models import CASES, MODES, loss_of, prepared
from torch.utils._python_dispatch import TorchDispatchMode

from mmposenc.functional.linear import onednn_product

SHOWN = ('DeiT-S 224', 'PVT-tiny 800x1344', 'Swin-T 800x1344')
aten = torch.ops.aten
#: Products with weights, which no implementation can do without.
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.convolution.default,
            aten.convolution_backward.default)


class Products(TorchDispatchMode):
    """Counts the products of a call, and keeps the arguments of one of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.calls: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in PRODUCTS:
            sizes = [(tuple(each.shape), each.stride()) if isinstance(each, torch.Tensor) else each
                     for each in args]
            kind = repr((func, sizes))
            self.counts[kind] += 1
            self.calls[kind] = func, args, kwargs or {}
        return func(*args, **(kwargs or {}))


def fastest(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], repeats: int) -> float:
    """Seconds of a product by the faster library."""
    runs = [lambda: func(*args, **kwargs)]
    if func in (aten.mm.default, aten.addmm.default):
        left, right = args[-2:]
        weight = right.t().contiguous()
        runs.append(lambda: onednn_product(left, weight, None))
    with torch.no_grad():
        return min(paired_times({'run': run}, repeats, 'cpu')['run'].seconds for run in runs)


def measure(name: str, args: argparse.Namespace) -> str:
    """The row of one case."""
    case, dtype = CASES[name], getattr(torch, args.dtype)
    sizes = (1, 224, 224) if args.tiny else (case.batch, case.height, case.width)
    models, images = prepared(case, *sizes)
    ratios, limits, memory = [], [], []
    for mode in MODES:
        peer, ours = (model_step(model, loss_of(model, images, case.padding, mode), mode, 'cpu',
                                 dtype)
                      for model in list(models.values())[:2])
        times = paired_times({'peer': peer, 'ours': ours}, args.repeats, 'cpu')
        ratios.append(times['ours'].ratio_and_spread())
        with Products() as products:
            peer()
        limits.append(sum(count * fastest(*products.calls[kind], repeats=3)
                          for kind, count in products.counts.items()) / times['peer'].seconds)
        memory.append(peak_memory(ours, 'cpu') / peak_memory(peer, 'cpu'))
    cells = (' / '.join(f'{value:.2f}' for value in each) for each in (limits, memory))
    return f'| {name} | {" / ".join(ratios)} | {" | ".join(cells)} |'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, repeats=5)
    parser.add_argument('--case', choices=sorted(CASES), action='append',
                        help='instead of those of the table')
    args = parse(parser)
    MMLogger.get_current_instance().setLevel('ERROR')  # which weights an encoding adds
    print(f'{torch.backends.cpu.get_cpu_capability()}; {header(args)}')
    print('| model | time, training / inference | limit | memory |\n|---|---|---|---|')
    for name in args.case or SHOWN:
        with row(name):
            print(measure(name, args), flush=True)


if __name__ == '__main__':
    main()
