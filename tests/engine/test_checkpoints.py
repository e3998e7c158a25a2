"""Choosing a checkpoint and comparing it with a model."""
from __future__ import annotations

import torch
from torch import nn

from mmposenc.engine.checkpoints import latest_checkpoint, mismatch


def save(path, whole: bool = True):
    torch.save({'state_dict': {'w': torch.zeros(1000)}}, path)
    if not whole:
        path.write_bytes(path.read_bytes()[:600])
    return path


def test_latest_is_the_one_noted(tmp_path) -> None:
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / 'nowhere') is None
    for epoch in (2, 9, 10):
        save(tmp_path / f'epoch_{epoch}.pth')
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'epoch_10.pth')  # as numbers
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'epoch_9.pth'))
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'epoch_9.pth')


def test_incomplete_checkpoints_are_passed_over(tmp_path) -> None:
    save(tmp_path / 'iter_100.pth')
    save(tmp_path / 'iter_200.pth', whole=False)
    (tmp_path / 'best_epoch_900.pth').write_text('another name')
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'iter_200.pth'))
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'iter_100.pth')
    (tmp_path / 'last_checkpoint').write_text('')  # killed between opening and writing
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'iter_100.pth')


def test_mismatch_groups_names() -> None:
    model = nn.ModuleDict({'backbone': nn.Sequential(nn.Linear(2, 3), nn.BatchNorm2d(3)),
                           'head': nn.Linear(3, 5)})
    state = model.state_dict()
    assert mismatch(state, state) == ''
    other = {name: value for name, value in state.items() if 'backbone.1' not in name}
    other['head.weight'] = torch.zeros(7, 3)
    other['neck.conv.weight'] = torch.zeros(1)
    other['neck.conv.bias'] = torch.zeros(1)
    lines = mismatch(state, other).splitlines()
    assert lines == [
        '4 in the model but not in the checkpoint:',
        '  backbone.1.{weight, bias, running_mean, running_var} (4)',
        '2 in the checkpoint but not in the model:',
        '  neck.conv.{weight, bias} (2)',
        '1 of another shape:',
        '  head.weight: (7, 3) in the checkpoint, (5, 3) in the model']


def test_counters_of_batches_do_not_matter_and_long_lists_are_cut() -> None:
    assert mismatch({'bn.num_batches_tracked': torch.zeros(1)}, {}) == ''
    report = mismatch({f'a{i}.b.c.w': torch.zeros(1) for i in range(50)}, {})
    assert report.splitlines()[0].startswith('50 in the model')
    assert report.splitlines()[-1] == '  ... and 30 more lines'
