"""Weights of the plain vision transformers of mmseg (VisionTransformer, BEiT, MAE) and mmpretrain
(VisionTransformer, DistilledVisionTransformer, BEiTViT, MAEViT, ViTEVA02), alone or as the backbone
of a classifier, under timm's names first."""
from __future__ import annotations

from .beit import BIASES
from .rules import Pair, Rule, Source, State, rules_to_ours, same_name_pairs
from .vit import QV_BIASES, SCALES, vit_pairs

#: Parts of names in a block, and timm's names; '' stands for the same name.
_IN_BLOCK = (
    ('attn.qkv.{p}', ''), ('attn.proj.{p}', ''), ('attn.q_bias', ''), ('attn.v_bias', ''),
    ('attn.attn.in_proj_{p}', 'attn.qkv.{p}'), ('attn.attn.out_proj.{p}', 'attn.proj.{p}'),
    ('attn.relative_position_bias_table', ''), ('gamma_{m}', ''),
    ('ln{m}.{p}', 'norm{m}.{p}'), ('norm{m}.{p}', ''),
    ('ffn.layers.0.0.{p}', 'mlp.fc1.{p}'), ('ffn.layers.1.{p}', 'mlp.fc2.{p}'),
    ('ffn.w12.{p}', 'mlp.fc1.{p}'), ('ffn.w3.{p}', 'mlp.fc2.{p}'),
    ('mlp.w12.{p}', 'mlp.fc1.{p}'), ('mlp.norm.{p}', ''), ('mlp.w3.{p}', 'mlp.fc2.{p}'),
    ('attn.gamma1.weight', 'ls1.gamma'), ('attn.gamma1.scale', 'ls1.gamma'),
    ('ffn.gamma2.weight', 'ls2.gamma'), ('ffn.gamma2.scale', 'ls2.gamma'))
#: Pairs for the models of mmseg and mmpretrain; heads are LinearClsHead, VisionTransformerClsHead
#: and DeiTClsHead.
_MM = (
    Pair('patch_embed.projection.{p}', 'patch_embed.proj.{p}'),
    *(Pair(name, name) for name in ('cls_token', 'dist_token',
                                    'rel_pos_bias.relative_position_bias_table')),
    # The table of ViTSAM is a map.
    Pair('pos_embed', 'pos_embed', lambda table: table.flatten(1, -2)),
    *(Pair(f'layers.{{n}}.{theirs}', f'blocks.{{n}}.{ours or theirs}')
      for theirs, ours in _IN_BLOCK),
    *(Pair(f'{norm}.{{p}}', 'norm_pre.{p}') for norm in ('pre_norm', 'ln_pre')),
    Pair('ln1.{p}', 'norm.{p}'), Pair('ln2.{p}', 'fc_norm.{p}'),
    *(Pair(f'{head}.{{p}}', 'head.{p}') for head in ('head.fc', 'head.head', 'head.layers.head')),
    Pair('head.layers.head_dist.{p}', 'head_dist.{p}'),
)
_LEFT_OUT = (
    Rule('mask_token', None, 'of pretraining with masked patches'),
    Rule(r'(.*\.)?(relative_position_index|rope\.freqs_(cos|sin))', None, 'computed'),
)


def _rules_of_timm(state: State) -> tuple[Rule, ...]:
    norm = same_name_pairs('blocks.{n}.mlp.norm.{p}')
    return rules_to_ours((*vit_pairs(state), SCALES, *QV_BIASES, *BIASES, *norm))


SOURCES = (Source('mm-vit', (*rules_to_ours(_MM), *_LEFT_OUT), [(r'^backbone\.', '')],
                  then=Source('mm-vit', _rules_of_timm),
                  files="mmseg's and mmpretrain's ViT, BEiT, MAE and EVA-02"),)
