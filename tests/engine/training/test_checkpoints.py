"""Choosing a checkpoint of a work directory."""
import logging
import shutil

import pytest
import torch
from mmengine.logging import MMLogger

from mmposenc.engine.training.checkpoints import (
    first_not_finite,
    latest_checkpoint,
    write_last_checkpoint,
)


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


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(tmp_path) -> None:
    lines = []
    for number in (1, 2, 3):
        torch.save({'meta': {'iter': number}, 'w': torch.zeros(1000)},
                   tmp_path / f'iter_{number}.pth')
    write_last_checkpoint(tmp_path, tmp_path / 'iter_3.pth')
    data = bytearray((tmp_path / 'iter_3.pth').read_bytes())
    data[2000] ^= 4
    (tmp_path / 'iter_3.pth').write_bytes(data)
    logger = MMLogger.get_instance('damaged', logger_name='damaged')
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'iter_2.pth')
    assert len(lines) == 1 and f'{tmp_path / "iter_3.pth"} is skipped: the CRC' in lines[0]
    assert f'{tmp_path / "iter_2.pth"} is used instead' in lines[0]


def test_the_note_is_relative_and_copies_of_a_folder_use_their_own(tmp_path) -> None:
    first = tmp_path / 'run1'
    first.mkdir()
    save(first / 'epoch_1.pth')
    write_last_checkpoint(first, first / 'epoch_1.pth')
    assert (first / 'last_checkpoint').read_text() == 'epoch_1.pth'
    for text in ('epoch_1.pth', str(first / 'epoch_1.pth')):  # ours, and mmengine's
        (first / 'last_checkpoint').write_text(text)
        copy = shutil.copytree(first, tmp_path / f'run{len(text)}')
        assert latest_checkpoint(copy) == str(copy / 'epoch_1.pth')
    (first / 'elsewhere').mkdir()
    (first / 'epoch_1.pth').rename(first / 'elsewhere' / 'epoch_1.pth')
    write_last_checkpoint(first, first / 'elsewhere' / 'epoch_1.pth')
    assert latest_checkpoint(first) == str(first / 'elsewhere' / 'epoch_1.pth')


@pytest.mark.parametrize('content', [b'', b'\0\xff\x80binary.pth', b'a' * 5000 + b'.pth',
                                     b'no_such.pth', b'\n\n'])
def test_a_note_that_is_damaged_does_no_harm(tmp_path, content) -> None:
    save(tmp_path / 'epoch_1.pth')
    (tmp_path / 'last_checkpoint').write_bytes(content)
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'epoch_1.pth')


def test_what_got_furthest_comes_first_whatever_its_name(tmp_path) -> None:
    for name, iteration in (('iter_15.pth', 15), ('epoch_2.pth', 20), ('interrupted.pth', 27)):
        torch.save({'meta': {'iter': iteration}}, tmp_path / name)
        assert latest_checkpoint(tmp_path) == str(tmp_path / name)


def test_weights_that_are_not_finite() -> None:
    state = {'w': torch.ones(2), 'mask': torch.tensor([0., -float('inf')]),
             'n': torch.ones(1).int()}
    assert first_not_finite(state, ['w']) is None
    assert first_not_finite({**state, 'mask': torch.tensor([float('nan')])}, ['w']) == 'mask'
    assert first_not_finite({**state, 'w': torch.tensor([float('inf')])}, ['w']) == 'w'
