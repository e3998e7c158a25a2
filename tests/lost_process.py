"""Started by tests/engine/test_processes.py: of three processes that train, the second is killed or
raises; what the others say goes into files. They are forked, so that all is imported once."""
from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from multiprocessing import get_context
from pathlib import Path

import torch
from mmengine.hooks import Hook
from tinyrunner import Data, Model

from mmposenc.command_line import reported
from mmposenc.engine import Runner


class Ends(Hook):
    """Ends the second process before its second iteration."""

    def __init__(self, how: str) -> None:
        self.how = how

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: object = None) -> None:
        if runner.iter == 1 and runner.rank == 1:
            if self.how == 'killed':
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError('a label of its own')


def work(how: str, rank: int, port: int) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='3',
                      MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    torch.set_num_threads(1)
    try:
        with reported(argparse.Namespace()):
            Runner(Model(), how, experiment_name=how, launcher='pytorch',
                   custom_hooks=[Ends(how)], train_cfg=dict(by_epoch=True, max_epochs=3),
                   train_dataloader=dict(
                       dataset=Data(), batch_size=1, collate_fn=dict(type='default_collate'),
                       sampler=dict(type='DefaultSampler', shuffle=False)),
                   optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1))).train()
    except SystemExit as error:
        Path(f'{how}{rank}.txt').write_text(str(error))
    os._exit(1)


if __name__ == '__main__':
    os.chdir(sys.argv[1])
    for how in ('killed', 'raised'):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        processes = [get_context('fork').Process(target=work, args=(how, rank, port))
                     for rank in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
