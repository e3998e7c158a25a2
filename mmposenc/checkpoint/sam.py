"""Weights of SAM's and SAM 3's image encoders and of ViTDet: the official releases, timm's, Hugging
Face's and mmdet's copies, for :class:`mmposenc.backbones.ViT`."""
from __future__ import annotations

from .rules import Family, Pair, Rule, Source, joined_pair, rules_to_ours, same_name_pairs
from .vit import TABLE, as_map, as_row_of_cells
from .vit_names import prefix_remover

_REASON = 'no part of the image encoder, and nothing else has a place here'
#: Parts of names in SAM's release, in Hugging Face's models and in mmpretrain's ViTSAM, and the
#: names that timm has for them.
_PARTS = ((r'\bffn\.layers\.0\.0\.', 'mlp.fc1.'), (r'\bffn\.layers\.1\.', 'mlp.fc2.'),
          (r'\bchannel_reduction\.', 'neck.'),
          (r'\bpatch_embed\.projection\.', 'patch_embed.proj.'), (r'\blayers\.', 'blocks.'),
          (r'\bneck\.conv1\.', 'neck.0.'), (r'\bneck\.layer_norm1\.', 'neck.1.'),
          (r'\bneck\.conv2\.', 'neck.2.'), (r'\bneck\.layer_norm2\.', 'neck.3.'),
          (r'\.(?:layer_norm|ln)([12])\.', r'.norm\1.'),
          (r'\.mlp\.lin([12])\.', r'.mlp.fc\1.'), (r'\b(?:ln_pre|layer_norm)\.', 'norm_pre.'),
          (r'\bembeddings\.patch_embeddings\.projection\.', 'patch_embed.proj.'),
          (r'\bembeddings\.position_embeddings$', 'pos_embed'),
          (r'\.attention\.o_proj\.', '.attn.proj.'))

PAIRS = (
    Pair('patch_embed.proj.{p}', 'backbone.patch_embed.projection.{p}'),
    Pair('pos_embed', TABLE, as_row_of_cells, as_map),
    Pair('blocks.{n}.attn.rel_pos_h', 'backbone.blocks.{n}.attn.rel_pos_encoding.row_table'),
    Pair('blocks.{n}.attn.rel_pos_w', 'backbone.blocks.{n}.attn.rel_pos_encoding.col_table'),
    *same_name_pairs('norm_pre.{p}', 'blocks.{n}.norm1.{p}', 'blocks.{n}.attn.qkv.{p}',
                     'blocks.{n}.attn.proj.{p}', 'blocks.{n}.ls1.gamma', 'blocks.{n}.norm2.{p}',
                     'blocks.{n}.mlp.fc1.{p}', 'blocks.{n}.mlp.fc2.{p}', 'blocks.{n}.ls2.gamma',
                     'neck.{n}.{p}'),
    # Where SAM has its neck, timm's classifier has a norm.
    Pair('neck.{p}', 'backbone.norm.{p}'),
    Pair('head.fc.{p}', 'head.fc.{p}'),
)

#: What SAM 3 has besides: apart queries, keys and values (Hugging Face), and its angles.
_OF_SAM3 = (
    *rules_to_ours([joined_pair(
        tuple(f'blocks.{{n}}.attention.{part}_proj.{{p}}' for part in 'qkv'),
        'backbone.blocks.{n}.attn.qkv.{p}')]),
    Rule(r'blocks\.\d+\.attn\.freqs_cis', None, 'computed from theta'))


#: Files of detectron2 hold arrays, which have to be saved as tensors first.
SOURCES = (Source(
    'sam', (*rules_to_ours(PAIRS), *_OF_SAM3), _PARTS, prefix_remover('patch_embed.proj.weight'),
    _REASON, timm=Family(PAIRS, r'backbone\.blocks\.\d+\.attn\.rel_pos_encoding\.row_table'),
    files="the releases of SAM and SAM 3, detectron2's ViTDet, those of timm, Hugging Face, "
          'mmpretrain (ViTSAM) and mmdet'),)
