"""DINOv3, EVA-02 and RoPE-ViT under the names of their releases, and DINOv3 under those of Hugging
Face: renamed to timm's, and then read by timm's table (:mod:`mmposenc.checkpoint.eva`)."""
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .eva import convert_timm_eva
from .rules import Converted, Pair, Rule, apply_rules, to_ours

_MASK = 'of pretraining with masked patches'
_ANGLES = 'angles, which are computed for each image'


def _query_and_value(match: re.Match[str], bias: Tensor, state: Mapping[str, Tensor]
                     ) -> dict[str, Tensor]:
    """DINOv3's release holds a bias of the keys too, which a mask of zeros takes away."""
    query, _, value = bias.chunk(3)
    return {f'{match.group(1)}.q_bias': query, f'{match.group(1)}.v_bias': value}


_DINOV3 = (
    Rule(r'mask_token', None, _MASK),
    Rule(r'rope_embed\.periods', None, 'computed from theta'),
    Rule(r'.*\.qkv\.bias_mask', None, 'zeros for the keys, which have no bias here'),
    Rule(r'local_cls_norm\..*', None, 'a norm of small crops in pretraining'),
    Rule(r'(blocks\.\d+\.attn)\.qkv\.bias', _query_and_value),
    *to_ours((Pair('storage_tokens', 'reg_token'),
              Pair('blocks.{n}.ls{m}.gamma', 'blocks.{n}.gamma_{m}'),
              Pair('blocks.{n}.mlp.w1.{p}', 'blocks.{n}.mlp.fc1_g.{p}'),
              Pair('blocks.{n}.mlp.w2.{p}', 'blocks.{n}.mlp.fc1_x.{p}'),
              Pair('blocks.{n}.mlp.w3.{p}', 'blocks.{n}.mlp.fc2.{p}'))),
)

_HUGGINGFACE = (
    Rule(r'embeddings\.mask_token', None, _MASK),
    Rule(r'rope_embeddings\..*', None, _ANGLES),
    *to_ours((
        Pair('embeddings.cls_token', 'cls_token'), Pair('embeddings.register_tokens', 'reg_token'),
        Pair('embeddings.patch_embeddings.{p}', 'patch_embed.proj.{p}'),
        Pair('norm.{p}', 'norm.{p}'), Pair('layer.{n}.norm{m}.{p}', 'blocks.{n}.norm{m}.{p}'),
        *(Pair(f'layer.{{n}}.attention.{part}_proj.{{p}}', f'blocks.{{n}}.attn.{part}_proj.{{p}}')
          for part in 'qkv'),
        Pair('layer.{n}.attention.o_proj.{p}', 'blocks.{n}.attn.proj.{p}'),
        Pair('layer.{n}.layer_scale{m}.lambda1', 'blocks.{n}.gamma_{m}'),
        Pair('layer.{n}.mlp.gate_proj.{p}', 'blocks.{n}.mlp.fc1_g.{p}'),
        Pair('layer.{n}.mlp.down_proj.{p}', 'blocks.{n}.mlp.fc2.{p}'))),
    # The only layer before the activation, or beside its gates.
    Rule(r'layer\.(\d+)\.mlp\.up_proj\.(weight|bias)', lambda match, tensor, state: {
        f'blocks.{match[1]}.mlp.fc1{"_x" if "layer.0.mlp.gate_proj.weight" in state else ""}'
        f'.{match[2]}': tensor}),
)

_EVA02 = (
    Rule(r'mask_token|lm_head\..*', None, _MASK),
    Rule(r'(?:blocks\.\d+\.attn\.)?rope\.freqs_(?:cos|sin)', None, _ANGLES),
    *to_ours((Pair('blocks.{n}.mlp.ffn_ln.{p}', 'blocks.{n}.mlp.norm.{p}'),
              Pair('blocks.{n}.attn.inner_attn_ln.{p}', 'blocks.{n}.attn.norm.{p}'),
              Pair('blocks.{n}.mlp.w12.{p}', 'blocks.{n}.mlp.fc1.{p}'),
              Pair('blocks.{n}.mlp.w1.{p}', 'blocks.{n}.mlp.fc1_g.{p}'),
              Pair('blocks.{n}.mlp.w2.{p}', 'blocks.{n}.mlp.fc1_x.{p}'),
              Pair('blocks.{n}.mlp.w3.{p}', 'blocks.{n}.mlp.fc2.{p}'))),
    # Biases of the projections that stand apart have other names in timm.
    Rule(r'(blocks\.\d+\.attn)\.([qv])_bias', lambda match, tensor, state: {
        f'{match[1]}.{match[2]}' + ('_proj.bias' if 'blocks.0.attn.q_proj.weight' in state
                                    else '_bias'): tensor}),
)

#: Heads of 64 channels, as all of RoPE-ViT's have.
_PLANES = 32
_ROPE_VIT = (
    Rule(r'freqs_t_[xy]', None, 'positions, which are counted for each image'),
    Rule(r'freqs', lambda match, tensor, state: {
        'rope.freqs': tensor.unflatten(-1, (-1, _PLANES))}),
)
_REST = (Rule(r'.*', r'\g<0>'),)


def convert_eva(state_dict: Mapping[str, Tensor]) -> Converted:
    """Convert DINOv3 (its release's, Hugging Face's and timm's), EVA-02 and RoPE-ViT (their
    releases' and timm's).

    A key's bias, where DINOv3's file holds one, is dropped: the release masks it.
    """
    plain = {name.removeprefix('model.'): value for name, value in state_dict.items()}
    rules: tuple[Rule, ...] = ()
    if 'storage_tokens' in plain:
        rules = _DINOV3
    elif 'layer.0.attention.q_proj.weight' in plain:
        rules = _HUGGINGFACE
    elif 'freqs' in plain:
        rules = _ROPE_VIT
    elif any(re.search(r'rope\.freqs_cos|mlp\.w\d+\.|mlp\.ffn_ln\.', name) for name in plain):
        rules = _EVA02
    renamed = apply_rules(plain, (*rules, *_REST), 'eva')
    converted = convert_timm_eva(renamed.state_dict)
    return Converted(converted.state_dict, renamed.dropped | converted.dropped)


def rounds_periods(state_dict: Mapping[str, Any]) -> bool:
    """Whether a file of DINOv3's release holds periods in bfloat16, or rounded to it."""
    periods = next((value for name, value in state_dict.items()
                    if name.endswith('rope_embed.periods')), None)
    return periods is not None and torch.equal(periods.float(), periods.bfloat16().float())
