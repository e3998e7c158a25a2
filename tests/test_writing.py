"""The door for files that are written: what it refuses, replaces, and leaves after a stop."""
import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from mmposenc.writing import building_folder, check_new_files, is_signed, move_files, signed
from mmposenc.writing import writing_picture as writing


def written(path: Path) -> Path:
    with writing(path) as partial:
        cv2.imwrite(str(partial), np.full((9, 8, 3), 77, np.uint8))
    return path


@pytest.mark.parametrize('name', ['a.png', 'a.jpg', 'x/b.jpeg'])
def test_own_pictures_may_be_replaced_until_somebody_changes_them(name, tmp_path) -> None:
    path = written(tmp_path / 'out' / name)
    assert is_signed(path) and cv2.imread(str(path)).shape == (9, 8, 3)
    check_new_files(tmp_path / 'out', [name], '--out')
    path.write_bytes(path.read_bytes() + b'\n')
    with pytest.raises(ValueError, match=f'--out .*: {name} exists; give another folder'):
        check_new_files(tmp_path / 'out', [name], '--out')
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    path.write_bytes(signed(b'# A config\n'))
    assert is_signed(path)
    path.write_bytes(path.read_bytes() + b'# my comment\n')
    assert not is_signed(path)


@pytest.mark.parametrize('made, said', [
    (lambda path: path.write_text('mine'), 'exists'), (lambda path: path.mkdir(), 'is a folder'),
    (lambda path: path.symlink_to('../nowhere'), 'exists'),
    (lambda path: path.symlink_to(written(path.parents[1] / 'x.png')), 'is a link'),
    (lambda path: os.link(written(path.parents[2] / 'read.png'), path), 'is read by this command'),
    (lambda path: (path.parent.rmdir(), path.parent.symlink_to('..')), 'sub is a link'),
    (lambda path: (path.parent.rmdir(), path.parent.write_text('mine')), 'sub is a link or a file'),
])
def test_what_is_in_the_way(made, said, tmp_path) -> None:
    path = tmp_path / 'out' / 'sub' / 'b.png'
    path.parent.mkdir(parents=True)
    made(path)
    with pytest.raises(ValueError, match=said):
        check_new_files(tmp_path / 'out', ['a.png', 'sub/b.png'], '--out',
                        inputs=[tmp_path / 'read.png', 'hf://owner/name'])


def test_names_that_are_one_and_folders_of_data(tmp_path, monkeypatch) -> None:
    with pytest.raises(ValueError, match='B.png would be written twice'):
        check_new_files(tmp_path, ['a.png', 'b.png', 'B.png'], '--out')
    (tmp_path / 'data' / 'val' / 'deep').mkdir(parents=True)
    (tmp_path / 'link').symlink_to('data/val')
    data = {'test.data_prefix.img': str(tmp_path / 'data' / 'val')}
    for folder, name in (('data/val', 'a'), ('data', 'val/new/a'), ('link/deep', 'a')):
        with pytest.raises(ValueError, match='would replace files of test.data_prefix.img'):
            check_new_files(tmp_path / folder, [name], '--out', data=data)
    check_new_files(tmp_path / 'data', ['a'], '--out', data=data)
    monkeypatch.chdir(tmp_path / 'data' / 'val')  # The folder of the project is that of the data.
    check_new_files('new', ['a'], '--out', data=data)


def test_an_error_leaves_the_old_file_and_a_long_name_is_no_obstacle(tmp_path) -> None:
    path = tmp_path / ('日' * 80 + '.png')
    written(path)
    before = path.read_bytes()
    with pytest.raises(OSError), writing(path) as partial:
        partial.write_text('half')
        raise OSError
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_what_a_killed_build_left_goes_with_the_next_one(tmp_path) -> None:
    for name in ('.out-backup1', '.out-0123abcd', '.out-89abcdef'):
        (tmp_path / name / 'new').mkdir(parents=True)
    (tmp_path / '.out-89abcdef' / 'lock').touch()
    with building_folder(tmp_path / 'out') as first, building_folder(tmp_path / 'out') as second:
        assert first.is_dir() and second.is_dir()  # That of a process which still runs stays.
        (second / 'a' / 'b').mkdir(parents=True)
        (second / 'a' / 'b' / 'c').write_text('new')
        move_files(second, tmp_path / 'out')
    assert {each.name for each in tmp_path.iterdir()} == {'.out-backup1', '.out-0123abcd', 'out'}
    assert (tmp_path / 'out' / 'a' / 'b' / 'c').read_text() == 'new'
