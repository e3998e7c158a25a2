"""Weights of the plain vision transformers of mmseg (VisionTransformer, BEiT, MAE) and mmpretrain
(VisionTransformer, DistilledVisionTransformer, BEiTViT, MAEViT, ViTEVA02), alone or as the backbone
of a classifier, under timm's names first."""
from __future__ import annotations

from .beit import BIASES
from .rules import Pair, Rule, Source, State, rules_to_ours, same_name_pairs
from .vit import QV_BIASES, SCALES, TABLE, vit_pairs

#: Parts of names, and timm's. Heads are LinearClsHead, VisionTransformerClsHead and DeiTClsHead.
_AS_TIMM = (
    (r'^backbone\.', ''), (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'^(pre_norm|ln_pre)\.', 'norm_pre.'), (r'^ln1\.', 'norm.'), (r'^ln2\.', 'fc_norm.'),
    (r'^head\.(fc|head|layers\.head)\.', 'head.'), (r'^head\.layers\.head_dist\.', 'head_dist.'),
    (r'^layers\.', 'blocks.'), (r'\.ln(\d)\.', r'.norm\1.'),
    (r'\.attn\.attn\.in_proj_', '.attn.qkv.'), (r'\.attn\.attn\.out_proj\.', '.attn.proj.'),
    (r'\.(ffn\.layers\.0\.0|(ffn|mlp)\.w12)\.', '.mlp.fc1.'),
    (r'\.(ffn\.layers\.1|(ffn|mlp)\.w3)\.', '.mlp.fc2.'),
    (r'\.(attn|ffn)\.gamma([12])\.(weight|scale)$', r'.ls\2.gamma'))
_LEFT_OUT = (
    Rule('mask_token', None, 'of pretraining with masked patches'),
    Rule(r'(.*\.)?(relative_position_index|rope\.freqs_(cos|sin))', None, 'computed'),
)


def _rules(state: State) -> tuple[Rule, ...]:
    # The table of ViTSAM is a map.
    table = Pair('pos_embed', TABLE, lambda table: table.flatten(1, -2))
    norm = same_name_pairs('blocks.{n}.mlp.norm.{p}')
    return (*rules_to_ours((table, *vit_pairs(state), SCALES, *QV_BIASES, *BIASES, *norm)),
            *_LEFT_OUT)


SOURCES = (Source('mm-vit', _rules, _AS_TIMM,
                  files="mmseg's and mmpretrain's ViT, BEiT, MAE and EVA-02"),)
