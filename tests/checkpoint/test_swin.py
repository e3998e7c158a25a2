"""Names of the Swin Transformers: merging and what is refused."""
import pytest
import torch

from mmposenc.backbones.archs import needed_options
from mmposenc.checkpoint import convert

OFFICIAL = {
    'patch_embed.proj.weight': (4, 3, 4, 4), 'patch_embed.norm.bias': (4,),
    'layers.0.blocks.1.norm1.weight': (4,), 'layers.0.blocks.1.attn.qkv.weight': (12, 4),
    'layers.0.blocks.1.attn.relative_position_bias_table': (9, 2),
    'layers.0.blocks.1.mlp.fc1.bias': (8,), 'layers.0.downsample.norm.weight': (16,),
    'layers.0.downsample.reduction.weight': (8, 16), 'layers.1.blocks.0.norm2.bias': (8,),
    'norm.weight': (8,), 'head.weight': (5, 8)}


def tensors(shapes):
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


def test_norms_of_every_stage_keep_their_numbers():
    converted = convert(tensors({'norm0.weight': (4,), 'norm3.weight': (8,)}), 'swin')
    assert set(converted) == {'backbone.norm0.weight', 'backbone.norm3.weight'}


LAST = 'swinv2.encoder.layers.0.blocks.1.layernorm_last.weight'


@pytest.mark.parametrize('shapes, source, said', [
    ({'stages.0.downsample.norm.weight': (6,)}, 'mmdet-swin',
     r'downsample.norm.weight has shape \(6,\); a multiple'),
    ({'absolute_pos_embed': (1, 4, 4)}, 'swin', 'absolute_pos_embed'),
    ({LAST: (4,)}, 'swin', rf'1 of \d+ parameters: {LAST}'),
    (OFFICIAL | {'head.fc.weight': (5, 8)}, 'swin',
     'head.weight, head.fc.weight are names of the same')])
def test_what_does_not_fit_is_named(shapes, source, said):
    with pytest.raises(ValueError, match=said):
        convert(tensors(shapes), source)


def test_what_v2_needs_of_a_backbone():
    block = 'layers.0.blocks.1.attn.'
    state = convert(tensors({
        'patch_embed.proj.weight': (4, 3, 4, 4), f'{block}qkv.weight': (12, 4),
        f'{block}logit_scale': (2, 1, 1), 'layers.0.blocks.1.norm1.weight': (4,),
        'layers.1.blocks.0.norm1.weight': (8,)}), 'swin')
    assert needed_options(state) == [
        f'model.backbone.{option}' for option in (
            'embed_dims=4', 'num_layers=(1,1,)', 'num_heads=(2,)', 'cosine=True', 'post_norm=True',
            'qkv_bias=qv', 'rel_pos_encoding.type=mmposenc.LogSpacedCPB')]
    wide = state | {
        'backbone.patch_embed.projection.weight': torch.zeros(96, 3, 4, 4),
        **{f'backbone.stages.2.blocks.{i}.norm1.weight': torch.zeros(384) for i in range(6)}}
    assert needed_options(wide) == ['model.backbone.arch=v2-tiny']
