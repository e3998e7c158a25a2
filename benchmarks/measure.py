"""Paired times and peak memory of functions in one process."""
from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable

import torch


def paired_times(runs: dict[str, Callable[[], object]], repeats: int = 9) -> dict[str, float]:
    """Median CPU seconds of each function, called in turn (A, B, A, B, ...) after one warm-up.

    CPU time, not wall time, and neighbours in time: what disturbs one disturbs the others. Once
    the process uses a GPU, wall time with everything finished there.
    """
    times = _interleaved(runs, repeats)
    return {name: statistics.median(values) for name, values in times.items()}


def paired_ratios(runs: dict[str, Callable[[], object]], against: str, repeats: int = 9
                  ) -> dict[str, float]:
    """Median over the rounds of each function's CPU time divided by that of ``against`` in the
    same round."""
    times = _interleaved(runs, repeats)
    base = times[against]
    return {name: statistics.median(a / b for a, b in zip(values, base, strict=True))
            for name, values in times.items()}


def _interleaved(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """CPU seconds of each function in every round, the warm-up left out."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            start = _now()
            run()
            if repeat:
                times[name].append(_now() - start)
    return times


def _now() -> float:
    if not torch.cuda.is_initialized():
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def peak_memory(run: Callable[[], object]) -> int:
    """Bytes that ``run`` needs beyond what is in use before it: the highest resident set while it
    runs. Linux; on a GPU the allocator's own peak."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    _return_freed_memory()
    run()  # so that one-time buffers of the libraries are not counted
    gc.collect()
    _return_freed_memory()
    with open('/proc/self/clear_refs', 'w') as file:
        file.write('5')  # resets VmHWM
    before = _status('VmRSS')
    run()
    return _status('VmHWM') - before


def _return_freed_memory() -> None:
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 256 * 1024)  # M_MMAP_THRESHOLD: larger blocks go back when freed
    libc.malloc_trim(0)


def _status(field: str) -> int:
    with open('/proc/self/status') as file:
        for line in file:
            if line.startswith(field + ':'):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f'/proc/self/status has no {field}')


def matmul_rate(size: int = 1024, seconds: float = 0.5) -> float:
    """Floating-point operations a second of a float32 matrix product, all threads, in CPU time."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    a @ b
    count, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        a @ b
        count += 1
    return 2 * size ** 3 * count / (time.process_time() - start)
