"""A whole training by mmposenc train, and by the library's own tools/train.py: seconds from the
command to the first step, of a step and of the validation, and peak memory of the main process.

Each config of mmdet is trained for some steps on data/trees in three ways: 'ours', and in the
library's loop with classes of this project ('loop') and with its own ('theirs').

    mmposenc prepare trees
    python benchmarks/whole_training.py
"""
from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

#: Config, the key of the class that this project has too, and steps.
CASES = {'RetinaNet PVT-tiny': ('mmdet::pvt/retinanet_pvt-t_fpn_1x_coco.py', 'model.backbone', 30),
         'DETR-R50': ('mmdet::detr/detr_r50_8xb2-150e_coco.py', 'model', 20)}
WAYS = ('ours', 'loop', 'theirs')


@HOOKS.register_module(force=True)  # The program reads configs, too, that import this file.
class Times(Hook):
    """Writes down when steps and the validation end, and the peak of memory."""
    priority = 'LOWEST'

    def before_run(self, runner: Runner) -> None:
        self.ends: list[float] = []

    def after_train_iter(self, runner: Runner, batch_idx: int, *_: Any, **__: Any) -> None:
        self.ends.append(time.time())

    def after_val(self, runner: Runner) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        Path(runner.work_dir, 'times.json').write_text(json.dumps(
            dict(ends=self.ends, validated=time.time(), peak=peak)))


def config(name: str, way: str, size: int) -> Config:
    """mmdet's config with its own classes, or with one of this project."""
    from mmposenc.commands.train import parse_args
    from mmposenc.engine.config.nodes import value_at
    from mmposenc.engine.variants.applying import read_encoded_config
    path, key, steps = CASES[name]
    cfg = read_encoded_config(parse_args([
        path, '--data', 'data/trees', '--size', str(size), '--cfg-options', 'randomness.seed=0',
        'train_dataloader.batch_size=2', 'model.backbone.init_cfg=None']))
    cfg.train_cfg = dict(type='IterBasedTrainLoop', max_iters=steps, val_interval=steps)
    cfg.param_scheduler = []
    cfg.custom_hooks = [dict(type='Times')]
    cfg.custom_imports = dict(imports=['mmposenc', 'whole_training'])
    if way == 'theirs':
        return Config.fromstring(cfg.pretty_text.replace("'mmposenc.", "'"), '.py')
    part = value_at(cfg, key)
    part.type = f'mmposenc.{part.type}'
    return cfg


def train(name: str, way: str, size: int) -> dict[str, float]:
    """What one training takes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, 'config.py')
        config(name, way, size).dump(file)
        command = ['train'] if way == 'ours' else ['run', 'mmdet::tools/train.py']
        start = time.time()
        subprocess.run(['mmposenc', *command, str(file), '--work-dir', folder], check=True,
                       env={**os.environ, 'PYTHONPATH': str(Path(__file__).parent)},
                       stdout=subprocess.DEVNULL)
        found = json.loads(Path(folder, 'times.json').read_text())
    first, *_, last = ends = found['ends']
    return {'first step, s': first - start, 'validation, s': found['validated'] - last,
            'step, s': median(b - a for a, b in zip(ends, ends[1:], strict=False)),
            'peak, MiB': found['peak']}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--case', nargs='+', choices=CASES, default=list(CASES))
    parser.add_argument('--rounds', type=int, default=2)
    parser.add_argument('--size', type=int, default=320, help='shorter side in pixels')
    args = parser.parse_args()
    print('config,by,"first step, s","validation, s","step, s","peak, MiB"')
    for name in args.case:
        runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for turn in range(args.rounds):
            for way in WAYS[turn % 3:] + WAYS[:turn % 3]:
                runs[way].append(train(name, way, args.size))
        for way, found in runs.items():
            told = {key: median(run[key] for run in found) for key in found[0]}
            print(f'{name},{way},' + ','.join(f'{each:.3g}' if each < 100 else f'{each:.0f}'
                                              for each in told.values()), flush=True)


if __name__ == '__main__':
    sys.exit(main())
