"""What a checkpoint may hold, and what it may not."""
import argparse
import pickle
import struct

import numpy as np
import pytest
import torch
from helpers.hostile_pickle import Call
from mmengine.logging import HistoryBuffer
from safetensors.torch import save_file

from mmposenc.checkpoint import load_checkpoint


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


def header(path, length: int, text: bytes, body: bytes = b''):
    path.write_bytes(struct.pack('<Q', length) + text + body)
    return path


@pytest.mark.parametrize('length, text', [
    (3, b'{"a"'), (1 << 62, b'{}'), (3, b'[1]'), (2, b'{}x'), (0, b''),
    (60, b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[4,0]}}     '),
    (60, b'{"a":{"dtype":"F32","shape":[9999999999999999999],"data_offsets":[0,4]}}'),
    (100000, b'[' * 100000), (56, b'{"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}}      ')])
def test_lying_safetensors_headers_are_named(tmp_path, length, text) -> None:
    path = header(tmp_path / 'x.safetensors', length, text, b'abcd')
    with pytest.raises(ValueError, match='x.safetensors cannot be read'):
        load_checkpoint(path)


def test_safetensors_are_read_to_a_device(tmp_path) -> None:
    save_file({'a': torch.arange(3.)}, tmp_path / 'x.safetensors')
    for device in ('cpu', torch.device('cpu'), lambda storage, place: storage):
        assert load_checkpoint(tmp_path / 'x.safetensors', device)['a'].tolist() == [0, 1, 2]
