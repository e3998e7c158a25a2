"""Checkpoints survive kills, full disks and other trainings; which one of a folder is chosen."""
import errno
import os
import shutil
from pathlib import Path

import pytest
import torch
from helpers import tiny_run
from mmengine.config import Config
from mmengine.fileio import LocalBackend

from mmposenc.checkpoint import load_checkpoint
from mmposenc.engine import CheckpointHook, Runner
from mmposenc.engine.training.checkpoints import check_replaces_no_files, latest_checkpoint
from mmposenc.engine.training.lock import WorkDirLock, check_unlocked


def runner(work_dir, epochs: int = 3, resume: bool = False, **hook) -> Runner:
    return tiny_run.runner(work_dir, epochs, resume=resume, default_hooks=dict(
        checkpoint=dict(type='CheckpointHook', interval=1, **hook)))


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.glob('*.pth*'))


def test_the_old_file_goes_after_the_new_one_is_there(tmp_path, monkeypatch) -> None:
    seen, remove = [], LocalBackend.remove

    def spy(self, path):
        seen.append(files(tmp_path))
        remove(self, path)
    monkeypatch.setattr(LocalBackend, 'remove', spy)
    run = runner(tmp_path, max_keep_ckpts=1)
    run.train()
    assert any(type(hook) is CheckpointHook for hook in run.hooks)
    assert seen == [['epoch_1.pth', 'epoch_2.pth'], ['epoch_2.pth', 'epoch_3.pth']]
    assert files(tmp_path) == ['epoch_3.pth']


def test_a_better_checkpoint_replaces_the_best_one_after_it_is_there(tmp_path, monkeypatch) -> None:
    run = runner(tmp_path, epochs=1, save_best='acc')
    run.train()
    hook = next(hook for hook in run.hooks if type(hook) is CheckpointHook)
    hook.after_val_epoch(run, {'acc': 0.5})
    first = hook.best_ckpt_path
    run.train_loop._epoch = 2
    monkeypatch.setattr(Runner, 'save_checkpoint', lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        hook.after_val_epoch(run, {'acc': 0.75})
    assert first and load_checkpoint(first)
    monkeypatch.undo()
    hook.best_ckpt_path = first
    for score in (0.875, 0.25, 0.9):  # a better one, a worse one, a better one of the same name
        hook.after_val_epoch(run, {'acc': score})
        assert [name for name in files(tmp_path) if 'best' in name] == ['best_acc_epoch_2.pth']
        assert hook.best_ckpt_path == str(tmp_path / 'best_acc_epoch_2.pth')
    hook.best_ckpt_path = 'elsewhere/best_acc_epoch_2.pth'  # what is continued lies in its folder
    hook.after_val_epoch(run, {'acc': 0.95})
    assert 'best_acc_epoch_2.pth' in files(tmp_path)


def test_checkpoints_of_one_name_replace_each_other(tmp_path) -> None:
    for epochs, resume in ((2, False), (3, True)):
        runner(tmp_path, epochs, resume, max_keep_ckpts=1, filename_tmpl='newest.pth').train()
        assert files(tmp_path) == ['newest.pth']
        assert load_checkpoint(tmp_path / 'newest.pth')['meta']['epoch'] == epochs


def test_a_full_disk_ends_the_run_with_one_line_and_the_old_file(tmp_path, monkeypatch) -> None:
    put = LocalBackend.put

    def full(self, data, name):
        if 'epoch_2' in str(name) or 'interrupted' in str(name):
            put(self, data[:100], name)
            raise OSError(errno.ENOSPC, 'No space left on device')
        put(self, data, name)
    monkeypatch.setattr(LocalBackend, 'put', full)
    with pytest.raises(OSError, match=r'epoch_2\.pth cannot be .*: No space .*--resume') as error:
        runner(tmp_path, max_keep_ckpts=1).train()
    assert '\n' not in str(error.value)
    assert files(tmp_path) == ['epoch_1.pth']
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'epoch_1.pth')


