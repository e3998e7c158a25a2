"""Weights of SAM's image encoder and of ViTDet: the official releases, timm's, Hugging Face's and
mmdet's copies, for :class:`mmposenc.backbones.ViT`."""
from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from .rules import Pair, Source, same, to_ours
from .vit import TABLE, as_cells, as_map
from .vit_names import behind
from .vit_options import plain_arch, size_options

_REASON = 'no part of the image encoder, and nothing else has a place here'
#: Parts of names in SAM's release, Hugging Face's and mmpretrain's ViTSAM, and those of timm's in
#: their place.
_PARTS = ((r'\bffn\.layers\.0\.0\.', 'mlp.fc1.'), (r'\bffn\.layers\.1\.', 'mlp.fc2.'),
          (r'\bchannel_reduction\.', 'neck.'),
          (r'\bpatch_embed\.projection\.', 'patch_embed.proj.'), (r'\blayers\.', 'blocks.'),
          (r'\bneck\.conv1\.', 'neck.0.'), (r'\bneck\.layer_norm1\.', 'neck.1.'),
          (r'\bneck\.conv2\.', 'neck.2.'), (r'\bneck\.layer_norm2\.', 'neck.3.'),
          (r'\.(?:layer_norm|ln)([12])\.', r'.norm\1.'),
          (r'\.mlp\.lin([12])\.', r'.mlp.fc\1.'))

#: Names of sizes by channels and blocks.
_SIZES = {(768, 12): 'base', (1024, 24): 'large', (1280, 32): 'huge'}


PAIRS = (
    Pair('patch_embed.proj.{p}', 'backbone.patch_embed.projection.{p}'),
    Pair('pos_embed', TABLE, as_cells, as_map),
    Pair('blocks.{n}.attn.rel_pos_h', 'backbone.blocks.{n}.attn.rel_pos_encoding.row_table'),
    Pair('blocks.{n}.attn.rel_pos_w', 'backbone.blocks.{n}.attn.rel_pos_encoding.col_table'),
    *same('norm_pre.{p}', 'blocks.{n}.norm1.{p}', 'blocks.{n}.attn.qkv.{p}',
          'blocks.{n}.attn.proj.{p}', 'blocks.{n}.ls1.gamma', 'blocks.{n}.norm2.{p}',
          'blocks.{n}.mlp.fc1.{p}', 'blocks.{n}.mlp.fc2.{p}', 'blocks.{n}.ls2.gamma',
          'neck.{n}.{p}'),
    # timm's classifier has a norm in the neck's place.
    Pair('neck.{p}', 'backbone.norm.{p}'),
    Pair('head.fc.{p}', 'head.fc.{p}'),
)


#: SAM's release, ViTDet's of detectron2 (whose files hold arrays: as tensors), and the copies of
#: timm, Hugging Face, mmpretrain (ViTSAM) and mmdet's ViTDet project.
SOURCES = (Source('sam', to_ours(PAIRS), _PARTS, behind('patch_embed.proj.weight'), _REASON),)


def sam_options(state_dict: Mapping[str, Tensor]) -> list[str]:
    """Options that these models need, those of ``backbone``; of other weights none.

    Blocks attend in windows where their tables of offsets are the shortest.
    """
    lengths = {int(name.split('.')[2]): table.shape[-2] for name, table in state_dict.items()
               if re.fullmatch(r'backbone\.blocks\.\d+\.attn\.rel_pos_encoding\.row_table', name)}
    patches = state_dict.get('backbone.patch_embed.projection.weight')
    if not lengths or patches is None:
        return []
    window, side = ((length + 1) // 2 for length in (min(lengths.values()), max(lengths.values())))
    table = state_dict.get(TABLE)
    cells = 0 if table is None else round(table.shape[1] ** 0.5)
    size = _SIZES.get((patches.shape[0], len(lengths)))
    if size and window == 14 and cells:
        options = [f'arch={"vitdet" if cells == 14 else "sam"}-{size}']
    else:
        others = [str(block) for block, length in sorted(lengths.items())
                  if (length + 1) // 2 > window]
        plain = plain_arch(state_dict)
        options = [f'arch={plain}'] if plain else size_options(state_dict, {})
        options += ['pool=None', 'mask_window_padding=False',
                    'rel_pos_encoding.type=mmposenc.DecomposedRPE']
        if cells:
            options.append('pos_encoding.type=mmposenc.LearnedPositionEmbedding')
        if others:
            options += [f'window_size={window}', f'global_blocks={",".join(others)},']
        options += [] if 'backbone.norm.weight' in state_dict else ['final_norm=False']
        options += [] if patches.shape[-1] == 16 else [f'patch_size={patches.shape[-1]}']
    if side * patches.shape[-1] != (1024 if size and window == 14 and cells else 224):
        options.append(f'img_size={side * patches.shape[-1]}')
    neck = state_dict.get('backbone.neck.0.weight')
    return options + ([] if neck is None else [f'neck_channels={neck.shape[0]}'])
