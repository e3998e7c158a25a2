"""Choosing a checkpoint of a work directory."""
import logging
import shutil
from pathlib import Path

import pytest
import torch
from mmengine.logging import MMLogger

from mmposenc.engine.training.checkpoints import latest_checkpoint


def save(path, whole: bool = True):
    torch.save({'state_dict': {'w': torch.zeros(1000)}}, path)
    if not whole:
        path.write_bytes(path.read_bytes()[:600])
    return path


def test_numbers_are_compared_and_other_names_are_none(tmp_path) -> None:
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / 'nowhere') is None
    for epoch in (2, 9, 10):
        save(tmp_path / f'epoch_{epoch}.pth')
    (tmp_path / 'best_epoch_900.pth').write_text('another name')
    (tmp_path / 'epoch_11.pth').mkdir()
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'epoch_10.pth')
    save(tmp_path / 'epoch_12.pth', whole=False)
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'epoch_10.pth')


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(tmp_path) -> None:
    lines = []
    for number in (1, 2, 3):
        torch.save({'meta': {'iter': number}, 'w': torch.zeros(1000)},
                   tmp_path / f'iter_{number}.pth')
    data = bytearray((tmp_path / 'iter_3.pth').read_bytes())
    data[2000] ^= 4
    (tmp_path / 'iter_3.pth').write_bytes(data)
    logger = MMLogger.get_instance('damaged', logger_name='damaged')
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'iter_2.pth')
    assert len(lines) == 1 and f'{tmp_path / "iter_3.pth"} is skipped: the CRC' in lines[0]


def test_mmengines_note_counts_where_the_folder_has_none(tmp_path, monkeypatch) -> None:
    """As with ``out_dir`` of the hook; a copy of a folder uses its own."""
    monkeypatch.chdir(tmp_path)
    first, second = tmp_path / 'first', tmp_path / 'second'
    first.mkdir()
    note = first / 'last_checkpoint'
    for text in (str(save(tmp_path / 'epoch_1.pth')), '../epoch_1.pth', 'epoch_1.pth'):
        note.write_text(text)
        assert Path(latest_checkpoint(first)).samefile(tmp_path / 'epoch_1.pth')
    note.write_text('s3://bucket/epoch_1.pth')
    assert latest_checkpoint(first) == 's3://bucket/epoch_1.pth'
    note.write_text(str(save(first / 'epoch_2.pth')))
    shutil.copytree(first, second)
    assert latest_checkpoint(second) == str(second / 'epoch_2.pth')


@pytest.mark.parametrize('content', [b'', b'\0\xff\x80binary.pth', b'a' * 5000 + b'.pth',
                                     b'no_such.pth', b'\n\n'])
def test_a_note_that_is_damaged_does_no_harm(tmp_path, content) -> None:
    (tmp_path / 'last_checkpoint').write_bytes(content)
    assert latest_checkpoint(tmp_path) is None


def test_what_got_furthest_comes_first_whatever_its_name(tmp_path) -> None:
    for name, iteration in (('iter_15.pth', 15), ('epoch_2.pth', 20), ('interrupted.pth', 27)):
        torch.save({'meta': {'iter': iteration}}, tmp_path / name)
        assert latest_checkpoint(tmp_path) == str(tmp_path / name)
