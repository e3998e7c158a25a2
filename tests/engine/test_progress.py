"""The progress bar."""
from __future__ import annotations

import io
import logging
import re
import sys
from types import SimpleNamespace

import torch
from rich.console import Console

from mmposenc.engine import ProgressBarHook


def runner(**kwargs) -> SimpleNamespace:
    logger = logging.getLogger('test_progress')
    logger.handlers = [logging.StreamHandler(sys.stderr)]
    return SimpleNamespace(epoch=0, iter=0, max_epochs=2, max_iters=8, logger=logger,
                           val_dataloader=[0] * 3, test_dataloader=[0] * 5, **kwargs)


def drawn(console: Console) -> str:
    return re.sub(r'\x1b\[[0-9;?]*[a-zA-Z]', '', console.file.getvalue())


def test_terminal_shows_how_far_and_how_long() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    hook, run = ProgressBarHook(console), runner()
    stream = run.logger.handlers[0].stream
    hook.before_train(run)
    assert run.logger.handlers[0].stream is not stream  # lines go above the bar
    run.iter, run.epoch = 5, 1
    hook.after_train_iter(run, 1, outputs={'loss': torch.tensor(1.25, requires_grad=True)})
    hook.before_val_epoch(run)
    hook.after_val_iter(run, 1)
    hook.bar.refresh()
    hook.after_val_epoch(run)
    hook.after_train(run)
    hook.after_run(run)
    text = drawn(console)
    assert re.search(r'train .*6/8 eta .*epoch 2/2 loss 1\.2500', text)
    assert re.search(r'val .*2/3', text)
    assert run.logger.handlers[0].stream is stream
    assert hook.bar is None
    assert '\x1b[?25h' in console.file.getvalue()  # the cursor is back


def test_a_file_gets_nothing() -> None:
    console = Console(file=io.StringIO())
    hook, run = ProgressBarHook(console), runner()
    hook.before_train(run)
    hook.after_train_iter(run, 0, outputs={'loss': torch.tensor(1.0)})
    hook.before_test_epoch(run)
    hook.after_test_iter(run, 0)
    hook.after_run(run)
    assert console.file.getvalue() == ''
