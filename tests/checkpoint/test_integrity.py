"""A damaged checkpoint is refused in one line; files are written whole."""
import random

import pytest
import torch

from mmposenc.checkpoint import load_checkpoint
from mmposenc.checkpoint.files import write_checkpoint
from mmposenc.checkpoint.integrity import damage_or_none, writing_whole_file

CONTENT = {'meta': {'iter': 3}, 'state_dict': {'w': torch.arange(500.), 'b': torch.ones(3)}}


@pytest.fixture
def path(tmp_path):
    torch.save(CONTENT, tmp_path / 'x.pth')
    return tmp_path / 'x.pth'


def test_flipped_bits_are_noticed_or_change_nothing(path) -> None:
    whole, rng, passed = path.read_bytes(), random.Random(1), 0
    for bit in rng.sample(range(8 * len(whole)), 300):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        if damage_or_none(path) is not None:
            with pytest.raises(ValueError, match='x.pth cannot be read, it|the CRC of its part'):
                load_checkpoint(path)
            continue
        passed += 1
        try:
            read = load_checkpoint(path)
        except ValueError as error:
            assert f'{path} ' in str(error)
            continue
        assert torch.equal(read['state_dict']['w'], CONTENT['state_dict']['w'])
        assert torch.equal(read['state_dict']['b'], CONTENT['state_dict']['b'])
        assert read['meta'] == CONTENT['meta']
    assert passed < 100  # those in what zip files repeat, and in the padding


@pytest.mark.parametrize('size', [1, 100, 2000, -1, -30])
def test_files_cut_short_are_noticed(path, size) -> None:
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match='x.pth cannot be read, it'):
        load_checkpoint(path)


def test_files_of_old_torch_have_nothing_to_check(path) -> None:
    torch.save(CONTENT, path, _use_new_zipfile_serialization=False)
    assert damage_or_none(path) is None
    assert torch.equal(load_checkpoint(path)['state_dict']['w'], CONTENT['state_dict']['w'])


@pytest.mark.parametrize('name', ['x.safetensors', 'x.pth'])
def test_files_and_links_beside_a_file_are_not_touched(name, tmp_path) -> None:
    """What a program writes to before it renames has a name that nobody can have taken."""
    mine, beside = tmp_path / 'mine.txt', tmp_path / f'{name}.partial'
    mine.write_text('mine')
    beside.symlink_to(mine)
    write_checkpoint(tmp_path / name, {'w': torch.ones(2)})
    assert beside.is_symlink() and mine.read_text() == 'mine'
    assert torch.equal(load_checkpoint(tmp_path / name).get('state_dict', load_checkpoint(
        tmp_path / name))['w'], torch.ones(2))
    beside.unlink()
    beside.write_text('mine too')
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(mine)  # replaced, not followed
    write_checkpoint(tmp_path / name, {'w': torch.ones(2)})
    assert beside.read_text() == 'mine too' and mine.read_text() == 'mine'
    assert {path.name for path in tmp_path.iterdir()} == {'mine.txt', name, beside.name}


def test_what_cannot_be_written_is_named_as_the_user_named_it(tmp_path) -> None:
    with pytest.raises(OSError) as error, writing_whole_file(tmp_path / 'none' / 'x.pth'):
        pass
    assert error.value.filename == str(tmp_path / 'none' / 'x.pth')
