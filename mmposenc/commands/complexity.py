"""Count the parameters, multiply-accumulates and activations of the model of a config.

    mmposenc complexity CONFIG --size 800 1344
    mmposenc complexity CONFIG --size 224 --size 448 --size 800 1344 --time --plot by_size.svg

Counts are for one image and include heads; attention and encodings count by their definition.
Several sizes give a table. docs/complexity.md says what is counted.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..command_line import reported
from ..command_options import INDEX, SIDE, config_parser, refuse_without, sides

if TYPE_CHECKING:
    from ..engine.apps.complexity import Complexity, Timing


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = config_parser(__doc__, 'model.backbone.arch=small', prog='mmposenc complexity')
    parser.add_argument('--size', type=SIDE, nargs='+', action='append', required=True,
                        metavar='N', help="size of the model's input after padding: H W, or one "
                        'number for a square; may be repeated')
    parser.add_argument('--depth', type=INDEX, default=2, help='depth of the tree of modules; '
                        'default 2')
    parser.add_argument('--time', action='store_true', help='time passes with random weights')
    parser.add_argument('--device', help="device for --time: 'cpu', 'cuda:1'; default: a GPU if "
                        'there is one')
    parser.add_argument('--json', action='store_true', help='print the counts as json')
    parser.add_argument('--plot', metavar='FILE', help='plot by size: .png, .pdf or .svg')
    args = parser.parse_args(argv)
    args.size = [sides(parser, size) for size in args.size]
    if args.plot and len(args.size) < 2:
        parser.error('--plot needs two sizes or more')
    if not args.time:
        refuse_without(parser, args, '--time', 'device')
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    # The output of libraries must not mix with the json on standard output.
    with reported(args), contextlib.redirect_stdout(sys.stderr):
        from ..engine.apps.complexity import count, measure_time
        from ..engine.config.checks import check_folder
        from ..engine.config.models import device_of
        from ..engine.config.options import read_config
        from ..lab.figures.panels import checked_path
        cfg = read_config(args)
        plot = None if args.plot is None else checked_path(args.plot, '--plot')
        if plot is not None:
            check_folder(str(plot.parent), '--plot')
        device = device_of(args.device) if args.time else None
        counts = [count(cfg, size) for size in args.size]
        timings = [] if device is None else [measure_time(cfg, size, device) for size in args.size]
        if plot is not None:
            plot_by_size(counts, timings, plot, Path(args.config).stem)
    print(as_json(args.config, counts, timings) if args.json
          else as_text(counts, timings, args.depth))


def as_json(config: str, counts: list[Complexity], timings: list[Timing]) -> str:
    sizes = [{**each._asdict(), 'parts': [part._asdict() for part in each.parts]}
             for each in counts]
    for size, timing in zip(sizes, timings, strict=False):
        size['time'] = timing._asdict()
    return json.dumps({'config': config, 'sizes': sizes}, indent=1)


def as_text(counts: list[Complexity], timings: list[Timing], depth: int) -> str:
    lines = []
    if len(counts) == 1:
        lines = tree(counts[0], depth)
    else:
        lines.append(f'{"size":<14}{"MACs (G)":>12}{"activations (M)":>18}'
                     + f'{"seconds":>12}' * bool(timings))
        for i, each in enumerate(counts):
            whole = each.parts[0]
            lines.append(f'{"{} x {}".format(*each.hw_shape):<14}{whole.macs / 1e9:>12.3f}'
                         f'{whole.activations / 1e6:>18.3f}'
                         + (f'{timings[i].seconds:>12.4f}' if timings else ''))
        lines.append(f'parameters: {counts[0].parts[0].parameters:,}')
    for i, timing in enumerate(timings[:1]):
        where = (f'{timing.device}, {timing.threads} threads' if timing.device == 'cpu'
                 else timing.device)
        lines.append(f'time: {timing.seconds:.4f} s an image of {counts[i].hw_shape}, median of '
                     f'{timing.passes} passes, {where}' * (len(timings) == 1)
                     or f'time: median of {timing.passes} passes, {where}')
        if timing.peak_bytes is not None:
            lines.append(f'peak memory: {timing.peak_bytes / 2 ** 20:.0f} MiB')
    return '\n'.join(lines + uncounted(counts))


def tree(counted: Complexity, depth: int) -> list[str]:
    """The modules down to a depth, indented."""
    height, width = counted.hw_shape
    rows = [('', f'one image of {height} x {width}', *counted.parts[0][1:])]
    for part in counted.parts[1:]:
        level = part.name.count('.') + 1
        if level <= depth:
            rows.append((part.name, '  ' * level + part.name.rpartition('.')[2], *part[1:]))
    wide = max(len(row[1]) for row in rows) + 2
    head = f'{"":<{wide}}{"parameters":>14}{"MACs (M)":>14}{"activations (M)":>17}'
    return [head, *(f'{label:<{wide}}{parameters:>14,}{macs / 1e6:>14,.1f}{given / 1e6:>17,.2f}'
                    for _, label, parameters, macs, given in rows)]


def uncounted(counts: list[Complexity]) -> list[str]:
    """The lines that name what was not counted, and why a count is of random weights."""
    lines = []
    for title, key in (('count nothing, as in the papers', 'by_convention'),
                       ('NOT COUNTED', 'uncounted')):
        names = sorted({name for each in counts for name in getattr(each, key)})
        if names:
            lines.append(f'{title}: {", ".join(names)}')
    for note in dict.fromkeys(each.note for each in counts if each.note):
        lines.append(f'counted in a pass of random weights on the CPU (meta device: {note})')
    return lines


def plot_by_size(counts: Sequence[Complexity], timings: Sequence[Timing], path: Path,
                 title: str) -> None:
    """Draws multiply-accumulates, activations and, where it was measured, time over the pixels.

    Args:
        counts: of one model, at two sizes or more (``Complexity`` of mmposenc.engine.apps).
        timings: of the same sizes (``Timing``), or none.
        path: of the figure: .png, .pdf or .svg.
        title: which model.
    """
    from matplotlib.figure import Figure

    from ..lab.figures.panels import save_figure

    area = [each.hw_shape[0] * each.hw_shape[1] / 1e6 for each in counts]
    ordered = sorted(range(len(counts)), key=area.__getitem__)
    rows: list[tuple[str, Callable[[int], float]]] = [
        ('multiply-accumulates (G)', lambda i: counts[i].parts[0].macs / 1e9),
        ('activations (M)', lambda i: counts[i].parts[0].activations / 1e6)]
    if timings:
        rows.append((f'seconds an image ({timings[0].device}, {timings[0].threads} threads)',
                     lambda i: timings[i].seconds))
    figure = Figure(figsize=(4 * len(rows), 3.4), layout='constrained')
    for axes, (label, value) in zip(figure.subplots(1, len(rows)), rows, strict=True):
        axes.plot([area[i] for i in ordered], [value(i) for i in ordered], marker='o')
        axes.set(xlabel='pixels (M)', ylabel=label, ylim=(0, None), xlim=(0, None))
    figure.suptitle(title)
    save_figure(figure, path)
