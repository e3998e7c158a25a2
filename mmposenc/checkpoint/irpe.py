"""Names of the iRPE release's attention, and where its parameters go."""
from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from .rules import Pair, match_rules, to_ours

#: Tables of the release's ``RPEAttention`` and ours.
TABLES = (('rpe_{s}.lookup_table_{p}', 'rel_pos_encoding.table_{s}'),
          ('rpe_{s}.rp_{a}.lookup_table_{p}', 'rel_pos_encoding.table_{s}_{a}'))
_RULES = to_ours(Pair(*names) for names in (
    ('qkv.{p}', 'qkv.{p}'), ('proj.{p}', 'proj.{p}'), *TABLES))


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
    converted, unknown = match_rules(params, _RULES, source)
    if unknown:
        raise ValueError(f'params has {unknown[0]!r}, which an attention of the iRPE release does '
                         f'not have')
    return converted.state_dict
