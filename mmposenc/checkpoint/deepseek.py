"""Weights of the image tower of DeepSeek-V4 and V4.1, in the names of timm's DeepseekVitEncoder or
the release's, for :class:`mmposenc.backbones.ViT`."""
from __future__ import annotations

from math import isqrt

from torch import Tensor

from .rules import Family, Pair, Refusal, Rule, Source, rules_to_ours, same_name_pairs
from .vit_names import prefix_remover


def _as_kernel(weight: Tensor) -> Tensor:
    """View the release's linear layer on patches, channel by channel, as a convolution."""
    if weight.dim() == 4:
        return weight
    side = isqrt(weight[0].numel() // 3)
    return weight.reshape(len(weight), 3, side, side)


#: Norms and the layers of the MLP have no biases, which tells a file from others.
_PAIRS = (
    Pair('patch_embed.proj.weight', 'backbone.patch_embed.projection.weight', _as_kernel),
    Pair('patch_embed.proj.bias', 'backbone.patch_embed.projection.bias'),
    *same_name_pairs('blocks.{n}.norm1.weight', 'blocks.{n}.attn.qkv.{p}',
                     'blocks.{n}.attn.proj.{p}', 'blocks.{n}.norm2.weight',
                     'blocks.{n}.mlp.fc1.weight', 'blocks.{n}.mlp.fc2.weight', 'norm.weight'))

SOURCES = (Source(
    'deepseek', (*rules_to_ours(_PAIRS),
                 Rule(r'aligner\..*', None, 'the projector to the language model')),
    [(r'\.attn\.wqkv\.', '.attn.qkv.'), (r'\.attn\.wo\.', '.attn.proj.'),
     (r'\.mlp\.w([12])\.', r'.mlp.fc\1.')], prefix_remover('patch_embed.proj.weight'),
    'not of the image encoder', timm=Family(_PAIRS, r'backbone\.blocks\.\d+\.mlp\.fc1\.weight'),
    files="the image tower of DeepSeek-V4 and V4.1, timm's and the release's", refuses=(Refusal(
        r'(.*\.)?patch_embed(der)?\.position_embedding_table', '',
        "Gemma 4's image tower, which has norms behind attention and MLP and of the values"),)),)
