"""What a model must be built with, told by the names and shapes of converted weights."""
# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
from functools import partial

import pytest
import torch
from helpers.tiny_backbones import unfilled
from timm.models.beit import Beit
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer_relpos import VisionTransformerRelPos
from timm.models.vision_transformer_sam import VisionTransformerSAM

from mmposenc.backbones import ViT
from mmposenc.backbones.archs import needed_options
from mmposenc.checkpoint import convert, recognise

TABLE = 'pos_encoding.type=mmposenc.LearnedPositionEmbedding'
TINY = partial(ViT, embed_dims=24, num_layers=2, num_heads=3,
               pos_encoding=dict(type='LearnedPositionEmbedding'))
SIZES = ['embed_dims=24', 'num_layers=2', TABLE]  # heads are in no file
BASE = dict(img_size=64, patch_size=8, embed_dim=768, num_heads=12, num_classes=0)


@pytest.mark.parametrize('build, needs', [
    (partial(ViT, 'clip-base', patch_size=32), ['arch=clip-base', 'patch_size=32']),
    (TINY, SIZES),
    (partial(TINY, pre_norm=True, register_tokens=3, mlp='swiglu', mlp_hidden_dims=40,
             layer_scale_init_value=1.0, pool=None, class_token=True),
     [*SIZES, 'norm_eps=1e-5', 'pre_norm=True', 'register_tokens=3', 'layer_scale_init_value=1e-6',
      'mlp=swiglu', 'mlp_hidden_dims=40']),
    (partial(TINY, mlp_ratio=2, qkv_bias='qv', pool='gap'),
     [*SIZES, 'mlp_hidden_dims=48', 'qkv_bias=qv', 'pool=gap']),
    (partial(TINY, layer_scale_init_value=1e-6, pos_encoding=dict(
        type='LearnedPositionEmbedding', num_prefix_embeds=0)),
     [*SIZES, 'pos_encoding.num_prefix_embeds=0', 'layer_scale_init_value=1e-6']),
    # A DINOv2 at patch 16, or a DeiT III with a row for its class token, are no arch.
    (partial(ViT, 'dinov2-small', patch_size=16, img_size=224),
     ['arch=small', TABLE, 'layer_scale_init_value=1e-6']),
    (partial(Beit, **BASE, use_abs_pos_emb=False, use_shared_rel_pos_bias=True, use_fc_norm=False),
     ['arch=beit-base', 'patch_size=8', 'img_size=64', 'layer_scale_init_value=None',
      'rel_pos_sharing=all', 'pool=cls', 'final_norm=True']),
    (partial(VisionTransformerRelPos, **BASE, qkv_bias=False, class_token=True, rel_pos_dim=256,
             global_pool='token'),
     ['arch=relpos-base', 'patch_size=8', 'rel_pos_encoding.hidden_dims=256', 'class_token=True',
      'pool=cls', 'final_norm=True']),
    (partial(VisionTransformerSAM, img_size=28, patch_size=4, embed_dim=24, depth=2, num_heads=3,
             num_classes=0, use_rel_pos=True, window_size=3, global_attn_indexes=(1,),
             neck_chans=6),
     ['embed_dims=24', 'num_layers=2', 'rel_pos_encoding.type=mmposenc.DecomposedRPE', TABLE,
      'patch_size=4', 'img_size=28', 'pool=None', 'final_norm=False', 'mask_window_padding=False',
      'window_size=3', 'global_blocks=(1,)', 'neck_channels=6']),
    (partial(SwinTransformer, img_size=64, window_size=((8, 8), (4, 4)), embed_dim=12,
             depths=(2, 2), num_heads=(2, 3), num_classes=0),
     ['embed_dims=12', 'num_layers=(2,2,)', 'num_heads=(2,3,)', 'window_size=(8,4,)'])])
def test_options_that_weights_show(build, needs) -> None:
    with unfilled():
        state = build().state_dict()
    converted = ({f'backbone.{name}': value for name, value in state.items()}
                 if build.func is ViT else convert(state, recognise(state)))
    assert needed_options(converted) == [f'model.backbone.{option}' for option in needs]


def test_options_of_oblong_patches() -> None:
    state = TINY(patch_size=(8, 16), img_size=(32, 48)).state_dict()
    assert needed_options({f'backbone.{name}': value for name, value in state.items()}) == [
        f'model.backbone.{option}' for option in (
            *SIZES, 'patch_size=(8,16)', 'img_size=(32,48)')]


def test_options_of_swin_v2() -> None:
    block = 'layers.0.blocks.1.attn.'
    state = convert({name: torch.zeros(shape) for name, shape in {
        'patch_embed.proj.weight': (4, 3, 4, 4), f'{block}qkv.weight': (12, 4),
        f'{block}logit_scale': (2, 1, 1), 'layers.0.blocks.1.norm1.weight': (4,),
        'layers.1.blocks.0.norm1.weight': (8,)}.items()}, 'swin')
    assert needed_options(state) == [f'model.backbone.{option}' for option in (
        'embed_dims=4', 'num_layers=(1,1,)', 'num_heads=(2,)', 'cosine=True', 'post_norm=True',
        'qkv_bias=qv', 'rel_pos_encoding.type=mmposenc.LogSpacedCPB')]
