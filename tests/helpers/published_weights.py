"""Models of timm, and what released files hold of them under their own names."""
import math
from functools import partial

import torch
import yaml
from timm.layers import RmsNorm, SwiGLUPacked
from timm.models.convnext import ConvNeXt
from timm.models.deepseek_vit import DeepseekVitEncoder
from timm.models.eva import Eva
from timm.models.pvt_v2 import PyramidVisionTransformerV2
from timm.models.qwen3_vit import Qwen3VitEncoder
from timm.models.swin_transformer import SwinTransformer
from timm.models.swin_transformer_v2 import SwinTransformerV2
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_sam import VisionTransformerSAM
from torch import Tensor, nn

from helpers.scripts import ROOT

State = dict[str, Tensor]
SIZES = dict(img_size=32, patch_size=16, embed_dim=12, depth=3, num_heads=2, num_classes=0)
VIT = partial(VisionTransformer, **SIZES)
SCALED = partial(VIT, init_values=1.0)
REGISTERS = partial(SCALED, reg_tokens=4, no_embed_class=True)
GIANT = partial(SCALED, mlp_layer=SwiGLUPacked, act_layer=nn.SiLU)
CLIP = partial(VIT, pre_norm=True)
DINOV3 = partial(
    Eva, **dict(SIZES, embed_dim=128), use_rot_pos_emb=True, rope_type='dinov3',
    rope_rotate_half=True, num_reg_tokens=4, use_abs_pos_emb=False, use_fc_norm=False,
    init_values=1.0)
SAPIENS2 = partial(
    DINOV3, attn_type='rope', qkv_fused=False, qk_norm=True, swiglu_mlp=True,
    attn_only_layer_scale=True, norm_layer=RmsNorm)
GATED = partial(DINOV3, swiglu_mlp=True, swiglu_align_to=8)
PVT_V2 = partial(PyramidVisionTransformerV2, depths=(1, 2), embed_dims=(8, 16), num_heads=(1, 2),
                 sr_ratios=(2, 1), mlp_ratios=(2, 2), num_classes=5)
SWIN = dict(img_size=32, patch_size=4, embed_dim=12, depths=(2, 1), num_heads=(2, 4),
            window_size=4, num_classes=5)
SAM = partial(VisionTransformerSAM, **dict(SIZES, patch_size=4), use_rel_pos=True, window_size=3,
              global_attn_indexes=(1,), neck_chans=6)
CONVNEXT = partial(ConvNeXt, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32), num_classes=5)
#: Models of timm by the beginning of a kind's name; the first that fits holds.
MODELS = {
    'dinov2, of FSDP': [GIANT], 'dinov2, hugging': [SCALED, GIANT], 'dinov2': [SCALED, REGISTERS],
    'deit iii': [partial(SCALED, no_embed_class=True)], 'mae': [VIT], 'open_clip': [VIT],
    'tipsv2': [partial(SCALED, reg_tokens=1, no_embed_class=True)],
    'qwen3': [partial(Qwen3VitEncoder, img_size=32, patch_size=16, embed_dim=12, depth=3,
                      num_heads=1, pos_embed_grid_size=2, global_pool='')],
    'deepseek': [partial(DeepseekVitEncoder, img_size=32, patch_size=16, embed_dim=12, depth=3,
                         num_heads=1, global_pool='')],
    'sapiens2': [SAPIENS2], 'vit, ': [partial(VIT, num_classes=5)],
    'clip, hugging': [CLIP, partial(VIT, class_token=False, global_pool='avg', fc_norm=False)],
    'clip': [CLIP],
    'dinov3 gated': [GATED], 'dinov3, ': [DINOV3],
    'dinov3': [DINOV3, partial(DINOV3, qkv_bias=False), GATED],
    'convnext v2': [partial(CONVNEXT, use_grn=True, ls_init_value=None)], 'convnext': [CONVNEXT],
    'pvt v2': [PVT_V2], 'segformer': [PVT_V2], 'swin v2': [partial(SwinTransformerV2, **SWIN)],
    'swin': [partial(SwinTransformer, **SWIN)], 'sam': [SAM], 'vitdet': [SAM]}
KINDS = yaml.safe_load((ROOT / 'tests' / 'golden' / 'published_names.yaml').read_text())


def coordinates(side: int, unit: int) -> Tensor:
    """Swin V2's, of a window, in the unit of another."""
    along = [math.copysign(math.log2(abs(offset) * 8 / (unit - 1) + 1) / 3, offset)
             for offset in range(1 - side, side)]
    return torch.tensor([[[[row, col] for col in along] for row in along]])


#: What files hold and models compute, by the end of its name.
COMPUTED = {
    'bias_mask': torch.tensor((1., 0, 1)).repeat_interleave(128),
    'periods': 100 ** (torch.arange(16) / 16), 'attn_mask': torch.zeros(4, 16, 16),
    'relative_position_index': torch.zeros(16, 16), 'relative_coords_table': coordinates(4, 4)}


def models(kind: str) -> list[partial]:
    """Models whose weights are published under the names of a kind."""
    found = [builders for begin, builders in MODELS.items() if kind.startswith(begin)]
    assert found, f'{kind} needs timm\'s model in MODELS of tests/helpers/published_weights.py'
    return found[0]


def published(kind: str, state: State) -> State:
    """Weights of timm's model as a released file of a kind holds them."""
    file, taken = {}, set()
    for theirs, ours in KINDS[kind]['names'].items():
        if ours is None:
            file[theirs] = COMPUTED.get(theirs.rpartition('.')[2], torch.zeros(1, 2))
            continue
        ours, _, how = ours.partition(' ')
        for number in map(str, range(4)):
            for end in ('', '.weight', '.bias'):
                name = ours.replace('#', number) + end
                if name in state:
                    file[theirs.replace('#', number) + end] = _value(state, name, how)
                    taken |= {name, name.replace('q_bias', 'v_bias') if how == 'masked' else name}
    return file | {name: value for name, value in state.items() if name not in taken}


def _value(state: State, name: str, how: str) -> Tensor:
    value = state[name]
    if how == 'flat':
        return value[0, 0] if name == 'cls_token' else value[0]
    if how == 'by channels':
        return value.flatten(1)
    if how == 'linear':  # row, column, channel of a patch
        return value.permute(0, 2, 3, 1).flatten(1) if value.dim() == 4 else value
    if how == 'masked':  # DINOv3 has a bias of the keys, and a mask that leaves it out
        return torch.cat((value, torch.randn_like(value), state[name.replace('q_bias', 'v_bias')]))
    if how == 'row':
        return value[None, None, None]
    if how == 'frames':  # two that sum up to that of an image
        return torch.stack((value / 4, value * 0.75), 2)
    if how == 'merged':  # channel, row, column
        dims = value.shape[-1] // 4
        return value.unflatten(-1, (2, 2, dims)).transpose(-1, -3).flatten(-3)
    if how:
        number, _, parts = how.partition('/')
        return value.chunk(int(parts))[int(number) - 1]
    return value
