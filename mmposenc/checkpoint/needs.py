"""What a model must be built with for converted weights to fit, where that is not its default."""
from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .eva import eva_options

_TABLE = 'backbone.pos_encodings.at.before.0.pos_embed'


def needed_options(state_dict: Mapping[str, Tensor]) -> list[str]:
    """Options of a model that converted weights need, as ``--cfg-options`` takes them.

    Args:
        state_dict: as :func:`mmposenc.checkpoint.convert` gives it.

    Returns:
        'model.backbone.layer_scale_init_value=1e-6', ...; sizes that ``arch`` chooses are not
        among them.
    """
    options = []
    if 'backbone.blocks.0.attn.qkv.weight' in state_dict:
        options += [f'model.backbone.{option}' for option in _vision_transformer(state_dict)]
    if 'neck.convs.0.gn.weight' in state_dict and 'neck.convs.0.conv.bias' in state_dict:
        options.append('model.neck.bias=True')
    first, second = (state_dict.get(f'bbox_head.reg_branches.{i}.0.weight') for i in (0, 1))
    if first is not None and second is not None and not torch.equal(first, second):
        options.append('model.with_box_refine=True')
    if 'memory_trans_fc.weight' in state_dict:
        options.append('model.as_two_stage=True')
    return options


def _vision_transformer(state_dict: Mapping[str, Tensor]) -> list[str]:
    if rotary := eva_options(state_dict):
        return rotary
    options = []
    patches = state_dict.get('backbone.patch_embed.projection.weight')
    table = state_dict.get(_TABLE)
    patch_size = 16 if patches is None else int(patches.shape[-1])
    if patch_size != 16:
        options.append(f'patch_size={patch_size}')
    if table is not None:
        tokens = sum(f'backbone.{kind}_token' in state_dict for kind in ('cls', 'dist'))
        side = round(table.shape[1] ** 0.5)
        if tokens and side * side == table.shape[1]:
            options.append('pos_encoding.num_prefix_embeds=0')
        side = int(table.shape[1] ** 0.5)
        if side * patch_size != 224:
            options.append(f'img_size={side * patch_size}')
    if 'backbone.blocks.0.ls1.gamma' in state_dict:
        options.append('layer_scale_init_value=1e-6')
    if 'backbone.blocks.0.attn.qkv.q_bias' in state_dict:
        options.append('qkv_bias=qv')
    elif 'backbone.blocks.0.attn.qkv.bias' not in state_dict:
        options.append('qkv_bias=False')
    if 'backbone.cls_token' not in state_dict:
        options.append("pool='gap'")
    if 'backbone.fc_norm.weight' in state_dict:
        options.append('final_norm=pooled')
    return options
