"""Weights of the releases of PVT, PVT v2, SegFormer and Twins, and of the models of timm, mmdet,
mmseg, mmpretrain and Hugging Face made after them, for :class:`mmposenc.backbones.PVT` in an
ImageClassifier."""
from __future__ import annotations

import re

from torch import Tensor

from .rules import (
    Family,
    Pair,
    Rule,
    Source,
    State,
    joined_pair,
    rules_to_ours,
    same_name_pairs,
)

#: Parts of a block that have the same names in the releases and here; 'qkv' is that of windows.
_PARTS = ('norm1', 'norm2', 'attn.q', 'attn.kv', 'attn.proj', 'attn.sr', 'attn.norm', 'mlp.fc1',
          'mlp.fc2', 'attn.qkv')
_BLOCK = 'backbone.stages.{n}.blocks.{m}.'
_CONV = 'mlp.pos_encodings.0.proj.0'
_EMBED = 'backbone.stages.{n}.patch_embed.'
_PEG = 'backbone.stages.{n}.pos_encodings.at.after0.0.proj.'
_NORM = 'backbone.stages.{n}.norm.{p}'
_HEAD = (*same_name_pairs('norm.{p}'), Pair('head.{p}', 'head.fc.{p}'))
_TABLE = 'backbone.stages.{n}.pos_encodings.at.before.0.pos_embed'


def _pairs_of_stage(stage: int) -> tuple[Pair, ...]:
    """Pairs for one stage in the releases of PVT, PVT v2 and SegFormer, which count from 1."""
    theirs, ours = stage + 1, f'backbone.stages.{stage}.'
    return (Pair(f'patch_embed{theirs}.proj.{{p}}', f'{ours}patch_embed.projection.{{p}}'),
            Pair(f'patch_embed{theirs}.norm.{{p}}', f'{ours}patch_embed.norm.{{p}}'),
            Pair(f'pos_embed{theirs}', _TABLE.replace('{n}', str(stage))),
            Pair(f'norm{theirs}.{{p}}', f'{ours}norm.{{p}}'),
            *(Pair(f'block{theirs}.{{m}}.{part}.{{p}}', f'{ours}blocks.{{m}}.{own}.{{p}}')
              for part, own in (*zip(_PARTS, _PARTS, strict=True), ('mlp.dwconv.dwconv', _CONV))))


def _rename_class_token(match: re.Match[str], token: Tensor, state: State) -> dict[str, Tensor]:
    """The class token belongs to the last stage, whose number its name does not contain."""
    last = max(int(name[len('block')]) for name in state if re.match(r'block\d\.', name)) - 1
    return {f'backbone.stages.{last}.cls_token': token}


_PVT = (
    *rules_to_ours(pair for stage in range(9) for pair in _pairs_of_stage(stage)),
    Rule(r'cls_token', _rename_class_token),
    *rules_to_ours(_HEAD),
)

_TWINS = (
    Pair('patch_embeds.{n}.proj.{p}', f'{_EMBED}projection.{{p}}'),
    Pair('patch_embeds.{n}.norm.{p}', f'{_EMBED}norm.{{p}}'),
    *(Pair(f'blocks.{{n}}.{{m}}.{part}.{{p}}', f'{_BLOCK}{part}.{{p}}') for part in _PARTS),
    Pair('pos_block.{n}.proj.{m}.{p}', f'{_PEG}{{m}}.{{p}}'),
    *_HEAD,
)
_TIMM_V2 = (
    Pair('patch_embed.proj.{p}', 'backbone.stages.0.patch_embed.projection.{p}'),
    Pair('patch_embed.norm.{p}', 'backbone.stages.0.patch_embed.norm.{p}'),
    Pair('stages.{n}.downsample.proj.{p}', f'{_EMBED}projection.{{p}}'),
    Pair('stages.{n}.downsample.norm.{p}', f'{_EMBED}norm.{{p}}'),
    Pair('stages.{n}.norm.{p}', _NORM),
    *(Pair(f'stages.{{n}}.blocks.{{m}}.{theirs}.{{p}}', f'{_BLOCK}{ours}.{{p}}')
      for theirs, ours in (*zip(_PARTS, _PARTS, strict=True), ('mlp.dwconv', _CONV))),
    Pair('head.{p}', 'head.fc.{p}'),
)


