"""How deep in a backbone each parameter lies, for layer-wise learning rates."""
from __future__ import annotations

import re
from collections.abc import Sequence

_STAGE = re.compile(r'stages\.(\d+)\.')
_BLOCK = re.compile(r'blocks\.(\d+)\.|pos_encodings\.at\.after(\d+)\.')
_BEFORE = re.compile(r'patch_embed\.|pos_encodings\.at\.before\.|norm_pre\.|[a-z]+_tokens?$')


class LayerDepths:
    """Gives a backbone of ``blocks``, or of ``stages`` of them, mmpretrain's ``get_layer_depth``.
    """

    def get_layer_depth(self, param_name: str, prefix: str = 'backbone.') -> tuple[int, int]:
        """Depth of a parameter and the number of depths.

        Depth 0 is all that comes before the first block, n the n-th block with what follows it, and
        the last depth what comes after all blocks, and what is no part of the backbone.

        Args:
            param_name: its name in the model.
            prefix: the backbone's name in the model, with a dot.
        """
        stages = getattr(self, 'stages', None) or [self]
        blocks = [len(stage.blocks) for stage in stages]
        last = sum(blocks) + 1
        if not param_name.startswith(prefix):
            return last, last + 1
        return layer_depth(param_name[len(prefix):], blocks), last + 1


def layer_depth(name: str, blocks: Sequence[int]) -> int:
    """Depth of a backbone's parameter (BEiT, Bao et al., ICLR 2022, Appendix H).

    Args:
        name: its name in the backbone.
        blocks: number of blocks of each stage.

    Returns:
        n for the n-th block, counted from 1 over all stages, and what stands behind it; 0 for what
        comes before the first; sum(blocks) + 1 for what comes after the last. An encoding that
        blocks share lies where the first of them does.
    """
    stage = _STAGE.match(name)
    index, rest = (int(stage[1]), name[stage.end():]) if stage else (0, name)
    first = sum(blocks[:index])
    block = _BLOCK.match(rest)
    if block:
        return first + 1 + int(block[1] or block[2] or 0)
    if rest.startswith('rel_pos_encoding.'):
        return first + 1
    if rest.startswith('downsample.'):
        return first + blocks[index]
    return first if _BEFORE.match(rest) else sum(blocks) + 1
