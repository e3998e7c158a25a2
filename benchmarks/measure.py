"""The one place that knows how to measure, on a CPU and on a GPU: options, header, times, memory.

On a CPU a time is CPU time of one call, and memory the highest resident set above that before the
call. On a GPU a time lies between two CUDA events round as many calls as take 20 ms, and memory is
the allocator's peak less what is held before; the warm-up has allocated the workspace of cuBLAS.
What cannot run (a dtype, a kernel, too little memory) stands in the table as "failed: reason".
"""
from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import math
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

Run = Callable[[], object]
DTYPES = ('float32', 'bfloat16', 'float16')
#: Calls before anything is measured, and seconds of a sample, on a GPU.
WARM_UP, SAMPLE_SECONDS = 3, 0.02


class Failed(float):
    """What stands for a number that could not be measured, and for what is computed from it."""

    def __new__(cls, reason: str) -> Failed:
        self = super().__new__(cls, 'nan')
        self.reason = reason
        return self

    def __format__(self, spec: str) -> str:
        return f'failed: {self.reason}'

    def __truediv__(self, other: object) -> Failed:
        return self

    __rtruediv__ = __mul__ = __rmul__ = __truediv__


class Paired(NamedTuple):
    """Median seconds of a call; median, least and largest of its ratios to the first run's within
    each round."""

    seconds: float
    ratio: float
    least: float
    largest: float

    def ratio_and_spread(self) -> str:
        """The ratio, with the least and the largest of a round."""
        return f'{self.ratio:.2f} ({self.least:.2f} to {self.largest:.2f})'


def add_arguments(parser: argparse.ArgumentParser, *, repeats: int,
                  dtypes: tuple[str, ...] = ('float32',)) -> None:
    """What every benchmark takes; several ``dtypes`` by default where rows compare them."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument('--device', choices=('cpu', 'cuda'), default='cpu')
    several = dict(nargs='+', default=list(dtypes)) if len(dtypes) > 1 else dict(default=dtypes[0])
    parser.add_argument('--dtype', choices=DTYPES, **several)
    parser.add_argument('--repeats', type=int, default=repeats, help='rounds')
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--tiny', action='store_true', help='the smallest sizes and one round, to '
                        'see that it runs')


def parse(parser: argparse.ArgumentParser, argv: list[str] | None = None) -> argparse.Namespace:
    """The arguments, with what they ask for set up.

    Raises:
        SystemExit: for a GPU that is not there.
    """
    args = parser.parse_args(argv)
    if args.device == 'cuda' and not torch.cuda.is_available():
        parser.error('--device cuda needs torch.cuda.is_available(), which is False here')
    if args.tiny:
        args.repeats = 1
    torch.set_num_threads(args.threads)
    from torch._dynamo import config  # takes a second: not for --help
    config.fail_on_recompile_limit_hit = True  # and not silently uncompiled
    return args


def header(args: argparse.Namespace) -> str:
    """Where a table was made and how: stands above it."""
    # Imported here, because its package imports OpenMMLab, which --help does without.
    from mmposenc.lab.compare.running.recording import cpu_name
    device = (torch.cuda.get_device_name() if args.device == 'cuda' else
              f'{cpu_name()}, threads: {args.threads}')
    dtypes = args.dtype if isinstance(args.dtype, list) else [args.dtype]
    command = shlex.join([f'benchmarks/{Path(sys.argv[0]).name}', *sys.argv[1:]])
    return f'{device}; torch {torch.__version__}; {", ".join(dtypes)}: `python {command}`\n'


def reason(error: Exception) -> str:
    """An error as one cell of a table."""
    first = (str(error).strip() or 'no message').splitlines()[0].replace('|', '/')
    return f'{type(error).__name__}: {first[:100]}'


@contextlib.contextmanager
def row(*cells: object) -> Iterator[None]:
    """One row, or a few that belong together: what was compiled before is forgotten, and where
    they cannot be made at all, one row of ``cells`` says why."""
    from torch._dynamo import reset
    reset()
    try:
        yield
    except Exception as error:  # kernels, compilers and memory fail in ways of their own
        print(f'| {" | ".join(map(str, cells))} | failed: {reason(error)} |', flush=True)
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def paired_times(runs: Mapping[str, Run], repeats: int, device: str) -> dict[str, Paired]:
    """Times of functions called in turn (A, B, A, B, ...) after a warm-up: what disturbs one
    disturbs the others."""
    calls = {name: _warm_up(run, device) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            failed = calls[name]
            times[name].append(failed if isinstance(failed, Failed)
                               else _sample(run, device, failed))
    base = next(iter(times.values()))
    ratios = {name: [a / b for a, b in zip(each, base, strict=True)]
              for name, each in times.items()}
    return {name: Paired(_median(times[name]), _median(each), min(each), max(each))
            for name, each in ratios.items()}


def difference(run: Callable[[], Tensor], expected: Tensor, most: float) -> float:
    """Largest difference over the largest value; failed where it is more than ``most``."""
    try:
        found = (run().float() - expected.float()).abs().max() / expected.abs().max()
    except Exception as error:  # as in a row
        return Failed(reason(error))
    return float(found) if float(found) <= most else Failed(f'differs by {float(found):.0e}')


def _median(values: list[float]) -> float:
    failed = [value for value in values if isinstance(value, Failed)]
    return failed[0] if failed else statistics.median(values)


def _warm_up(run: Run, device: str) -> int | Failed:
    """How many calls make a sample, or why there are none."""
    try:
        for _ in range(WARM_UP if device == 'cuda' else 1):
            run()
        if device == 'cpu':
            return 1
        return max(1, math.ceil(SAMPLE_SECONDS / max(_sample(run, device, 1), 1e-6)))
    except Exception as error:  # as in a row
        found = Failed(reason(error))
    gc.collect()
    if device == 'cuda':
        torch.cuda.empty_cache()
    return found


def _sample(run: Run, device: str, calls: int) -> float:
    """Seconds of one of several calls."""
    if device == 'cpu':
        start = time.process_time()
        for _ in range(calls):
            run()
        return (time.process_time() - start) / calls
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(calls):
        run()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / calls


def peak_memory(run: Run, device: str) -> float:
    """Bytes that ``run`` needs beyond what is held before it. On a CPU, Linux alone."""
    try:
        return _peak_memory(run, device)
    finally:
        if device == 'cpu':
            _keep_freed_memory()


def _peak_memory(run: Run, device: str) -> float:
    if device == 'cpu':
        _return_freed_memory()
    failed = _warm_up(run, device)  # so that one-time buffers of the libraries are not counted
    if isinstance(failed, Failed):
        return failed
    gc.collect()
    if device == 'cuda':
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    _return_freed_memory()
    with open('/proc/self/clear_refs', 'w') as file:
        file.write('5')  # resets VmHWM
    before = _status('VmRSS')
    run()
    return _status('VmHWM') - before


def _keep_freed_memory() -> None:
    """The largest thresholds that malloc chooses by itself, so that what is timed after a peak does
    not pay for memory that went back to the system."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 32 * 2 ** 20)  # M_MMAP_THRESHOLD
    libc.mallopt(-1, 64 * 2 ** 20)  # M_TRIM_THRESHOLD


