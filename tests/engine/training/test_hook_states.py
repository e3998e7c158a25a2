"""What hooks count goes on after a resume, and what cannot go on is named."""
import shutil

import pytest
import torch
from helpers import tiny_run
from mmengine.hooks import Hook

STOP = dict(type='EarlyStoppingHook', monitor='acc', rule='greater', patience=2, min_delta=0.5)


class Counting(Hook):
    counted = 0

    def __init__(self, kept=None) -> None:
        self.count, self.kept = 0, kept

    def after_train_epoch(self, runner) -> None:
        self.count += 1


class Saved(Counting):
    def state_dict(self) -> dict:
        return {'count': self.count, 'kept': self.kept}

    def load_state_dict(self, state) -> None:
        self.count = state['count']


def train(folder, *hooks, resume=False, epochs=9, **checkpoint):
    run = tiny_run.runner(
        folder, epochs, resume=resume, custom_hooks=list(hooks), val_cfg=dict(),
        val_dataloader=torch.utils.data.DataLoader(tiny_run.Data()),
        val_evaluator=[tiny_run.Count()], default_hooks=dict(
            checkpoint=dict(type='CheckpointHook', interval=1, **checkpoint)))
    run.train()
    return run


@pytest.mark.parametrize('options', [{}, dict(stopping_threshold=0.5)])
@pytest.mark.parametrize('checkpoint', [{}, dict(save_best='acc')])
def test_an_early_stop_after_a_resume(tmp_path, capsys, options, checkpoint) -> None:
    stop = {**STOP, **options}
    whole = train(tmp_path / 'whole', stop, **checkpoint).epoch
    assert whole == (1 if options else 3)
    assert train(tmp_path / 'whole', stop, resume=True, **checkpoint).epoch == whole
    assert capsys.readouterr().out.count('EarlyStoppingHook ends the training after step') == 2
    (tmp_path / 'part').mkdir()
    shutil.copy(tmp_path / 'whole/epoch_1.pth', tmp_path / 'part')
    assert train(tmp_path / 'part', stop, resume=True, **checkpoint).epoch == whole


def test_what_other_hooks_count(tmp_path, capsys) -> None:
    train(tmp_path, Saved(), Saved(), Counting(), epochs=2)
    assert 'which begin anew' not in capsys.readouterr().out
    hooks = Saved(), Saved(), Counting()
    train(tmp_path, *hooks, resume=True, epochs=3)
    assert [hook.count for hook in hooks] == [3, 3, 1]
    assert 'hooks count, which begin anew: Counting. A hook' in capsys.readouterr().out
    train(tmp_path, Saved(kept=Hook()), resume=True, epochs=4)  # no plain value
    capsys.readouterr()
    train(tmp_path, Saved(), STOP, resume=True, epochs=5)
    assert 'begin anew: EarlyStoppingHook, Saved. ' in capsys.readouterr().out
