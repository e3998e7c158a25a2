"""Checkpoint files are whole or refused in a line, hold no code, and are written whole or not at
all."""
import argparse
import errno
import pickle
import random
import struct
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from helpers.hostile_pickle import Call
from mmengine.logging import HistoryBuffer
from safetensors.torch import save_file

from mmposenc.checkpoint import load_checkpoint, read_checkpoint, write_checkpoint
from mmposenc.checkpoint.integrity import damage_or_none
from mmposenc.writing import writing_whole_file

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


@pytest.mark.parametrize('content', [
    lambda whole: b'no checkpoint at all', lambda whole: b'\x80', lambda whole: b'\x80\x02}',
    *(lambda whole, size=size: whole[:size] for size in (0, 1, 100, 2000, -1, -30))])
def test_other_files_and_those_cut_short_are_named(tmp_path, content):
    path = tmp_path / 'x.pth'
    torch.save({'w': torch.arange(500.)}, path)
    path.write_bytes(content(path.read_bytes()))
    with pytest.raises(ValueError, match='x.pth cannot be read'):
        read_checkpoint(path)


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
    with pytest.raises(ValueError, match='is a folder without model.safetensors or .*; name a fil'):
        read_checkpoint(tmp_path)
    for content, said in (([1, 2], 'holds a list; a dict of weights'),
                          ({'epoch': 1}, 'holds no weights, only epoch')):
        torch.save(content, tmp_path / 'x.pth')
        with pytest.raises(ValueError, match=said):
            read_checkpoint(tmp_path / 'x.pth')
    with pytest.raises(ValueError, match='must end in .safetensors or .pth'):
        write_checkpoint(tmp_path / 'x.bin', STATE)


def test_an_error_of_writing_names_the_file_itself(tmp_path, monkeypatch):
    def full(name, mode):
        raise OSError(errno.ENOSPC, 'No space left on device', name)
    monkeypatch.setattr('mmposenc.writing.open', full, raising=False)
    with pytest.raises(OSError) as error, writing_whole_file(tmp_path / 'new' / 'x.pth'):
        pass
    assert error.value.filename == str(tmp_path / 'new' / 'x.pth')


def test_flipped_bits_are_noticed_or_change_nothing(tmp_path):
    content, path = {'meta': {'iter': 3}, 'state_dict': {'w': torch.arange(500.)}}, tmp_path / 'x'
    torch.save(content, path)
    whole, rng, passed = path.read_bytes(), random.Random(1), 0
    for bit in rng.sample(range(8 * len(whole)), 300):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        damage = damage_or_none(path)
        passed += damage is None
        try:
            read = load_checkpoint(path)
        except ValueError as error:
            assert f'{path} ' in str(error)
            continue
        assert damage is None and read['meta'] == content['meta']
        assert torch.equal(read['state_dict']['w'], content['state_dict']['w'])
    assert passed < 100  # those in what zip files repeat, and in the padding


def test_safetensors_that_we_write_have_a_checksum(tmp_path):
    path, rng = tmp_path / 'x.safetensors', random.Random(1)
    write_checkpoint(path, STATE, {'source': 'test'})
    whole = path.read_bytes()
    for bit in rng.sample(range(8 * len(whole)), 300):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            assert_same(load_checkpoint(path), STATE)  # It was in the name of the checksum.
        except ValueError as error:
            assert f'{path} cannot be read' in str(error)


def test_files_of_old_torch_have_nothing_to_check(tmp_path):
    torch.save(STATE, tmp_path / 'x.pth', _use_new_zipfile_serialization=False)
    assert damage_or_none(tmp_path / 'x.pth') is None
    assert_same(load_checkpoint(tmp_path / 'x.pth'), STATE)


@pytest.mark.parametrize('name', ['x.safetensors', 'x.pth'])
def test_files_and_links_beside_a_file_are_not_touched(name, tmp_path):
    """What a program writes to before it renames has a name that nobody can have taken."""
    mine, beside = tmp_path / 'mine.txt', tmp_path / f'{name}.partial'
    mine.write_text('mine')
    for path in (beside, tmp_path / name):  # the second is replaced, not followed
        path.symlink_to(mine)
    write_checkpoint(tmp_path / name, STATE)
    assert beside.is_symlink() and mine.read_text() == 'mine'
    assert_same(read_checkpoint(tmp_path / name).state_dict, STATE)
    assert {path.name for path in tmp_path.iterdir()} == {'mine.txt', name, beside.name}


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / 'x.safetensors'
    write_checkpoint(path, STATE)
    with pytest.raises(TypeError, match='metadata'):
        write_checkpoint(path, STATE, {'a number': 3})
    assert_same(read_checkpoint(path).state_dict, STATE)
    assert [p.name for p in tmp_path.iterdir()] == ['x.safetensors']


def roundtrip(path, value):
    torch.save(value, path)
    return load_checkpoint(path)


def test_a_training_checkpoint_of_mmengine_is_read(tmp_path) -> None:
    history = HistoryBuffer()
    for value in (1.0, 2.0, 6.0):
        history.update(value)
    read = roundtrip(tmp_path / 'x.pth', {
        'history': history, 'slice': slice(1, 2), 'set': {1, 2}, 'bytes': b'abc',
        'scalars': [np.float64(0.5), np.int64(3), np.float32(2), np.bool_(True)],
        'arrays': [np.arange(5), np.ones((2, 3), np.uint8), np.array(['a', 'bc'])]})
    assert read['history'].mean() == 3.0 and read['history'].current() == 6.0
    assert read['history'].statistics('max') == 6.0
    assert read['scalars'] == [0.5, 3, 2, True] and read['slice'] == slice(1, 2)
    assert [a.tolist() for a in read['arrays']] == [[0, 1, 2, 3, 4], [[1] * 3] * 2, ['a', 'bc']]


