"""The safetensors file format, read and written without its package.

A file is the length of its header (8 bytes, little endian), the header (JSON: dtype, shape and
byte range of each tensor, and ``__metadata__``), and the tensors' bytes.
"""
from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_DTYPES = {'F64': torch.float64, 'F32': torch.float32, 'F16': torch.float16,
           'BF16': torch.bfloat16, 'I64': torch.int64, 'I32': torch.int32, 'I16': torch.int16,
           'I8': torch.int8, 'U8': torch.uint8, 'BOOL': torch.bool}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
#: The format's own limit.
_MAX_HEADER = 100_000_000


def read_safetensors(path: str | Path) -> dict[str, Tensor]:
    """Read all tensors of a file.

    Raises:
        ValueError: if the file is cut short, is no safetensors file, or holds a dtype torch lacks.
    """
    data = bytearray(Path(path).read_bytes())
    if len(data) < 8:
        raise ValueError(f'{path} is no safetensors file: it has {len(data)} bytes')
    length = int.from_bytes(data[:8], 'little')
    if length > min(len(data) - 8, _MAX_HEADER):
        raise ValueError(f'{path} is no safetensors file or is cut short: its header should have '
                         f'{length} bytes, the file has {len(data)}')
    try:
        header = json.loads(data[8:8 + length])
    except ValueError as error:
        raise ValueError(f'{path} is no safetensors file: its header is no JSON') from error
    if not isinstance(header, dict):
        raise ValueError(f'{path} is no safetensors file: its header is no table of tensors')
    body = memoryview(data)[8 + length:]
    return {name: _tensor(body, name, entry, path) for name, entry in header.items()
            if name != '__metadata__'}


def _tensor(body: memoryview, name: str, entry: Any, path: str | Path) -> Tensor:
    try:
        dtype, shape = _DTYPES.get(entry['dtype']), [int(side) for side in entry['shape']]
        start, stop = (int(offset) for offset in entry['data_offsets'])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f'{path}: the header entry of {name} is broken: {entry}') from error
    if dtype is None:
        raise ValueError(f'{path}: {name} has dtype {entry["dtype"]}; readable are '
                         f'{", ".join(_DTYPES)}')
    size = math.prod(shape) * dtype.itemsize
    if not 0 <= start <= stop <= len(body) or stop - start != size or min(shape, default=0) < 0:
        raise ValueError(f'{path}: {name} should lie at bytes {start} to {stop} of {len(body)} and '
                         f'take {size} bytes; the file is cut short or broken')
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    # A copy, so that a tensor does not keep the whole file in memory.
    return torch.frombuffer(body[start:stop], dtype=torch.uint8).clone().view(dtype).view(shape)


def write_safetensors(path: str | Path, state_dict: Mapping[str, Tensor],
                      metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a file.

    Raises:
        ValueError: for a dtype the format has no name for.
    """
    header: dict[str, Any] = {'__metadata__': {'format': 'pt', **(metadata or {})}}
    offset = 0
    for name, tensor in state_dict.items():
        if tensor.dtype not in _NAMES:
            raise ValueError(f'{name} has dtype {tensor.dtype}, which safetensors cannot hold')
        size = tensor.numel() * tensor.dtype.itemsize
        header[name] = dict(dtype=_NAMES[tensor.dtype], shape=list(tensor.shape),
                            data_offsets=[offset, offset + size])
        offset += size
    encoded = json.dumps(header).encode()
    encoded += b' ' * (-len(encoded) % 8)  # tensors start at a multiple of 8 bytes
    with open(path, 'wb') as file:
        file.write(len(encoded).to_bytes(8, 'little') + encoded)
        for tensor in state_dict.values():
            flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
            file.write(flat.numpy().tobytes())
