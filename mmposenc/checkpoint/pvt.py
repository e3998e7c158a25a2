"""Weights of the official PVT and Twins (PCPVT, the PVT + PEG + GAP of CPVT) releases, and of
mmdet's PyramidVisionTransformer, for :class:`mmposenc.backbones.PVT` in an ImageClassifier."""
from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from .rules import Converted, Pair, Rule, apply_rules, same, template, to_ours

#: Inside a block the release uses our names.
_BLOCK_PART = r'((?:norm1|norm2|attn\.(?:q|kv|proj|sr|norm)|mlp\.(?:fc1|fc2))\.(?:weight|bias))'

_PVT = (
    Rule(r'patch_embed(\d)\.proj\.(weight|bias)',
         template('backbone.stages.{1}.patch_embed.projection.{2}', 1)),
    Rule(r'patch_embed(\d)\.norm\.(weight|bias)',
         template('backbone.stages.{1}.patch_embed.norm.{2}', 1)),
    Rule(r'block(\d)\.(\d+)\.' + _BLOCK_PART, template('backbone.stages.{1}.blocks.{2}.{3}', 1)),
    Rule(r'pos_embed(\d)', template('backbone.stages.{1}.pos_encodings.at.before.0.pos_embed', 1)),
    # The class token belongs to the last stage, whose number the token does not tell.
    Rule(r'cls_token', lambda match, tensor, source: {
        f'backbone.stages.{_last_stage(source)}.cls_token': tensor}),
    Rule(r'norm\.(weight|bias)', r'backbone.norm.\1'),
    Rule(r'head\.(weight|bias)', r'head.fc.\1'),
)

_TWINS = (
    Pair('patch_embeds.{n}.proj.{p}', 'backbone.stages.{n}.patch_embed.projection.{p}'),
    Pair('patch_embeds.{n}.norm.{p}', 'backbone.stages.{n}.patch_embed.norm.{p}'),
    *(Pair(f'blocks.{{n}}.{{m}}.{part}.{{p}}', f'backbone.stages.{{n}}.blocks.{{m}}.{part}.{{p}}')
      for part in ('norm1', 'norm2', 'attn.q', 'attn.kv', 'attn.proj', 'attn.sr', 'attn.norm',
                   'mlp.fc1', 'mlp.fc2')),
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


def convert_mmdet_pvt(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert mmdet's PyramidVisionTransformer (its v1 form: no convolution in the MLP).

    mmdet numbers a stage's position embedding among its blocks, so blocks are shifted by one where
    the stage has an embedding, and only there.
    """
    with_table = {name.split('.')[1] for name in state_dict if name.endswith('.1.0.pos_embed')}

    def block(rest: str) -> str:
        return r'layers\.(\d)\.1\.(\d+)\.' + rest

    def name_of(match: re.Match[str]) -> str:
        stage, number = match.group(1), int(match.group(2)) - (match.group(1) in with_table)
        return f'backbone.stages.{stage}.blocks.{number}'

    def in_proj(match: re.Match[str], tensor: Tensor, _: Mapping[str, Tensor]
                ) -> dict[str, Tensor]:
        dims = tensor.shape[0] // 3
        base = f'{name_of(match)}.attn'
        return {f'{base}.q.{match.group(3)}': tensor[:dims],
                f'{base}.kv.{match.group(3)}': tensor[dims:]}

    def renamed(part: str) -> Rule:
        pattern = {'attn.proj': r'attn\.attn\.out_proj', 'mlp.fc1': r'ffn\.layers\.0',
                   'mlp.fc2': r'ffn\.layers\.3'}.get(part, part.replace('.', r'\.'))

        def rename(match: re.Match[str], tensor: Tensor, _: Mapping[str, Tensor]
                   ) -> dict[str, Tensor]:
            # The MLP's layers are 1x1 convolutions there and linear here.
            flat = tensor.flatten(1) if part.startswith('mlp') and tensor.dim() == 4 else tensor
            return {f'{name_of(match)}.{part}.{match.group(3)}': flat}
        return Rule(block(pattern + r'\.(weight|bias)'), rename)

    rules = (
        Rule(r'layers\.(\d)\.0\.(projection|norm)\.(weight|bias)',
             r'backbone.stages.\1.patch_embed.\2.\3'),
        Rule(r'layers\.(\d)\.1\.0\.pos_embed',
             r'backbone.stages.\1.pos_encodings.at.before.0.pos_embed'),
        Rule(block(r'attn\.attn\.in_proj_(weight|bias)'), in_proj),
        *(renamed(part) for part in ('norm1', 'norm2', 'attn.sr', 'attn.norm', 'attn.proj',
                                     'mlp.fc1', 'mlp.fc2')),
    )
    return apply_rules(state_dict, rules, 'mmdet-pvt')


def _last_stage(state_dict: Mapping[str, Tensor]) -> int:
    numbers = [int(m.group(1)) for m in (re.match(r'block(\d)\.', name) for name in state_dict)
               if m]
    return max(numbers) - 1
