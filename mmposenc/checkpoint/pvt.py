"""Weights of the official PVT and Twins (PCPVT, the PVT + PEG + GAP of CPVT) releases, and of
mmdet's PyramidVisionTransformer, for :class:`mmposenc.backbones.PVT` in an ImageClassifier."""
from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from .rules import Converted, Pair, Rule, apply_rules, same, to_ours

#: Parts of a block that have the same names in the releases and here.
_PARTS = ('norm1', 'norm2', 'attn.q', 'attn.kv', 'attn.proj', 'attn.sr', 'attn.norm', 'mlp.fc1',
          'mlp.fc2')
_BLOCK = 'backbone.stages.{n}.blocks.{m}.'
_TABLE = 'backbone.stages.{n}.pos_encodings.at.before.0.pos_embed'


def _pvt(stage: int) -> tuple[Pair, ...]:
    """A stage of PVT's release, which counts from 1."""
    theirs, ours = stage + 1, f'backbone.stages.{stage}.'
    return (Pair(f'patch_embed{theirs}.proj.{{p}}', f'{ours}patch_embed.projection.{{p}}'),
            Pair(f'patch_embed{theirs}.norm.{{p}}', f'{ours}patch_embed.norm.{{p}}'),
            Pair(f'pos_embed{theirs}', _TABLE.replace('{n}', str(stage))),
            *(Pair(f'block{theirs}.{{m}}.{part}.{{p}}', f'{ours}blocks.{{m}}.{part}.{{p}}')
              for part in _PARTS))


_PVT = (
    *to_ours(pair for stage in range(9) for pair in _pvt(stage)),
    # The class token belongs to the last stage, whose number the token does not tell.
    Rule(r'cls_token', lambda match, tensor, source: {
        f'backbone.stages.{_last_stage(source)}.cls_token': tensor}),
    *to_ours((*same('norm.{p}'), Pair('head.{p}', 'head.fc.{p}'))),
)

_TWINS = (
    Pair('patch_embeds.{n}.proj.{p}', 'backbone.stages.{n}.patch_embed.projection.{p}'),
    Pair('patch_embeds.{n}.norm.{p}', 'backbone.stages.{n}.patch_embed.norm.{p}'),
    *(Pair(f'blocks.{{n}}.{{m}}.{part}.{{p}}', f'{_BLOCK}{part}.{{p}}') for part in _PARTS),
    Pair('pos_block.{n}.proj.{m}.{p}',
         'backbone.stages.{n}.pos_encodings.at.after0.0.proj.{m}.{p}'),
    *same('norm.{p}'),
    Pair('head.{p}', 'head.fc.{p}'),
)


def twins_pairs(_: Mapping[str, Tensor]) -> tuple[Pair, ...]:
    """The names of Twins' PCPVT, which timm's have too, and ours."""
    return _TWINS


def convert_pvt(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert the PVT release's names (``block1.0.attn.q.weight``, ``pos_embed1``)."""
    return apply_rules(state_dict, _PVT, 'pvt')


def convert_twins(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert the PVT + PEG + GAP names of the Twins release (``blocks.0.0``, ``pos_block.0``)."""
    return apply_rules(state_dict, to_ours(_TWINS), 'twins')


_THEIRS = 'layers.{n}.1.{m}.'
_MMDET = to_ours((
    Pair('layers.{n}.0.projection.{p}', 'backbone.stages.{n}.patch_embed.projection.{p}'),
    Pair('layers.{n}.0.norm.{p}', 'backbone.stages.{n}.patch_embed.norm.{p}'),
    Pair('layers.{n}.1.0.pos_embed', _TABLE),
    Pair(f'{_THEIRS}attn.attn.in_proj_{{p}}', (f'{_BLOCK}attn.q.{{p}}', f'{_BLOCK}attn.kv.{{p}}'),
         lambda tensor: tensor.split((len(tensor) // 3, len(tensor) - len(tensor) // 3))),
    *(Pair(f'{_THEIRS}{theirs}.{{p}}', f'{_BLOCK}{ours}.{{p}}') for theirs, ours in (
        ('norm1', 'norm1'), ('norm2', 'norm2'), ('attn.sr', 'attn.sr'), ('attn.norm', 'attn.norm'),
        ('attn.attn.out_proj', 'attn.proj'))),
    # The MLP's layers are 1x1 convolutions there and linear here.
    *(Pair(f'{_THEIRS}ffn.layers.{theirs}.{{p}}', f'{_BLOCK}{ours}.{{p}}',
           lambda tensor: tensor.flatten(1) if tensor.dim() == 4 else tensor)
      for theirs, ours in ((0, 'mlp.fc1'), (3, 'mlp.fc2'))),
))


def convert_mmdet_pvt(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert mmdet's PyramidVisionTransformer (its v1 form: no convolution in the MLP).

    mmdet numbers a stage's position embedding among its blocks, so blocks are shifted by one where
    the stage has an embedding, and only there.
    """
    with_table = {name.split('.')[1] for name in state_dict if name.endswith('.1.0.pos_embed')}

    def shifted(match: re.Match[str]) -> str:
        return f'layers.{match[1]}.1.{int(match[2]) - (match[1] in with_table)}.'

    names = {name if name.endswith('pos_embed')
             else re.sub(r'^layers\.(\d)\.1\.(\d+)\.', shifted, name): name for name in state_dict}
    plain = {new: state_dict[old] for new, old in names.items()}
    return apply_rules(plain, _MMDET, 'mmdet-pvt', names)


def _last_stage(state_dict: Mapping[str, Tensor]) -> int:
    numbers = [int(m.group(1)) for m in (re.match(r'block(\d)\.', name) for name in state_dict)
               if m]
    return max(numbers) - 1