def _openmmlab_pairs(block: str, mlp: str) -> tuple[Pair, ...]:
    """Pairs that the blocks of mmdet, mmseg and mmpretrain share, given a template of their names
    and one of the two layers of their MLP."""
    first, second = mlp.split()
    return (
        Pair(f'{block}attn.attn.in_proj_{{p}}', (f'{_BLOCK}attn.q.{{p}}', f'{_BLOCK}attn.kv.{{p}}'),
             lambda tensor: tensor.split((len(tensor) // 3, len(tensor) - len(tensor) // 3))),
        *(Pair(f'{block}{theirs}.{{p}}', f'{_BLOCK}{ours}.{{p}}') for theirs, ours in (
            *((part, part) for part in _PARTS if 'mlp' not in part),
            ('attn.attn.out_proj', 'attn.proj'))),
        # In mmdet and mmseg the layers of the MLP are 1x1 convolutions; here they are linear.
        *(Pair(f'{block}{theirs}.{{p}}', f'{_BLOCK}{ours}.{{p}}',
               lambda tensor: tensor.flatten(1) if tensor.dim() == 4 else tensor)
          for theirs, ours in ((first, 'mlp.fc1'), (second, 'mlp.fc2'))))


_MMDET_STAGE = (
    Pair('layers.{n}.0.projection.{p}', f'{_EMBED}projection.{{p}}'),
    Pair('layers.{n}.0.norm.{p}', f'{_EMBED}norm.{{p}}'),
    Pair('layers.{n}.1.0.pos_embed', _TABLE),
    Pair('layers.{n}.2.{p}', _NORM),
)
_MMDET = rules_to_ours((*_MMDET_STAGE,
                        *_openmmlab_pairs('layers.{n}.1.{m}.', 'ffn.layers.0 ffn.layers.3')))
_MMDET_V2 = rules_to_ours((
    *_MMDET_STAGE, Pair('layers.{n}.1.{m}.ffn.layers.1.{p}', f'{_BLOCK}{_CONV}.{{p}}'),
    *_openmmlab_pairs('layers.{n}.1.{m}.', 'ffn.layers.0 ffn.layers.4')))
_MM_TWINS = (
    *rules_to_ours((
        Pair('patch_embeds.{n}.projection.{p}', f'{_EMBED}projection.{{p}}'),
        Pair('patch_embeds.{n}.norm.{p}', f'{_EMBED}norm.{{p}}'),
        Pair('position_encodings.{n}.proj.{p}', f'{_PEG}0.{{p}}'),
        *same_name_pairs('norm.{p}'), Pair('norm_list.{n}.{p}', _NORM),
        Pair('norm_after_stage{n}.{p}', _NORM),
        *_openmmlab_pairs('layers.{n}.{m}.', 'ffn.layers.0.0 ffn.layers.1'),
        *_openmmlab_pairs('stages.{n}.{m}.', 'ffn.layers.0.0 ffn.layers.1'))),
    Rule(r'norm1\.(weight|bias)', None, 'mmseg makes this norm and never runs it'),
)
#: Parts of a block here, then Hugging Face's names of them: first those in its files, then those of
#: its models since version 5.0.
_OURS = ('norm1', 'norm2', 'attn.q', 'attn.sr', 'attn.norm', 'attn.proj', 'mlp.fc1', _CONV,
         'mlp.fc2')
_SELF, _REDUCTION = 'attention.self.', 'attention.sequence_reduction.'
_IN_FILES = ('layer_norm_1', 'layer_norm_2', f'{_SELF}query', f'{_SELF}sr', f'{_SELF}layer_norm',
             'attention.output.dense', 'mlp.dense1', 'mlp.dwconv.dwconv', 'mlp.dense2')
_IN_MODELS = ('layernorm_before', 'layernorm_after', 'attention.q_proj',
              f'{_REDUCTION}sequence_reduction', f'{_REDUCTION}layer_norm', 'attention.o_proj',
              'mlp.fc1', 'mlp.dwconv.dwconv', 'mlp.fc2')


def _huggingface_pairs(embed: str, norm: str, block: str, parts: tuple[str, ...], *key_value: str
                       ) -> tuple[Pair, ...]:
    """Pairs for Hugging Face's SegFormer, given templates of its names."""
    return (Pair(f'{embed}.proj.{{p}}', f'{_EMBED}projection.{{p}}'),
            Pair(f'{embed}.layer_norm.{{p}}', f'{_EMBED}norm.{{p}}'),
            Pair(f'{norm}.{{p}}', _NORM),
            joined_pair(tuple(f'{block}.{name}.{{p}}' for name in key_value),
                        f'{_BLOCK}attn.kv.{{p}}'),
            *(Pair(f'{block}.{theirs}.{{p}}', f'{_BLOCK}{ours}.{{p}}')
              for theirs, ours in zip(parts, _OURS, strict=True)))


_HUGGINGFACE = (
    *rules_to_ours((
        *_huggingface_pairs('patch_embeddings.{n}', 'layer_norm.{n}', 'block.{n}.{m}', _IN_FILES,
                            f'{_SELF}key', f'{_SELF}value'),
        *_huggingface_pairs('stages.{n}.patch_embeddings', 'stages.{n}.layer_norm',
                            'stages.{n}.blocks.{m}', _IN_MODELS, 'attention.k_proj',
                            'attention.v_proj'),
        Pair('classifier.{p}', 'head.fc.{p}'))),
    Rule(r'decode_head\..*', None, "the segmentor's head: only the backbone is here"),
)


def _mmdet_names(state: State) -> dict[str, str]:
    """Names of mmdet's PVT. It numbers the position embedding of a stage among its blocks, so the
    blocks of such a stage are numbered one lower here."""
    with_table = {name.split('.')[1] for name in state if name.endswith('.1.0.pos_embed')}

    def shifted(match: re.Match[str]) -> str:
        return f'layers.{match[1]}.1.{int(match[2]) - (match[1] in with_table)}.'

    return {name: name if name.endswith('pos_embed')
            else re.sub(r'^layers\.(\d)\.1\.(\d+)\.', shifted, name) for name in state}


def _twins_names(state: State) -> dict[str, str]:
    """Names of Twins. If only one stage has a norm, as in classifiers, it is the norm of the pooled
    map."""
    last = {name.split('.')[0] for name in state if name.startswith('norm_after_stage')}
    return {name: re.sub(r'^norm_after_stage\d', 'norm', name) if len(last) == 1 else name
            for name in state}


SOURCES = (
    Source('pvt', _PVT, files="the releases of PVT, PVT v2 and SegFormer's MiT"),
    Source('twins', rules_to_ours(_TWINS), timm=Family(
        _TWINS, r'backbone\.stages\.\d\.pos_encodings\.at\.after0\..*'),
        files="the release of Twins (PCPVT and SVT), and timm's"),
    Source('timm-pvt-v2', rules_to_ours(_TIMM_V2), files="timm's PVT v2",
           timm=Family(_TIMM_V2, r'backbone\.stages\.\d\.norm\..*')),
    Source('huggingface-segformer', _HUGGINGFACE, [(r'^(segformer\.)?(encoder\.)?', '')],
           files="Hugging Face's SegFormer"),
    Source('mmdet-pvt', lambda state: (
        _MMDET_V2 if any(name.endswith('ffn.layers.4.weight') for name in state) else _MMDET),
        names=_mmdet_names, files="mmdet's PVT and PVT v2, mmseg's MixVisionTransformer"),
    Source('mm-twins', _MM_TWINS, names=_twins_names,
           files="mmseg's and mmpretrain's PCPVT and SVT"),
)