def _return_freed_memory() -> None:
    libc = ctypes.CDLL(None)
    libc.mallopt(-1, 128 * 1024)  # M_TRIM_THRESHOLD
    libc.mallopt(-3, 256 * 1024)  # M_MMAP_THRESHOLD: larger blocks go back when freed
    libc.malloc_trim(0)


def _status(field: str) -> int:
    with open('/proc/self/status') as file:
        for line in file:
            if line.startswith(field + ':'):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f'/proc/self/status has no {field}')


def kinds(runs: Mapping[str, Callable[[], Tensor]], leaves: Sequence[Tensor], grad: Tensor
          ) -> dict[str, dict[str, Run]]:
    """Each run without gradients, and with the backward pass from ``grad`` to all leaves that it
    reaches. Gradients are given back, not kept: every call is like the first."""
    def inference(run: Callable[[], Tensor]) -> Run:
        def call() -> None:
            with torch.no_grad():
                run()
        return call

    def training(run: Callable[[], Tensor]) -> Run:
        return lambda: torch.autograd.grad(run(), leaves, grad, allow_unused=True)
    return {'inference': {name: inference(run) for name, run in runs.items()},
            'training': {name: training(run) for name, run in runs.items()}}


def model_step(model: nn.Module, loss: Callable[[], Tensor], mode: str, device: str,
               dtype: torch.dtype, inputs: Sequence[Tensor] = ()) -> Run:
    """A training step without the optimizer, with gradients of the weights and of ``inputs``, or a
    forward pass in evaluation mode; half precision is autocast, weights float32."""
    leaves = [*(p for p in model.parameters() if p.requires_grad), *inputs]

    def run() -> None:
        model.train(mode == 'training')
        with torch.autocast(device, dtype, enabled=dtype != torch.float32), \
                torch.set_grad_enabled(mode == 'training'):
            value = loss()
        if mode == 'training':
            torch.autograd.grad(value, leaves, allow_unused=True)
    return run
