"""The safetensors format, against bytes written by hand."""
import json

import pytest
import torch

from mmposenc.checkpoint.safetensors import read_safetensors, write_safetensors

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
          torch.int16, torch.int8, torch.uint8, torch.bool]


def by_hand(path, header, body=b''):
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, 'little') + encoded + body)
    return path


def test_reads_bytes_written_by_hand(tmp_path):
    """1.0, -2.0 are 0000803f, 000000c0 in little-endian float32."""
    path = by_hand(tmp_path / 'x.safetensors', {
        '__metadata__': {'format': 'pt'},
        'b': {'dtype': 'I16', 'shape': [1, 2], 'data_offsets': [8, 12]},
        'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}},
        bytes.fromhex('0000803f000000c001000200'))
    read = read_safetensors(path)
    assert read['a'].tolist() == [1.0, -2.0] and read['a'].dtype == torch.float32
    assert read['b'].tolist() == [[1, 2]] and read['b'].dtype == torch.int16
    assert set(read) == {'a', 'b'}


@pytest.mark.parametrize('dtype', DTYPES, ids=str)
def test_written_bytes_are_aligned_and_read_back(tmp_path, dtype):
    torch.manual_seed(0)
    state = {'matrix': (torch.randn(3, 5) * 4).to(dtype), 'scalar': torch.ones((), dtype=dtype),
             'none': torch.zeros(0, 4, dtype=dtype), 'view': torch.ones(4, 6).to(dtype).t()[1:]}
    write_safetensors(tmp_path / 'x.safetensors', state)
    data = (tmp_path / 'x.safetensors').read_bytes()
    length = int.from_bytes(data[:8], 'little')
    assert length % 8 == 0
    header = json.loads(data[8:8 + length])
    assert header['matrix']['data_offsets'] == [0, 15 * dtype.itemsize]
    assert len(data) == 8 + length + (15 + 1 + 0 + 20) * dtype.itemsize
    read = read_safetensors(tmp_path / 'x.safetensors')
    for name, value in state.items():
        assert read[name].shape == value.shape and read[name].dtype == dtype
        assert torch.equal(read[name], value)


def test_agrees_with_the_package(tmp_path):
    package = pytest.importorskip('safetensors.torch')
    state = {'a': torch.randn(3, 4), 'b': torch.arange(5)}
    write_safetensors(tmp_path / 'x.safetensors', state)
    for name, value in package.load_file(tmp_path / 'x.safetensors').items():
        assert torch.equal(value, state[name])


@pytest.mark.parametrize('header, body, message', [
    (b'{"a": ', b'', 'its header is no JSON'),
    (b'[1]', b'', 'no table of tensors'),
    ({'a': {'dtype': 'F32', 'shape': [2]}}, b'', 'header entry of a is broken'),
    ({'a': 3}, b'', 'header entry of a is broken'),
    ({'a': {'dtype': 'F8_E4M3', 'shape': [2], 'data_offsets': [0, 2]}}, b'ab', 'dtype F8_E4M3'),
    ({'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 8]}}, b'abcd', 'bytes 0 to 8 of 4'),
    ({'a': {'dtype': 'F32', 'shape': [2], 'data_offsets': [0, 4]}}, b'abcd', 'take 8 bytes'),
    ({'a': {'dtype': 'F32', 'shape': [-1], 'data_offsets': [4, 0]}}, b'abcd', 'broken')])
def test_broken_files_are_named(tmp_path, header, body, message):
    path = by_hand(tmp_path / 'x.safetensors', header, body)
    with pytest.raises(ValueError, match=f'x.safetensors.*{message}'):
        read_safetensors(path)


def test_short_files_are_named(tmp_path):
    (tmp_path / 'a.safetensors').write_bytes(b'abc')
    with pytest.raises(ValueError, match='no safetensors file: it has 3 bytes'):
        read_safetensors(tmp_path / 'a.safetensors')
    (tmp_path / 'a.safetensors').write_bytes((10 ** 9).to_bytes(8, 'little') + b'{}')
    with pytest.raises(ValueError, match='header should have 1000000000 bytes'):
        read_safetensors(tmp_path / 'a.safetensors')
