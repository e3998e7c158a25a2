"""Weights of the Swin Transformers, V1 and V2, of their releases, timm, Hugging Face, mmpretrain
and mmdet, for :class:`mmposenc.backbones.Swin` in an ImageClassifier.

All names are first made timm's; one table leads from there to ours and back.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from .rules import Family, Pair, Rule, Source, State, joined_pair, rules_to_ours

_THEIRS, _OURS = 'layers.{n}.blocks.{m}.', 'backbone.stages.{n}.blocks.{m}.'
_PAIRS = (
    Pair('patch_embed.proj.{p}', 'backbone.patch_embed.projection.{p}'),
    Pair('patch_embed.norm.{p}', 'backbone.patch_embed.norm.{p}'),
    *(Pair(f'{_THEIRS}{part}.{{p}}', f'{_OURS}{part}.{{p}}')
      for part in ('norm1', 'norm2', 'mlp.fc1', 'mlp.fc2')),
    *(Pair(f'{_THEIRS}attn.{theirs}', f'{_OURS}attn.w_msa.{ours}') for theirs, ours in (
        ('qkv.{p}', 'qkv.{p}'), ('proj.{p}', 'proj.{p}'),
        ('relative_position_bias_table', 'rel_pos_encoding.relative_position_bias_table'),
        # These are parts of Swin V2 only.
        ('q_bias', 'qkv.q_bias'), ('v_bias', 'qkv.v_bias'), ('logit_scale', 'cosine.logit_scale'),
        ('cpb_mlp.0.{p}', 'rel_pos_encoding.cpb_mlp.0.{p}'),
        ('cpb_mlp.2.weight', 'rel_pos_encoding.cpb_mlp.2.weight'))),
    Pair('head.fc.{p}', 'head.fc.{p}'),
)


def _window_of_coordinates(match: re.Match[str], table: Tensor, state: State) -> dict[str, Tensor]:
    """The (H, W) of the window whose offsets Swin V2's coordinates (1, 2 H' - 1, 2 W' - 1, 2) are
    counted in: they are log8(1 + 8 offset / (side - 1)).

    Raises:
        ValueError: these are other coordinates, with which the network would be another one.
    """
    sides = []
    for along in (table[0, :, 0, 0].float(), table[0, 0, :, 1].float()):
        offsets = torch.arange(len(along)) - len(along) // 2
        if len(along) == 1:
            sides.append(1)
            continue
        step = 8 ** along[offsets == 1].item() - 1
        side = round(8 / step) + 1 if 0 < step < math.inf else 0
        expected = offsets.sign() * (1 + 8 / max(side - 1, 1) * offsets.abs()).log2() / 3
        if side < 2 or not torch.allclose(along, expected, rtol=0, atol=2e-3):
            raise ValueError(f'{match[0]} holds other coordinates than logarithms of offsets')
        sides.append(side)
    return {f'stages.{match[1]}.blocks.{match[2]}.attn.w_msa.rel_pos_encoding': torch.tensor(sides)}


_BLOCK = r'layers\.(\d+)\.blocks\.(\d+)\.'
_ONE_WAY = (
    *rules_to_ours((
        joined_pair(tuple(f'{_THEIRS}attn.{part}.{{p}}' for part in ('query', 'key', 'value')),
                    f'{_OURS}attn.w_msa.qkv.{{p}}'),)),
    Rule(_BLOCK + r'attn\.relative_position_index', None,
         'offsets of the pairs in a window, computed from its size'),
    Rule(_BLOCK + r'attn\.relative_coords_table', None,
         'offsets of the pairs in a window, computed from its size', _window_of_coordinates),
    Rule(_BLOCK + r'(attn\.)?attn_mask', None,
         'mask of the shifted windows, computed from the size of the map'),
    Rule(r'embeddings\.mask_token', None, 'stands for hidden patches only in pretraining'),
    Rule(r'(norm\d\.(?:weight|bias))', r'backbone.\1'),  # The norms of the maps of detectors.
)
#: Parts of names that other sources than timm have: the head in the releases, then Hugging Face's
#: names; and those of mmpretrain and mmdet.
_AS_TIMM = (
    (r'^head\.(weight|bias)', r'head.fc.\1'),
    (r'^swin(v2)?\.', ''), (r'^encoder\.', ''), (r'^layernorm\.', 'norm.'),
    (r'^classifier\.', 'head.fc.'), (r'^embeddings\.norm\.', 'patch_embed.norm.'),
    (r'^embeddings\.patch_embeddings\.projection\.', 'patch_embed.proj.'),
    (r'\.attention\.self\.continuous_position_bias_mlp\.', '.attn.cpb_mlp.'),
    (r'\.attention\.self\.', '.attn.'), (r'\.attention\.output\.dense\.', '.attn.proj.'),
    (r'\.layernorm_before\.', '.norm1.'), (r'\.layernorm_after\.', '.norm2.'),
    (r'\.intermediate\.dense\.', '.mlp.fc1.'), (r'\.output\.dense\.', '.mlp.fc2.'))
_MM_AS_TIMM = (
    (r'^backbone\.', ''), (r'^stages\.', 'layers.'),
    (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'\.attn\.w_msa\.', '.attn.'), (r'\.ffn\.layers\.0\.0\.', '.mlp.fc1.'),
    (r'\.ffn\.layers\.1\.', '.mlp.fc2.'))


def swin_pairs(names: Iterable[str]) -> tuple[Pair, ...]:
    """The names of timm's SwinTransformer and SwinTransformerV2, and ours.

    Args:
        names: those of a state dict of either side, which show the number of stages. timm counts a
            merging to the stage after it, and has one norm, after the last stage.
    """
    stages = [int(match.group(1)) for match in (
        re.match(r'(?:backbone\.stages|layers)\.(\d+)\.', name) for name in names) if match]
    last = max(stages, default=0)
    return (*_PAIRS, Pair('norm.{p}', f'backbone.norm{last}.{{p}}'),
            *(Pair(f'layers.{stage + 1}.downsample.{part}.{{p}}',
                   f'backbone.stages.{stage}.downsample.{part}.{{p}}')
              for stage in range(last) for part in ('norm', 'reduction')))


def _timm_names(state: State) -> dict[str, str]:
    """Rename merging layers as timm numbers them, and join the biases of V2, which has none of the
    keys."""
    merged = re.compile(r'layers\.(\d+)\.downsample\.(.*)')
    names = {name: name for name in state}
    mergings = {name: match for name in names if (match := merged.fullmatch(name))}
    # These files count a merging layer to the stage before it, timm to the stage after it.
    if any(match[1] == '0' for match in mergings.values()):
        names |= {name: f'layers.{int(match[1]) + 1}.downsample.{match[2]}'
                  for name, match in mergings.items()}
    # Swin V2 has no biases of the keys.
    if not any(name.endswith('.attn.key.bias') for name in names):
        names = {old: re.sub(r'\.attn\.(q|v)(uery|alue)\.bias', r'.attn.\1_bias', new)
                 for old, new in names.items()}
    return names


def _from_unfold(tensor: Tensor) -> Tensor:
    """Reorder the channels of a merging layer. mmpretrain and mmdet join 2 x 2 cells in the order
    channel, row, column; here and in the release it is column, row, channel."""
    if tensor.shape[-1] % 4:
        raise ValueError(f'has shape {tuple(tensor.shape)}; a multiple of 4 channels, those of '
                         '2 x 2 cells, is required')
    return tensor.unflatten(-1, (-1, 2, 2)).transpose(-1, -3).flatten(-3)


def _mm_rules(state: State) -> Sequence[Rule]:
    # V2 normalises the output of the reduction, whose channels have the same order everywhere.
    is_v2 = any(name.endswith('.logit_scale') for name in state)
    parts = '.downsample.reduction.' if is_v2 else '.downsample.'
    pairs = (pair._replace(there=_from_unfold) if parts in str(pair.theirs) else pair
             for pair in swin_pairs(state))
    return (*rules_to_ours(pairs), *_ONE_WAY)


_MM = Source('mmpretrain-swin', _mm_rules, _MM_AS_TIMM, _timm_names,
             files="mmpretrain's SwinTransformer and SwinTransformerV2")
SOURCES = (
    Source('swin', lambda state: (*rules_to_ours(swin_pairs(state)), *_ONE_WAY), _AS_TIMM,
           _timm_names, timm=Family(
               swin_pairs, r'backbone\.stages\.\d+\.blocks\.\d+\.attn\.w_msa\..*'),
           files="the releases of Swin V1 and V2, timm's and Hugging Face's"),
    _MM, _MM._replace(name='mmdet-swin', files="mmdet's SwinTransformer"))
