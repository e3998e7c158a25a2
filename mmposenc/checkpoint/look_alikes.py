"""Models whose weights have the same names and shapes as others: what no file tells."""
from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from .needs import needed_options
from .vit_archs import ARCHS

#: By the arch that weights are told: who else has such weights, and the options of theirs.
_ALIKE = (
    (r'clip-.*', "CLIP with the exact GELU, as LAION's, DataComp's and timm's without quickgelu in "
                 'the name', ('act=gelu',)),
    (r'siglip-base', "timm's vit_base_patch16_gap_224", ('act=gelu', 'num_heads=16')),
    (r'siglip-(base|large|so400m)', "those of timm's models of SigLIP that have the exact GELU",
     ('act=gelu',)),
)


def look_alikes(state_dict: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """Models other than the one that :func:`needed_options` tells whose weights cannot be told from
    these, as positions that turn queries and keys, activations, heads and windows leave no trace in
    a file.

    Args:
        state_dict: as :func:`mmposenc.checkpoint.convert` gives it.

    Returns:
        For each model the options of ``backbone`` that it needs in place of the told ones.
    """
    told = dict(option.removeprefix('model.backbone.').split('=', 1)
                for option in needed_options(state_dict))
    arch = told.get('arch', '')
    found = {who: list(options) for pattern, who, options in _ALIKE if re.fullmatch(pattern, arch)}
    rope = arch.replace('deit3', 'rope-vit') + '-axial-ape'
    if arch.startswith('deit3-') and rope in ARCHS:
        found['RoPE-ViT with axial rotary positions and a table'] = [f'arch={rope}']
    if 'pre_norm' in told:
        found['CLIP with QuickGELU, as DFN and MetaCLIP'] = ['act=quick_gelu']
    if told.get('rel_pos_encoding.type') == 'mmposenc.DecomposedRPE' and 'window_size' not in told:
        found['a model with windows as large as the map of its images'] = [
            'window_size=14', 'global_blocks=2,5,8,11']
    if arch.startswith('v2-'):
        found |= {f'Swin V2 with windows {end[2:]}': [f'arch={arch}{end}'] for end in (
            '-w12', '-w16', '-w12to16', '-w12to24')}
    return found
