"""What a model must be built with for converted weights to fit, where that is not its default."""
from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .beit import beit_arch
from .eva import eva_arch
from .sam import sam_options
from .vit import TABLE
from .vit_options import is_gated, vit_arch


def needed_options(state_dict: Mapping[str, Tensor]) -> list[str]:
    """Options of a model that converted weights need, as ``--cfg-options`` takes them.

    Args:
        state_dict: as :func:`mmposenc.checkpoint.convert` gives it.

    Returns:
        'model.backbone.arch=dinov2-small-reg', or 'model.backbone.layer_scale_init_value=1e-6', ...
        where there is no such arch; sizes of DeiT's archs are not among them.
    """
    options = []
    if 'backbone.blocks.0.attn.qkv.weight' in state_dict:
        options += [f'model.backbone.{option}' for option in _vision_transformer(state_dict)]
    if any(name.endswith('.cosine.logit_scale') for name in state_dict):
        options += [f'model.backbone.{option}' for option in _swin_v2(state_dict)]
    if 'neck.convs.0.gn.weight' in state_dict and 'neck.convs.0.conv.bias' in state_dict:
        options.append('model.neck.bias=True')
    first, second = (state_dict.get(f'bbox_head.reg_branches.{i}.0.weight') for i in (0, 1))
    if first is not None and second is not None and not torch.equal(first, second):
        options.append('model.with_box_refine=True')
    if 'memory_trans_fc.weight' in state_dict:
        options.append('model.as_two_stage=True')
    return options


def _vision_transformer(state_dict: Mapping[str, Tensor]) -> list[str]:
    patches = state_dict.get('backbone.patch_embed.projection.weight')
    for told in (sam_options, eva_arch, vit_arch, beit_arch) if patches is not None else ():
        if arch := told(state_dict):
            return arch
    options = []
    table = state_dict.get(TABLE)
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
    if 'backbone.norm_pre.weight' in state_dict:
        options.append('pre_norm=True')
    if 'backbone.register_tokens' in state_dict:
        options.append(f'register_tokens={state_dict["backbone.register_tokens"].shape[1]}')
    if 'backbone.blocks.0.ls1.gamma' in state_dict:
        options.append('layer_scale_init_value=1e-6')
    if 'backbone.blocks.0.mlp.fc2.weight' in state_dict:
        options += _mlp(state_dict)
    if 'backbone.blocks.0.attn.qkv.q_bias' in state_dict:
        options.append('qkv_bias=qv')
    elif 'backbone.blocks.0.attn.qkv.bias' not in state_dict:
        options.append('qkv_bias=False')
    if 'backbone.cls_token' not in state_dict:
        options.append("pool='gap'")
    if 'backbone.fc_norm.weight' in state_dict:
        options.append('final_norm=pooled')
    return options


def _mlp(state_dict: Mapping[str, Tensor]) -> list[str]:
    """Gates, and another width than four times the channels."""
    dims, hidden = state_dict['backbone.blocks.0.mlp.fc2.weight'].shape
    gates = is_gated(state_dict)
    return ['mlp=swiglu'] * gates + [f'mlp_hidden_dims={hidden}'] * (hidden != 4 * dims)


#: Archs of Swin by the channels of the first stage and the blocks of the third.
_SWINS = {(96, 6): 'tiny', (96, 18): 'small', (128, 18): 'base', (192, 18): 'large'}


def _swin_v2(state_dict: Mapping[str, Tensor]) -> list[str]:
    dims = state_dict['backbone.patch_embed.projection.weight'].shape[0]
    blocks = [name for name in state_dict
              if re.fullmatch(r'backbone\.stages\.2\.blocks\.\d+\.norm1\.weight', name)]
    if (dims, len(blocks)) in _SWINS:
        return [f'arch=v2-{_SWINS[dims, len(blocks)]}']
    return ['cosine=True', 'post_norm=True', 'qkv_bias=qv', 'window_bias=log_cpb']
