"""What the accelerator's constants of mmposenc/functional/limits.py should be, by training steps.

    python benchmarks/thresholds.py --device cuda --dtype bfloat16      # never tried
    python benchmarks/thresholds.py --tiny     # that it runs; says nothing about a CPU

Each constant is set to several values and the same attention is measured, in turns. A buffer's
value is the smallest that is within 5 % of the fastest. A switch is measured off and on at several
sizes; its value is where it starts to pay, and where it pays nowhere it stays as it is. Nothing is
written: a person compares with the rows above and changes limits.py, naming the table.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

from measure import Run, add_arguments, header, paired_times, parse, peak_memory, row
from relative import TINY, Size, both, make_encoding, make_inputs, ours

from mmposenc.functional import Grid, limits

MIB = 2 ** 20
NEVER = 2 ** 62


class Buffer(NamedTuple):
    """Bytes of a buffer, tried at one size."""

    constant: str
    encoding: str
    form: str
    values: tuple[int, ...] = (4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
    size: Size = Size(2, 8, 50, 84, 32, 0)


class Switch(NamedTuple):
    """Pairs of a head, or bytes of all logits, from which, or up to which, another way is taken."""

    constant: str
    encoding: str
    form: str
    up_to: bool = False
    #: Constants held at other values, so that this one decides.
    held: dict[str, int] = {}


#: PVT's first stage at 800x1344.
REDUCED_SIZE = Size(2, 1, 200, 336, 64, 0, Grid(25, 42, 8.0, 8.0))
LARGE = {'ACCELERATOR_DEFINITION_BYTES': 0}
BUFFERS = (Buffer('ACCELERATOR_PIECE_BYTES', 'IRPE product qkv', 'pieces'),
           Buffer('ACCELERATOR_REDUCED_PIECE_BYTES', 'SASARPE', 'pieces', size=REDUCED_SIZE),
           Buffer('OFFSET_FEATURES_BYTES', 'LogSpacedCPB', 'auto'))
SWITCHES = (Switch('ACCELERATOR_DEFINITION_BYTES', 'IRPE product k', 'auto', up_to=True),
            Switch('ACCELERATOR_DEFINITION_BYTES', 'IRPE product qkv', 'auto', up_to=True),
            Switch('FLEX_FROM', 'RelativePositionBias', 'auto', held=LARGE),
            Switch('FLEX_FROM', 'IRPE product k', 'auto', held=LARGE),
            Switch('RUNS_FROM', 'IRPE product k', 'pieces'),
            Switch('RUNS_WITH_VALUES_FROM', 'IRPE product qkv', 'pieces'),
            Switch('SHIFTS_FROM', 'RelativePositionBias', 'pieces'),
            Switch('HALVES_FROM', 'IRPE cross k', 'auto', held=LARGE))
#: Images, heads, sides of a square grid, channels of a head.
SWITCH_SIZES = tuple(Size(2, 8, side, side, 32, 0) for side in (7, 10, 14, 20, 28, 40, 56))


def with_limits(run: Run, **values: int) -> Run:
    """The same call with other constants."""
    def call() -> None:
        with mock.patch.multiple(limits, **values):
            run()
    return call


def training(encoding: str, form: str, size: Size, args: argparse.Namespace,
             settings: dict[int, dict[str, int]]) -> dict[int, Run]:
    """One training step by each setting."""
    module = make_encoding(encoding, size, args)
    step = both({'ours': ours(module, size, form)}, make_inputs(size, args), module)[1]['ours']
    return {value: with_limits(step, **each) for value, each in settings.items()}


def best_buffer(cost: dict[int, float]) -> int | None:
    """The smallest value within 5 % of the fastest; those that failed are not numbers."""
    known = {value: seconds for value, seconds in cost.items() if seconds == seconds}
    return min((value for value, seconds in known.items()
                if seconds <= 1.05 * min(known.values())), default=None)


def best_switch(ratios: dict[int, float], up_to: bool) -> int | None:
    """Where 'on' starts, or ceases, to be no slower than 'off': ratios of the two by size. None
    where it is slower at the end that matters, or a size failed."""
    sizes = sorted(ratios, reverse=not up_to)
    found = None
    for size in sizes:
        if not ratios[size] <= 1.0:
            break
        found = size
    return found


def buffer(sweep: Buffer, args: argparse.Namespace) -> int | None:
    size = next(iter(TINY.values())) if args.tiny else sweep.size
    runs = training(sweep.encoding, sweep.form, size, args,
                    {value: {sweep.constant: value} for value in sweep.values})
    times = paired_times({str(value): run for value, run in runs.items()}, args.repeats,
                         args.device)
    for value, run in runs.items():
        print(f'| {sweep.constant} | {sweep.encoding}, {sweep.form} | {size.length} | '
              f'{value / MIB:.0f} MiB | {times[str(value)].seconds * 1e3:.3f} | '
              f'{peak_memory(run, args.device) / MIB:.0f} |', flush=True)
    return best_buffer({value: times[str(value)].seconds for value in runs})


def switch(sweep: Switch, args: argparse.Namespace) -> int | None:
    ratios: dict[int, float] = {}
    for size in TINY.values() if args.tiny else SWITCH_SIZES:
        off, on = (0, NEVER) if sweep.up_to else (NEVER, 0)
        runs = training(sweep.encoding, sweep.form, size, args,
                        {0: {**sweep.held, sweep.constant: off},
                         1: {**sweep.held, sweep.constant: on}})
        times = paired_times({str(value): run for value, run in runs.items()}, args.repeats,
                             args.device)
        at = size.length ** 2
        if sweep.constant.endswith('BYTES'):
            at *= size.batch * size.heads * (4 if args.dtype == 'float32' else 2)
        ratios[at] = times['1'].ratio
        for value, run in runs.items():
            print(f'| {sweep.constant} | {sweep.encoding}, {sweep.form} | {size.length} | '
                  f'{("off", "on")[value]} | {times[str(value)].seconds * 1e3:.3f} | '
                  f'{peak_memory(run, args.device) / MIB:.0f} |', flush=True)
    return best_switch(ratios, sweep.up_to)


def main() -> None:
    """The rows, then what follows from them."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, repeats=7)
    parser.add_argument('--only', nargs='*', help='parts of the names of constants')
    args = parse(parser)
    print(header(args))
    print('| constant | encoding, form | L | value | training, ms | MiB |')
    print('|---|---|---|---|---|---|')
    found: list[tuple[str, str, int | None]] = []
    sweeps: list[tuple[Buffer | Switch, Callable[..., int | None]]] = [
        *((each, buffer) for each in BUFFERS), *((each, switch) for each in SWITCHES)]
    for sweep, measure in sweeps:
        if not args.only or any(part in sweep.constant for part in args.only):
            with row(sweep.constant, f'{sweep.encoding}, {sweep.form}'):
                found.append((sweep.constant, sweep.encoding, measure(sweep, args)))
    print('\n| constant of limits.py | now | by these rows | rows |\n|---|---|---|---|')
    for constant, encoding, value in found:
        new = 'as it is: no size decides' if value is None else f'{value}'
        print(f'| {constant} | {getattr(limits, constant)} | {new} | {encoding} |', flush=True)


if __name__ == '__main__':
    main()
