"""Joint projections to queries, keys and values without a bias of the keys: their files hold two
biases, and models here one, whose part for the keys is zero."""
from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

#: How the name of a mask ends, one where a bias is trained. It says that a model is of this kind.
MASK = 'qkv.bias_mask'


def join_biases(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Replace ``qkv.q_bias`` and ``qkv.v_bias`` (C,) by ``qkv.bias`` and its mask (3 C,)."""
    joined = dict(state)
    for name in state:
        module = name.removesuffix('q_bias')
        if name.endswith('qkv.q_bias') and f'{module}v_bias' in state:
            query, value = joined.pop(name), joined.pop(f'{module}v_bias')
            joined[f'{module}bias'] = torch.cat((query, torch.zeros_like(query), value))
            joined[f'{module}bias_mask'] = mask_of_keys(query)
    return joined


def split_biases(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reverse of :func:`join_biases`."""
    split = dict(state)
    for name in state:
        module = name.removesuffix('bias_mask')
        if name.endswith(MASK) and f'{module}bias' in state:
            del split[name]
            query, _, value = split.pop(f'{module}bias').chunk(3)
            split |= {f'{module}q_bias': query, f'{module}v_bias': value}
    return split


def mask_of_keys(like: Tensor) -> Tensor:
    """The mask (3 C,) for biases ``like`` (C,)."""
    ones = torch.ones_like(like)
    return torch.cat((ones, torch.zeros_like(like), ones))
