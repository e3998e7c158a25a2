"""Checkpoint files are read without running code, and written whole or not at all."""
import argparse
import zipfile

import pytest
import torch

from mmposenc.checkpoint import read_checkpoint, write_checkpoint

STATE = {'a.weight': torch.arange(6.).view(2, 3), 'b': torch.tensor(4)}


def assert_same(a, b):
    torch.testing.assert_close(dict(a), dict(b), rtol=0, atol=0)


@pytest.mark.parametrize('suffix', ['.pth', '.pt', '.bin', '.tar'])
@pytest.mark.parametrize('content, ignored', [
    (STATE, []), ({f'module.{key}': value for key, value in STATE.items()}, []),
    ({**STATE, 'version': '1.0'}, ['version']), ({'model': {'model': STATE}}, []),
    # The releases of DETR and Deformable DETR save their options beside the weights.
    ({'model': STATE, 'args': argparse.Namespace(lr=1)}, ['args']),
    *(({wrap: STATE, 'epoch': 3, 'optimizer': {'lr': 1.0}}, ['epoch', 'optimizer'])
      for wrap in ('state_dict', 'model', 'module'))])
def test_reads_what_torch_saves(tmp_path, content, ignored, suffix):
    path = tmp_path / f'x{suffix}'
    torch.save(content, path)
    read = read_checkpoint(path)
    assert_same(read.state_dict, STATE)
    assert read.ignored == ignored


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_written_files_read_back(tmp_path, suffix):
    path = tmp_path / f'x{suffix}'
    state = {**STATE, 'view': torch.zeros(100, 100)[0]}
    write_checkpoint(path, state, {'source': 'test'})
    assert_same(read_checkpoint(path).state_dict, state)
    assert path.stat().st_size < 4000  # not the 40 kB that the view is a part of
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize('content', [b'', b'no checkpoint at all', b'\x80', b'\x80\x02}'])
def test_other_files_are_named(tmp_path, content):
    (tmp_path / 'x.pth').write_bytes(content)
    with pytest.raises(ValueError, match='x.pth cannot be read'):
        read_checkpoint(tmp_path / 'x.pth')


def test_programs_and_compressed_files_are_not_unpacked(tmp_path):
    """A megabyte of zeros can be a gigabyte."""
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / 'jit.pt')
    with pytest.raises(ValueError, match='jit.pt cannot be read, it is a TorchScript program'):
        read_checkpoint(tmp_path / 'jit.pt')
    torch.save(STATE, tmp_path / 'x.pth')
    with zipfile.ZipFile(tmp_path / 'x.pth') as whole, zipfile.ZipFile(
            tmp_path / 'small.pth', 'w', zipfile.ZIP_DEFLATED) as small:
        for name in whole.namelist():
            small.writestr(name, whole.read(name))
    with pytest.raises(ValueError, match='small.pth cannot be read, its parts are compressed'):
        read_checkpoint(tmp_path / 'small.pth')


def test_bad_paths_and_contents_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match='no.pth is no file'):
        read_checkpoint(tmp_path / 'no.pth')
    torch.save([1, 2], tmp_path / 'list.pth')
    with pytest.raises(ValueError, match='holds a list; a dict of weights'):
        read_checkpoint(tmp_path / 'list.pth')
    torch.save({'epoch': 1}, tmp_path / 'empty.pth')
    with pytest.raises(ValueError, match='holds no weights, only epoch'):
        read_checkpoint(tmp_path / 'empty.pth')
    with pytest.raises(ValueError, match='must end in .safetensors or .pth'):
        write_checkpoint(tmp_path / 'x.bin', STATE)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / 'x.safetensors'
    write_checkpoint(path, STATE)
    with pytest.raises(TypeError, match='metadata'):
        write_checkpoint(path, STATE, {'a number': 3})
    assert_same(read_checkpoint(path).state_dict, STATE)
    assert [p.name for p in tmp_path.iterdir()] == ['x.safetensors']
