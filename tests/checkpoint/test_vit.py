"""Names of DeiT, iRPE's DeiT, timm's vision transformers and mmpretrain's."""
import torch

from mmposenc.checkpoint import convert


def block(prefix='blocks.0.'):
    return {f'{prefix}norm1.weight': torch.ones(4), f'{prefix}attn.qkv.weight': torch.ones(12, 4)}


def test_distilled_models_get_both_heads():
    state = {'cls_token': torch.ones(1, 1, 4), 'dist_token': torch.ones(1, 1, 4),
             'head.weight': torch.ones(5, 4), 'head_dist.weight': torch.zeros(5, 4),
             'head_dist.bias': torch.zeros(5), **block()}
    assert set(convert(state, 'deit')) == {
        'backbone.cls_token', 'backbone.dist_token', 'head.layers.head.weight',
        'head.layers.head_dist.weight', 'head.layers.head_dist.bias',
        'backbone.blocks.0.norm1.weight', 'backbone.blocks.0.attn.qkv.weight'}
