"""What a model costs by the size of its images."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .writing import save_figure


def plot_by_size(counts: Sequence[Any], timings: Sequence[Any], path: Path, title: str) -> None:
    """Draws multiply-accumulates, activations and, where it was measured, time over the pixels.

    Args:
        counts: of one model, at two sizes or more (``Complexity`` of mmposenc.engine.apps).
        timings: of the same sizes (``Timing``), or none.
        path: of the figure: .png, .pdf or .svg.
        title: which model.
    """
    from matplotlib.figure import Figure

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
