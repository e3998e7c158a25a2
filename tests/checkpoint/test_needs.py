"""What a model must be built with, told by the shapes of converted weights."""
from helpers.tiny_backbones import unfilled

from mmposenc.backbones import ViT
from mmposenc.backbones.archs import needed_options


def needs(*args, **kwargs) -> list[str]:
    """Of a model's own weights, without the prefix."""
    with unfilled():
        state = ViT(*args, **kwargs).state_dict()
    return [option.removeprefix('model.backbone.') for option in needed_options(
        {f'backbone.{name}': value for name, value in state.items()})]


def test_another_patch_than_the_archs() -> None:
    assert needs('clip-base', patch_size=32) == ['arch=clip-base', 'patch_size=32']


TABLE = 'pos_encoding.type=mmposenc.LearnedPositionEmbedding'


def test_options_where_no_arch_fits() -> None:
    learned = dict(type='LearnedPositionEmbedding')
    sizes = dict(embed_dims=24, num_layers=2, num_heads=3, pos_encoding=learned)
    told = ['embed_dims=24', 'num_layers=2', TABLE]  # heads are in no file
    assert needs(**sizes) == told
    assert needs(**sizes, pre_norm=True, register_tokens=3, mlp='swiglu', mlp_hidden_dims=40,
                 layer_scale_init_value=1.0, pool=None, class_token=True) == told + [
        'norm_eps=1e-5', 'pre_norm=True', 'register_tokens=3', 'layer_scale_init_value=1e-6',
        'mlp=swiglu', 'mlp_hidden_dims=40']
    assert needs(**sizes, mlp_ratio=2, qkv_bias='qv', pool='gap') == told + [
        'mlp_hidden_dims=48', 'qkv_bias=qv', 'pool=gap']
    # A DINOv2 at patch 16, or a DeiT III with a row for its class token, are no arch.
    assert needs('dinov2-small', patch_size=16, img_size=224) == [
        'arch=small', TABLE, 'layer_scale_init_value=1e-6']
