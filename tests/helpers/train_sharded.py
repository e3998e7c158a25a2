"""Started by tests/engine/training/test_sharding.py: trains a tiny detector in two processes by
DistributedDataParallel and by FSDP2, from the start and resumed. Processes are forked, so that
OpenMMLab is imported once."""
import os
import shutil
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from mmengine.hooks import Hook
from mmengine.registry import HOOKS

import mmposenc  # noqa: F401
from helpers import killed_trainings
from helpers.tiny_data import tiny_detector
from mmposenc import engine
from mmposenc.engine.training import sharding  # noqa: F401

#: mmengine's FlexibleRunner seeds by the process, our loops by the image: nothing is drawn.
OPTIONS = {'optim_wrapper.optimizer.lr': 0.01, 'param_scheduler': None, 'randomness.seed': 1,
           'train_cfg.max_epochs': 2, 'model.backbone.drop_path_rate': 0.0,
           'train_dataloader.dataset.pipeline.2.prob': 0.0,
           'train_dataloader.sampler.shuffle': False, 'val_dataloader': None, 'val_cfg': None,
           'val_evaluator': None, 'log_level': 'WARNING'}
SPREAD = {'runner_type': 'mmposenc.FlexibleRunner',
          'strategy': dict(type='mmposenc.FSDP2Strategy', min_parameters=500)}
#: Folder of each training: what is changed in the config, and whether it is resumed.
RUNS: dict[str, tuple[dict[str, Any], bool]] = {
    'whole': ({}, False), 'spread': (SPREAD, False), 'resumed': (SPREAD, True),
    'bad': ({**SPREAD, 'custom_hooks': [dict(type='BadGradient')]}, False)}
#: Its second half is the second process's.
BAD = 'bbox_head.retina_cls.weight'


class BadGradient(Hook):
    """The second iteration's gradient of one weight is not a number, in the second process's part.
    """

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        if runner.iter == 1 and runner.rank == 1:
            runner.optim_wrapper.step = self.spoiled(runner, runner.optim_wrapper.step)

    @staticmethod
    def spoiled(runner: Any, step: Any) -> Any:
        """Spoils the gradient after the backward pass, before it is looked at."""
        def spoil_and_step(**kwargs: Any) -> None:
            dict(runner.model.named_parameters())[BAD].grad.to_local()[-1] = float('nan')
            step(**kwargs)
        return spoil_and_step


def work(rank: int, name: str, port: int) -> None:
    warnings.simplefilter('ignore')
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2',
                      MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    torch.set_num_threads(1)
    changes, resume = RUNS[name]
    cfg = engine.load_config('tiny.py')
    cfg.work_dir, cfg.launcher = name, 'pytorch'
    cfg.merge_from_dict({**OPTIONS, **changes})
    status = 0
    try:
        engine.train(cfg, resume='auto' if resume else None)
    except SystemExit as stop:
        status = int(str(stop.code))
    Path(f'{name}.status{rank}').write_text(str(status))
    engine.leave_process_group()


def main(folder: Path) -> None:
    killed_trainings.prepare()  # imports, in this process
    os.chdir(folder)
    tiny_detector(folder)
    HOOKS.register_module(module=BadGradient)
    for name, (_, resume) in RUNS.items():
        if resume:
            Path(name).mkdir()
            shutil.copy('spread/epoch_1.pth', name)
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        mp.start_processes(work, (name, port), nprocs=2, start_method='fork')


if __name__ == '__main__':
    main(Path(sys.argv[1]))