OBJECTS = np.empty(1, dtype=object)
OBJECTS[0] = Call(open, 'mark', 'w')


@pytest.mark.parametrize('content', [
    *(Call(function, *args) for function, args in (
        (getattr, (HistoryBuffer, '__init__')),
        (getattr, (HistoryBuffer, '_set_default_statistics')),
        (getattr, ('', 'format')), (eval, ('1',)), (pickle.loads, (b'N.',)),
        (np.load, ('x.npy',)), (__import__, ('os',)), (open, ('mark', 'w')))),
    argparse.Namespace(lr=Call(open, 'mark', 'w')), OBJECTS])
def test_what_could_reach_code_is_refused(tmp_path, monkeypatch, content) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match='x.pth is refused: to read it, code .*weights_only=F'):
        roundtrip(tmp_path / 'x.pth', {'a': content})
    assert not (tmp_path / 'mark').exists()


def storage(numbers=4):
    return torch.storage.TypedStorage(wrap_storage=torch.zeros(numbers).untyped_storage(),
                                      dtype=torch.float32, _internal=True)


class LongerThanItsMemory:
    """A type of NumPy with four letters, whose texts become longer."""

    def __reduce__(self):
        return np.dtype, ('U4', False, True), (3, '<', None, None, None, 1 << 30, 4, 8)


LONGER = Call(np.float64(0).__reduce__()[0], LongerThanItsMemory(), b'abc\0' * 4)
WIDE = torch.zeros(1).expand(1 << 30)
META = torch.zeros(4, device='meta')
CSR = Call(torch._utils._rebuild_sparse_tensor, torch.sparse_csr, (
    torch.tensor([0, 1000]), torch.tensor([0]), torch.zeros(1), (1, 4)))
POINTER = Call(np.ndarray, (1,), 'O', b'A' * 8)
BEYOND = Call(torch._utils._rebuild_tensor_v2, storage(), 0, (9,), (1,), False, OrderedDict())


@pytest.mark.parametrize('value, said', [
    (META, 'float32, meta. is no'), (CSR, 'sparse_csr'), (torch.eye(2).to_sparse(), 'coo'),
    (torch.quantize_per_tensor(torch.ones(2), 1, 0, torch.qint8), 'qint8'),
    (torch.nested.nested_tensor([torch.ones(2)]), 'plain tensor'), (WIDE, 'in the file'),
    (Call(torch.Tensor, 1000), 'its numbers in the file'), (BEYOND, 'resize storage'),
    (Call(torch.UntypedStorage, 1000), 'a UntypedStorage, which is no weight'),
    (POINTER, 'a _Array, which is no weight'), (LONGER, 'array of .U4'),
    (np.array('2026', 'M8[Y]'), 'array of .M8'), (np.zeros(1, 'f4,i4'), 'array of .V8'),
    (np.zeros(2)[0:1].view('V8'), 'array of .V8'),
    (torch.Tensor, 'a _TensorMeta, which')])
def test_what_holds_no_numbers_of_the_file_is_named(tmp_path, value, said) -> None:
    """Memory of this process, pointers, and what is left out when it is copied."""
    with pytest.raises(ValueError, match=rf'x.pth (cannot be read|is refused).*{said}'):
        roundtrip(tmp_path / 'x.pth', {'optimizer': [{'w': value}]})


def test_attributes_and_lists_of_types_have_no_effect(tmp_path) -> None:
    weights = OrderedDict(w=torch.nn.Parameter(torch.ones(2)))
    weights['w'].clone = weights.keys = torch.Size([3])
    weights['w']._backward_hooks = OrderedDict({0: torch.Tensor})
    weights['again'] = weights['w']
    with torch.serialization.safe_globals([np.ndarray, np.dtype]):
        before = torch.serialization.get_safe_globals()
        read = roundtrip(tmp_path / 'x.pth', weights)
        with pytest.raises(ValueError, match='_Array'):
            roundtrip(tmp_path / 'y.pth', {'a': POINTER})
        assert set(torch.serialization.get_safe_globals()) == set(before)
    assert read['w'] is read['again'] and type(read['w']) is torch.Tensor
    assert [*read.keys()] == ['w', 'again'] and read['w'].clone().tolist() == [1, 1]
    assert not read['w']._backward_hooks


@pytest.mark.parametrize('length, text', [
    (3, b'{"a"'), (1 << 62, b'{}'), (3, b'[1]'), (2, b'{}x'), (0, b''),
    (60, b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[4,0]}}     '),
    (60, b'{"a":{"dtype":"F32","shape":[9999999999999999999],"data_offsets":[0,4]}}'),
    (100000, b'[' * 100000), (56, b'{"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}}      ')])
def test_lying_safetensors_headers_are_named(tmp_path, length, text) -> None:
    path = tmp_path / 'x.safetensors'
    path.write_bytes(struct.pack('<Q', length) + text + b'abcd')
    with pytest.raises(ValueError, match='x.safetensors cannot be read'):
        load_checkpoint(path)


def test_safetensors_are_read_to_a_device(tmp_path) -> None:
    save_file({'a': torch.arange(3.)}, tmp_path / 'x.safetensors')
    for device in ('cpu', torch.device('cpu'), lambda storage, place: storage):
        assert load_checkpoint(tmp_path / 'x.safetensors', device)['a'].tolist() == [0, 1, 2]
