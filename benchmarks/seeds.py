"""What experiments with several seeds share: resumable runs, and tables and pictures of them."""
from __future__ import annotations

import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmposenc import engine

#: 'train' or the name of a test -> its config, with a work directory and a name of its own.
Load = Callable[[str], Config]


def loader(config: Path, folder: Path, seed: int, options: dict[str, Any] | None = None) -> Load:
    """How the configs of one run are read: below ``folder``, with its seed and ``options``."""
    def load(purpose: str) -> Config:
        cfg = engine.load_config(str(config))
        # mmengine keeps one logger and one visualizer a name.
        names = {'experiment_name': f'{folder.name}_{purpose}'}
        if cfg.get('visualizer'):
            names['visualizer.name'] = f'{folder.name}_{purpose}'
        engine.override(cfg, {**(options or {}), **names, 'randomness.seed': seed})
        engine.set_work_dir(cfg, str(folder / purpose))
        return cfg
    return load


def add_options(parser: ArgumentParser, data_root: str | None = None) -> None:
    """The arguments that :func:`given_options` reads."""
    parser.add_argument('--data-root', default=data_root, help='where the data set lies')
    parser.add_argument('--epochs', type=int, help="train so long instead of the config's epochs; "
                        "needs a --work-dir of its own")


def given_options(args: Namespace) -> dict[str, Any]:
    """What the data's place and the epochs on the command line change in a config."""
    options: dict[str, Any] = {}
    if args.data_root is not None:
        options = {f'{phase}_dataloader.dataset.data_root': args.data_root
                   for phase in ('train', 'val', 'test')}
    if args.epochs is not None:
        # The warm-up stays; the cosine is param_scheduler's second part.
        options.update({key: args.epochs for key in (
            'train_cfg.max_epochs', 'train_cfg.val_interval', 'param_scheduler.1.end',
            'param_scheduler.1.T_max')})
    return options


def train_once(load: Load) -> tuple[Path, dict[str, Any]]:
    """Trains a model, going on where an interrupted run stopped; its last checkpoint, and what
    tables say about the run: CPU seconds (None when it was interrupted), parameters, epochs."""
    cfg = load('train')
    resumed = any(Path(cfg.work_dir).glob('epoch_*.pth'))
    start = time.process_time()
    runner = engine.train(cfg, resume='auto' if resumed else None)
    seconds = None if resumed else round(time.process_time() - start, 1)
    parameters = sum(p.numel() for p in runner.model.parameters())
    return Path(cfg.work_dir) / f'epoch_{runner.epoch}.pth', dict(
        train_cpu_seconds=seconds, parameters=parameters, epochs=runner.epoch)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation."""
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def cell(values: Sequence[float]) -> str:
    """Mean and, of several values, standard deviation."""
    mean, std = spread(values)
    return f'{mean:.1f} ± {std:.1f}' if len(values) > 1 else f'{mean:.1f}'


def seconds_cell(runs: list[dict[str, Any]]) -> str:
    """Median CPU seconds of training, of the runs that were not interrupted."""
    timed = [each['train_cpu_seconds'] for each in runs if each['train_cpu_seconds']]
    return f'{statistics.median(timed):.0f}' if timed else '-'


def markdown(lines: list[list[str]], text_columns: int) -> str:
    """A markdown table; the first line is its header, columns after the first few are numbers."""
    rule = ['---'] * text_columns + ['---:'] * (len(lines[0]) - text_columns)
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in (lines[0], rule, *lines[1:])) + '\n'


def plot_scales(panels: dict[str, dict[str, list[list[float]]]], scales: Sequence[float],
                path: Path, *, xlabel: str, ylabel: str, colors: dict[str, str]) -> None:
    """One panel a model, one line an encoding, bars of one standard deviation.

    Args:
        panels: title -> label of a line -> for each scale the values of its seeds.
        scales: the x axis.
        path: a PNG.
        xlabel, ylabel: names of the axes.
        colors: of the labels.
    """
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.6), squeeze=False,
                                   sharey=True, layout='constrained')
    for axis, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for number, (label, values) in enumerate(lines.items()):
            points = [spread(each) for each in values]
            shift = 0.008 * (number - len(lines) / 2)  # bars beside each other
            axis.errorbar([scale + shift for scale in scales], [mean for mean, _ in points],
                          [std for _, std in points], label=label, capsize=2, marker='o',
                          markersize=4, color=colors[label])
        axis.set(title=title, xlabel=xlabel, xticks=list(scales))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    axes[0][0].set_ylabel(ylabel)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
