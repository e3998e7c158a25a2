"""Names of the iRPE release's attention, and where its parameters go."""
from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

#: rpe_k.lookup_table_weight, rpe_v.rp_rows.lookup_table_weight, rpe_q.lookup_table_bias, ...
_TABLE = re.compile(r'rpe_([qkv])\.(?:rp_(rows|cols)\.)?lookup_table_(?:weight|bias)')
_LINEAR = re.compile(r'(?:qkv|proj)\.(?:weight|bias)')


def rename_attention_parameter(name: str) -> str | None:
    """Our name of a parameter of the release's ``RPEAttention``, or None if it has no such."""
    if _LINEAR.fullmatch(name):
        return name
    match = _TABLE.fullmatch(name)
    if match is None:
        return None
    side, axis = match.groups()
    return f'rel_pos_encoding.table_{side}' + (f'_{axis}' if axis else '')


def convert_attention(params: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Convert one attention module of a release to a
    :class:`~mmposenc.attention.MultiheadAttention`.

    Args:
        params: state dict of the module, ``qkv.weight``, ``rpe_k.lookup_table_weight``, ...
        source: 'irpe-deit'.

    Raises:
        ValueError: for an unknown source or parameter.
    """
    if source != 'irpe-deit':
        raise ValueError(f"source={source!r} must be 'irpe-deit'")
    converted = {}
    for name, value in params.items():
        renamed = rename_attention_parameter(name)
        if renamed is None:
            raise ValueError(f'params has {name!r}, which an attention of the iRPE release does '
                             f'not have')
        converted[renamed] = value
    return converted
