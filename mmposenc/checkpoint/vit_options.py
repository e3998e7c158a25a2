"""The arch of ViT that weights of a plain vision transformer belong to, told by their shapes."""
from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from .vit import TABLE

#: Names of sizes by channels and blocks.
SIZES = {(384, 12): 'small', (512, 12): 'medium', (768, 12): 'base', (1024, 24): 'large',
          (1152, 27): 'so400m', (1280, 32): 'huge', (1536, 40): 'giant'}
#: The sizes of each kind, with their patch and image.
_KINDS = {
    'dinov2': {size: (14, 518) for size in ('small', 'base', 'large', 'giant')},
    'deit3': {'small': (16, 224), 'medium': (16, 224), 'base': (16, 224), 'large': (16, 224),
              'huge': (14, 224)},
    'siglip': {'base': (16, 224), 'large': (16, 256), 'so400m': (14, 224)},
    'clip': {'base': (16, 224), 'large': (14, 224)},
}


def vit_arch(state_dict: Mapping[str, Tensor]) -> list[str]:
    """The arch of converted weights, and where image or patch are others than the arch's.

    Shapes do not tell an activation: weights without a class token and without a norm before the
    blocks are taken for SigLIP's, whose GELU is that of the tanh.

    Returns:
        'arch=dinov2-small-reg', 'img_size=224', ...; nothing where it is DeiT's or no such arch.
    """
    patches, table = state_dict['backbone.patch_embed.projection.weight'], state_dict.get(TABLE)
    size = SIZES.get((patches.shape[0], num_blocks(state_dict)), '')
    kind = _kind(state_dict)
    if table is None or size not in _KINDS.get(kind, ()):
        return []
    registers = 'backbone.register_tokens' in state_dict
    options = [f'arch={kind}-{size}' + '-reg' * registers]
    patch, image = _KINDS[kind][size]
    if patches.shape[-1] != patch:
        options.append(f'patch_size={patches.shape[-1]}')
    side = int(table.shape[1] ** 0.5) * patches.shape[-1]
    if side != image:
        options.append(f'img_size={side}')
    return options


def _kind(state_dict: Mapping[str, Tensor]) -> str:
    def has(name: str) -> bool:
        return f'backbone.{name}' in state_dict

    if has('norm_pre.weight'):
        return 'clip' if not has('blocks.0.ls1.gamma') and has('cls_token') else ''
    if not has('blocks.0.attn.qkv.bias') or has('dist_token'):
        return ''
    if not has('blocks.0.ls1.gamma'):
        return '' if has('cls_token') else 'siglip'
    if not has('cls_token'):
        return ''
    cells = state_dict[TABLE].shape[1] if TABLE in state_dict else 0
    if state_dict['backbone.patch_embed.projection.weight'].shape[-1] == 14 and (
            round(cells ** 0.5) ** 2 != cells or has('register_tokens')):
        return 'dinov2'
    return '' if has('register_tokens') or round(cells ** 0.5) ** 2 != cells else 'deit3'


def num_blocks(state_dict: Mapping[str, Tensor]) -> int:
    """Blocks of converted weights."""
    return len({match[1] for name in state_dict
                if (match := re.match(r'backbone\.blocks\.(\d+)\.', name))})


def is_gated(state_dict: Mapping[str, Tensor]) -> bool:
    """Whether the MLPs of converted weights are SwiGLU: the first layer is twice as wide as what
    the second takes."""
    first, second = (state_dict.get(f'backbone.blocks.0.mlp.fc{i}.weight') for i in (1, 2))
    return first is not None and second is not None and first.shape[0] == 2 * second.shape[1]
