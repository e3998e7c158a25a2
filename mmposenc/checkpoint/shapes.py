"""Checks that the weights of a block fit each other, and that weights are numbers."""
from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .rules import names_text

_BLOCK = re.compile(r'(.*\bblocks\.\d+)\.norm1\.weight')


def check_shapes(state_dict: Mapping[str, Tensor], source: str) -> None:
    """Compare the shapes of every block's weights with the channels of its first norm.

    Args:
        state_dict: converted names.
        source: where it comes from, for the message.

    Raises:
        ValueError: naming every weight of a wrong shape, with the shape required.
    """
    wrong = []
    for name, tensor in state_dict.items():
        match = _BLOCK.fullmatch(name)
        if match is None:
            continue
        for part, shape in _expected_shapes(state_dict, match.group(1), tensor.shape[0]).items():
            weight = state_dict.get(part)
            if weight is not None and tuple(weight.shape) != shape:
                wrong.append(f'{part} has {tuple(weight.shape)}, required is {shape}')
    if wrong:
        raise ValueError(f'source={source!r}: weights of a wrong shape: {"; ".join(wrong)}')


def check_numbers(state_dict: Mapping[str, Tensor], file: str) -> None:
    """Refuse tensors that would be copied and then be wrong: quantized ones, and ones that are not
    finite after a training that failed.

    Raises:
        ValueError: naming every tensor that does not hold finite floating-point numbers.
    """
    wrong = []
    for name, value in state_dict.items():
        if value.is_meta or value.layout != torch.strided or not value.is_floating_point():
            kind = 'no values' if value.is_meta else f'{value.layout}, {value.dtype}'
            wrong.append(f'{name} ({kind})'.replace('torch.', ''))
        elif not value.sum(dtype=torch.float64).isfinite():
            wrong.append(f'{name} (NaN or infinite)')
    if wrong:
        raise ValueError(f'{file}: finite floating-point numbers are required, others are in '
                         f'{names_text(wrong)}')


def _expected_shapes(state_dict: Mapping[str, Tensor], block: str, dims: int
                     ) -> dict[str, tuple[int, ...]]:
    """The shapes that the parts of a block with ``dims`` channels must have."""
    shapes: dict[str, tuple[int, ...]] = {
        f'{block}.{vector}': (dims,) for vector in (
            'norm1.weight', 'norm1.bias', 'norm2.weight', 'norm2.bias', 'ls1.gamma', 'ls2.gamma')}
    for attention in ('attn', 'attn.w_msa'):
        for part, times in (('qkv', 3), ('q', 1), ('kv', 2), ('proj', 1)):
            name = f'{block}.{attention}.{part}'
            shapes |= {f'{name}.weight': (times * dims, dims), f'{name}.bias': (times * dims,)}
    hidden = state_dict.get(f'{block}.mlp.fc1.bias')
    if hidden is not None:
        width = hidden.shape[0]
        second = state_dict.get(f'{block}.mlp.fc2.weight')
        if second is not None and 2 * second.shape[1] == width:
            width //= 2  # With SwiGLU, half of the first layer's channels are gates.
        shapes |= {f'{block}.mlp.fc1.weight': (hidden.shape[0], dims),
                   f'{block}.mlp.fc2.weight': (dims, width),
                   f'{block}.mlp.fc2.bias': (dims,)}
    return shapes
