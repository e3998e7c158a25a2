"""CPU seconds of a training step on kept features against the same step with its backbone.

Three trainings of the same images in one process: with the backbone in every step (float32, as a
config without the hook does), filling the folder, and reading it. Data loading is part of a step.

    python benchmarks/feature_cache.py --data-root CAMVID [--images 120]
"""
from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from mmengine.hooks import Hook

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc import engine

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / 'configs' / 'segmentation' / 'small' / 'linear_vit-s14_camvid.py'
WARM_UP = 5


class Clock(Hook):
    """Notes the CPU time of this process after every step."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def after_train_iter(self, *args: Any, **kwargs: Any) -> None:
        self.times.append(time.process_time())

    def step(self) -> float:
        """Median CPU seconds of a step, data included."""
        times = self.times[WARM_UP:]
        return statistics.median(b - a for a, b in zip(times, times[1:], strict=False))


def train(name: str, args: argparse.Namespace, folder: str, *, kept: bool) -> float:
    """CPU seconds of a step of one epoch."""
    cfg = engine.load_config(str(args.config))
    images = {'train_dataloader.dataset.indices': args.images, 'train_cfg.max_epochs': 1}
    if args.data_root:
        images.update({f'{phase}_dataloader.dataset.data_root': args.data_root
                       for phase in ('train', 'val', 'test')})
    engine.override(cfg, {**images, 'experiment_name': name, 'visualizer.name': name})
    cfg.train_dataloader.num_workers, cfg.train_dataloader.persistent_workers = 0, False
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.custom_hooks = [dict(hook, folder=f'{folder}/features') if 'Feature' in hook.type else hook
                        for hook in cfg.custom_hooks if kept or 'Feature' not in hook.type]
    engine.set_work_dir(cfg, f'{folder}/{name}')
    engine.prepare_training(cfg)
    runner, clock = engine.build_runner(cfg), Clock()
    runner.register_hook(clock, priority='LOWEST')
    runner.train()
    return clock.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--config', type=Path, default=CONFIG)
    parser.add_argument('--data-root')
    parser.add_argument('--images', type=int, default=120)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        backbone = train('backbone', args, folder, kept=False)
        filling = train('filling', args, folder, kept=True)
        reading = train('reading', args, folder, kept=True)
    print('| | CPU s a step | of the backbone\'s |\n| --- | ---: | ---: |')
    for title, value in (('with the backbone', backbone), ('filling the folder', filling),
                         ('reading it', reading)):
        print(f'| {title} | {value:.3f} | {value / backbone:.2f} |')


if __name__ == '__main__':
    main()