def test_checkpoints_in_a_folder_of_their_own_are_found(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    runner('work', epochs=1, out_dir='weights').train()
    assert 'weights: weights/work/epoch_1.pth\n' in capsys.readouterr().out
    run = runner('work', epochs=2, resume=True, out_dir='weights')
    run.train()
    assert run._load_from == 'weights/work/epoch_1.pth'
    assert files(tmp_path / 'weights' / 'work') == ['epoch_1.pth', 'epoch_2.pth']


@pytest.mark.parametrize('hook, name', [
    (dict(filename_tmpl='mine_{:03d}.pth'), 'work/mine_001.pth'),
    (dict(filename_tmpl='all.weights'), 'work/all.weights'),
    (dict(filename_tmpl='mine/e_{}/all.weights'), 'work/mine/e_1/all.weights'),
    (dict(out_dir='cks'), 'cks/work/epoch_1.pth'),
    (dict(filename_tmpl='x{}', out_dir='cks', save_best='acc'), 'cks/work/x1')])
def test_checkpoints_of_other_names_and_folders(hook, name, tmp_path, monkeypatch) -> None:
    """They are refused where another training would replace them, and found by --resume."""
    monkeypatch.chdir(tmp_path)
    runner('work', epochs=1, **hook).train()
    Path('work/last_checkpoint').unlink()
    for folder in ('work', 'other/work') if 'out_dir' in hook else ('work',):
        cfg = Config(dict(work_dir=folder, default_hooks=dict(checkpoint=hook)))
        with pytest.raises(ValueError, match=f'{Path(name).name}.*--resume continues it'):
            check_replaces_no_files(cfg, anew=True)
        check_replaces_no_files(cfg, anew=False)
    run = runner('work', epochs=2, resume=True, **hook)
    run.cfg.default_hooks = cfg.default_hooks
    run.train()
    assert os.path.samefile(run._load_from, name)


@pytest.mark.parametrize('made', [Path.mkdir, lambda path: path.write_text('my notes'),
                                  lambda path: path.symlink_to('mine.txt')])
def test_files_of_the_users_with_names_of_ours(made, tmp_path) -> None:
    (tmp_path / 'mine.txt').write_text('mine\n.')
    made(tmp_path / 'train.lock')
    for call in (WorkDirLock, check_unlocked):
        with pytest.raises(FileExistsError, match='train.lock there is no lock of a training'):
            call(tmp_path)
    (tmp_path / 'mine.txt').rename(tmp_path / 'last_checkpoint')
    with pytest.raises(ValueError, match='last_checkpoint is no note of a training'):
        check_replaces_no_files(Config(dict(work_dir=str(tmp_path))), anew=False)
    assert (tmp_path / 'last_checkpoint').read_text() == 'mine\n.'


def test_what_a_killed_write_left_is_removed(tmp_path) -> None:
    kept = ['download.tar.0123abcd.partial', 'epoch_7.pth.partial', 'epoch_8.pth.0123abcg.partial']
    for name in (*kept, 'epoch_7.pth.0123abcd.partial', 'best_acc_epoch_1.pth.0123abcd.partial'):
        (tmp_path / name).write_bytes(b'half')
    runner(tmp_path, epochs=1).train()
    assert {path.name for path in tmp_path.glob('*.partial')} == {*kept}


def test_an_old_file_that_a_kill_kept_goes_after_the_resume(tmp_path, monkeypatch) -> None:
    class Kill(BaseException):
        pass

    def kill(self, path):
        raise Kill
    monkeypatch.setattr(LocalBackend, 'remove', kill)
    with pytest.raises(Kill):
        runner(tmp_path, max_keep_ckpts=1).train()
    assert files(tmp_path) == ['epoch_1.pth', 'epoch_2.pth']
    monkeypatch.undo()
    (tmp_path / 'epoch_0.pth').write_text('of somebody else')
    runner(tmp_path, max_keep_ckpts=1, resume=True).train()
    assert files(tmp_path) == ['epoch_0.pth', 'epoch_3.pth']


def test_a_second_training_in_the_directory_is_refused(tmp_path) -> None:
    lock = WorkDirLock(tmp_path)
    with pytest.raises(ValueError, match='work_dir=.* process [0-9]+ on .* trains there'):
        runner(tmp_path, epochs=1).train()
    with pytest.raises(ValueError, match='another --work-dir'):
        check_unlocked(tmp_path)
    lock.release()
    check_unlocked(tmp_path)
    runner(tmp_path, epochs=1).train()
    check_unlocked(tmp_path)


def test_a_training_runs_where_the_file_system_has_no_locks(tmp_path, monkeypatch) -> None:
    def no_locks(*_):
        raise OSError(errno.ENOLCK, 'no locks')
    monkeypatch.setattr('fcntl.flock', no_locks)
    lock = WorkDirLock(tmp_path)
    check_unlocked(tmp_path)
    lock.release()


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


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(tmp_path, warnings) -> None:
    for number in (1, 2, 3):
        torch.save({'meta': {'iter': number}, 'w': torch.zeros(1000)},
                   tmp_path / f'iter_{number}.pth')
    data = bytearray((tmp_path / 'iter_3.pth').read_bytes())
    data[2000] ^= 4
    (tmp_path / 'iter_3.pth').write_bytes(data)
    assert latest_checkpoint(tmp_path) == str(tmp_path / 'iter_2.pth')
    line, = warnings()
    assert f'{tmp_path / "iter_3.pth"} is skipped: the CRC' in line


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
