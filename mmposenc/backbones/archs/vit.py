"""Published plain vision transformers: for each, the arguments of ViT, by which its weights are
recognised too."""
from __future__ import annotations

from ...config_types import ConfigType

SIZES = ('embed_dims', 'num_layers', 'num_heads')


def _sizes(embed_dims: int, num_layers: int, num_heads: int) -> ConfigType:
    return dict(zip(SIZES, (embed_dims, num_layers, num_heads), strict=True))


def _table_config(**options: object) -> ConfigType:
    return dict(type='mmposenc.LearnedPositionEmbedding', **options)


def _log_cpb_config(hidden_dims: int) -> ConfigType:
    return dict(type='mmposenc.LogSpacedCPB', mode='cr', hidden_dims=hidden_dims,
                prefix_bias=False)


def _rotary_config(**options: object) -> ConfigType:
    return dict(type='mmposenc.RotaryEmbedding', **options)


#: ViT (Dosovitskiy et al., ICLR 2021, Tab. 1) and DeiT (Touvron et al., ICML 2021, Tab. 1).
_VIT = {'tiny': _sizes(192, 12, 3), 'small': _sizes(384, 12, 6), 'base': _sizes(768, 12, 12),
        'large': _sizes(1024, 24, 16)}
_VIT['giant'] = _sizes(1536, 40, 24)
_VIT['so400m'] = dict(_sizes(1152, 27, 16), mlp_hidden_dims=4304)

#: Arguments by the name of an arch; what a user writes overrides them.
ARCHS: dict[str, ConfigType] = {name: _VIT[name] for name in ('tiny', 'small', 'base', 'large')}

# DINOv2 (Oquab et al., TMLR 2024), without and with registers (Darcet et al., ICLR 2024). The table
# has no rows for registers. Tables are resized as the release's hub does by default.
for _name in ('small', 'base', 'large', 'giant'):
    _dinov2 = dict(
        _VIT[_name], patch_size=14, img_size=518, class_token=True, layer_scale_init_value=1e-5,
        pos_encoding=_table_config(num_prefix_embeds=1, interpolation_offset=0.1))
    if _name == 'giant':
        _dinov2 |= dict(mlp='swiglu', mlp_hidden_dims=4096)
    ARCHS[f'dinov2-{_name}'] = _dinov2
    ARCHS[f'dinov2-{_name}-reg'] = dict(
        _dinov2, register_tokens=4,
        pos_encoding=_table_config(num_prefix_embeds=1, interpolation='bicubic_antialias'))

# TIPSv2 (arXiv 2604.12012): DINOv2 with one register; its release resizes tables bilinearly.
for _name in ('base', 'large', 'so400m', 'giant'):
    ARCHS[f'tipsv2-{_name}'] = dict(
        _VIT[_name], patch_size=14, img_size=448, class_token=True, register_tokens=1,
        layer_scale_init_value=1.0,
        pos_encoding=_table_config(num_prefix_embeds=1, interpolation='bilinear_antialias'))
ARCHS['tipsv2-giant'] |= dict(mlp='swiglu', mlp_hidden_dims=4096)

# DeiT III (Touvron et al., ECCV 2022): its table has rows for cells only.
for _name, _size in {**{name: _VIT[name] for name in ('small', 'base', 'large')},
                     'medium': _sizes(512, 12, 8),
                     'huge': dict(_sizes(1280, 32, 16), patch_size=14)}.items():
    ARCHS[f'deit3-{_name}'] = dict(_size, class_token=True, layer_scale_init_value=1e-6,
                                   pos_encoding=_table_config(num_prefix_embeds=0))

# The image tower of SigLIP (Zhai et al., ICCV 2023; giantopt is of SigLIP 2), without its attention
# pooling.
for _name, _size in {'base': _VIT['base'], 'large': dict(_VIT['large'], img_size=256),
                     'so400m': dict(_VIT['so400m'], patch_size=14),
                     'giantopt': dict(_sizes(1536, 40, 16), img_size=256)}.items():
    ARCHS[f'siglip-{_name}'] = dict(_size, class_token=False, pool='gap', act='gelu_tanh',
                                    pos_encoding=_table_config())

# The image tower of CLIP (Radford et al., ICML 2021), without its projection.
for _name, _size in {'base': _VIT['base'], 'large': dict(_VIT['large'], patch_size=14)}.items():
    ARCHS[f'clip-{_name}'] = dict(_size, class_token=True, pre_norm=True, act='quick_gelu',
                                  norm_eps=1e-5, pos_encoding=_table_config())

# BEiT (Bao et al., ICLR 2022) and BEiT v2 (Peng et al. 2022), as fine-tuned: the norm is of the
# mean of the patches, not of the patches. On other grids than that of img_size, tables are resized.
for _name in ('base', 'large'):
    ARCHS[f'beit-{_name}'] = dict(
        _VIT[_name], class_token=True, pool='gap', final_norm='pooled', qkv_bias='qv',
        layer_scale_init_value=0.1 if _name == 'base' else 1e-5,
        rel_pos_encoding=dict(type='mmposenc.RelativePositionBias', resize='geometric'))
    ARCHS[f'beitv2-{_name}'] = dict(ARCHS[f'beit-{_name}'], layer_scale_init_value=1e-5)

# timm's ViTs with only relative positions (vit_relpos, and vit_srelpos, whose blocks share them).
for _name, _size in {'small': _VIT['small'], 'medium': _sizes(512, 12, 8),
                     'base': _VIT['base']}.items():
    _relpos = dict(_size, class_token=False, pool='gap', qkv_bias=False,
                   layer_scale_init_value=1e-6)
    ARCHS[f'relpos-{_name}'] = dict(_relpos, final_norm='pooled',
                                    rel_pos_encoding=_log_cpb_config(128))
    if _name != 'base':
        ARCHS[f'srelpos-{_name}'] = dict(_relpos, rel_pos_sharing='all',
                                         rel_pos_encoding=_log_cpb_config(_size['embed_dims']))

# ViTDet (Li et al., ECCV 2022) and SAM's image encoder (Kirillov et al., ICCV 2023): attention in
# windows but for four blocks. ViTDet's table has the size of its pretraining at 224 pixels.
for _name, _size, _global in (('base', _VIT['base'], (2, 5, 8, 11)),
                              ('large', _VIT['large'], (5, 11, 17, 23)),
                              ('huge', _sizes(1280, 32, 16), (7, 15, 23, 31))):
    _sam = dict(_size, img_size=1024, pool=None, final_norm=False, window_size=14,
                global_blocks=_global, mask_window_padding=False, pos_encoding=_table_config(),
                rel_pos_encoding=dict(type='mmposenc.DecomposedRPE'))
    ARCHS[f'sam-{_name}'] = _sam
    ARCHS[f'vitdet-{_name}'] = dict(_sam, pos_encoding=_table_config(grid_shape=(14, 14)))

# The image encoder of SAM 3 (arXiv 2511.16719). Its table, of pretraining at 336 pixels, is
# repeated for larger images; rotary positions are measured on its grid.
ARCHS['sam3'] = dict(
    _sizes(1024, 32, 16), patch_size=14, img_size=336, pool=None, pre_norm=True, final_norm=False,
    norm_eps=1e-5, mlp_hidden_dims=4736, window_size=24, global_blocks=(7, 15, 23, 31),
    mask_window_padding=False, pos_encoding=_table_config(interpolation='tile'),
    rel_pos_encoding=_rotary_config(theta=10000.0, reference_grid=(24, 24)))

# DINOv3 (Simeoni et al., 2025). Prefix tokens have no position and keys no bias; coordinates are
# rescaled only in training. 'tiny' is of EUPE (arXiv 2603.22387), 'giant' of LingBot-Vision (arXiv
# 2607.05247), whose other sizes are those of DINOv3.
_dinov3_positions = _rotary_config(axes='yx', planes='halves', normalize='separate', rescale=2.0)
for _name, _size in {
        'tiny': _VIT['tiny'], 'small': _VIT['small'], 'base': _VIT['base'],
        'large': _VIT['large'],
        'small-plus': dict(_VIT['small'], mlp='swiglu', mlp_hidden_dims=1536),
        'large-plus': dict(_VIT['large'], mlp='swiglu', mlp_hidden_dims=4096),
        'huge-plus': dict(_sizes(1280, 32, 20), mlp='swiglu', mlp_hidden_dims=5120),
        'giant': dict(_VIT['giant'], mlp='swiglu', mlp_hidden_dims=4096),
        '7b': dict(_sizes(4096, 40, 32), mlp='swiglu', mlp_hidden_dims=8192)}.items():
    ARCHS[f'dinov3-{_name}'] = dict(
        _size, class_token=True, register_tokens=4,
        qkv_bias=False if _name in ('giant', '7b') else 'qv', layer_scale_init_value=1e-5,
        norm_eps=1e-5, rel_pos_encoding=_dinov3_positions)

# Sapiens2 (arXiv 2604.21681), by which heads that share keys and values get copies of them.
for _name, _size in {'base': _VIT['base'], 'large': _VIT['large'], 'huge': _sizes(1280, 32, 16),
                     'giant': _VIT['giant'], '5b': _sizes(2432, 56, 32)}.items():
    ARCHS[f'sapiens2-{_name}'] = dict(
        _size, img_size=(1024, 768), class_token=True, register_tokens=8, mlp='swiglu',
        layer_scale_init_value=(1.0, None), norm='rms', attn_norm='qk',
        rel_pos_encoding=_dinov3_positions)

# ViT-5 (arXiv 2602.08071), whose registers lie on a second grid.
for _name, _size in {**{name: _VIT[name] for name in ('small', 'base', 'large')},
                     'xlarge': _sizes(1152, 28, 16)}.items():
    ARCHS[f'vit5-{_name}'] = dict(
        _size, class_token=True, register_tokens=4, qkv_bias=False, layer_scale_init_value=1e-4,
        norm='rms', attn_norm='qk', pos_encoding=_table_config(num_prefix_embeds=0),
        rel_pos_encoding=_rotary_config(axes='yx', theta=10000.0, register_grid=(2, 2)))

# EVA-02 (Fang et al., 2023): positions of an image of any size are measured on the grid of
# pretraining.
for _name, _size in {
        'tiny': dict(_VIT['tiny'], mlp_hidden_dims=512),
        'small': dict(_VIT['small'], mlp_hidden_dims=1024),
        'base': dict(_VIT['base'], mlp_hidden_dims=2048, mlp_norm=True),
        'large': dict(_VIT['large'], mlp_hidden_dims=2730, mlp_norm=True)}.items():
    ARCHS[f'eva02-{_name}'] = dict(
        _size, patch_size=14, class_token=True, pool='gap', final_norm='pooled', mlp='swiglu',
        qkv_bias='qv',
        pos_encoding=_table_config(num_prefix_embeds=1),
        rel_pos_encoding=_rotary_config(axes='yx', theta=10000.0, reference_grid=(16, 16)))

# Perception Encoder (Bolya et al., 2025): core without its attention pooling; lang and spatial
# without a last norm. As in timm, positions are measured on the grid of pretraining whatever the
# image size is, and tables are resized so; the release counts cells, and resizes bilinearly.
for _name, _size, _core, _grid in (
        ('tiny', _VIT['tiny'], 24, 32), ('small', _VIT['small'], 24, 32),
        ('base', _VIT['base'], 14, 32), ('large', dict(_VIT['large'], patch_size=14), 24, 32),
        ('gigantic', dict(_sizes(1536, 50, 16), patch_size=14, mlp_hidden_dims=8960), 32, 32)):
    for _kind, _side in (('core', _core), ('spatial', _grid), ('lang', _grid)):
        _token, _patch = _name != 'gigantic', _size.get('patch_size', 16)
        _pe: ConfigType = dict(
            _size, img_size=_side * _patch, class_token=_token, pre_norm=True, norm_eps=1e-5,
            pool=('cls' if _token else 'gap') if _kind == 'core' else None,
            final_norm=_kind == 'core', pos_encoding=_table_config(
                num_prefix_embeds=int(_token), interpolation='bicubic_antialias'),
            rel_pos_encoding=_rotary_config(theta=10000.0, reference_grid=(_side, _side),
                                            first=float(_token)))
        if _kind == 'lang':
            _pe['num_layers'] = 23 if _name == 'large' else 47
        if _kind == 'lang' or (_kind, _name) == ('spatial', 'gigantic'):
            _pe['layer_scale_init_value'] = 0.1
        if _kind != 'lang' or _patch == 14:
            ARCHS[f'pe-{_kind}-{_name}'] = _pe

# NaFlexViT of timm (NaViT, Dehghani et al., NeurIPS 2023) and of SigLIP 2 (Tschannen et al., 2025),
# for images of any aspect ratio. Prefix tokens have no position.
_naflex = dict(_VIT['base'], img_size=256, class_token=False, pool='gap')
for _name, _encoding in (
        ('', _table_config(interpolation='bicubic_antialias')),
        ('-par', _table_config(interpolation='bicubic_antialias', keep_aspect=True)),
        ('-parfac', dict(type='mmposenc.FactorizedPositionEmbedding', coordinates='aspect'))):
    ARCHS[f'naflex-base{_name}-gap'] = dict(
        _naflex, register_tokens=4, layer_scale_init_value=1e-5, final_norm='pooled',
        pos_encoding=_encoding)
for _name in ('base', 'so400m'):
    ARCHS[f'naflex-{_name}-siglip'] = dict(
        {**_naflex, **_VIT[_name]}, act='gelu_tanh',
        pos_encoding=_table_config(interpolation='bilinear_antialias'))

# C-RADIO v3 and v4 (Heinrich et al., CVPR 2025; 2026). Their table has the size of an image of 2048
# pixels.
for _name, _size in {'base-v3': _VIT['base'], 'large-v3': _VIT['large'],
                     'huge-v3': _sizes(1280, 32, 16), 'giant-v3': _VIT['giant'],
                     'so400m-v4': _VIT['so400m'], 'huge-v4': _sizes(1280, 32, 16)}.items():
    ARCHS[f'radio-{_name}'] = dict(
        _size, img_size=2048, class_token=True, register_tokens=7 if '3' in _name else 9,
        pool=None, final_norm=False,
        layer_scale_init_value=1e-5 if _name in ('base-v3', 'large-v3') else None,
        pos_encoding=_table_config(
            num_prefix_embeds=0, keep_aspect=True, interpolation=(
                'bilinear_corners' if _name in ('base-v3', 'huge-v3') else 'bilinear')))

# RoPE-ViT (Heo et al., ECCV 2024): DeiT III with rotary positions, with or without its table.
for _name in ('small', 'base', 'large'):
    for _mode, _directions in (('axial', 'axes'), ('mixed', 'learned')):
        ARCHS[f'rope-vit-{_name}-{_mode}'] = dict(
            _VIT[_name], class_token=True, layer_scale_init_value=1e-5,
            rel_pos_encoding=_rotary_config(directions=_directions))
        ARCHS[f'rope-vit-{_name}-{_mode}-ape'] = dict(
            ARCHS[f'rope-vit-{_name}-{_mode}'], pos_encoding=_table_config(num_prefix_embeds=0))

# The image towers of Qwen3-VL (Bai et al. 2025), Qwen3.5 and Qwen3.8 by their number of parameters,
# without the projectors to the language model. Positions are a table and rotary ones together.
_positions = _rotary_config(axes='yx', planes='halves', theta=10000.0)
for _name, _size in {'88m': _VIT['base'], '306m': _VIT['large'],
                     '416m': _VIT['so400m']}.items():
    ARCHS[f'qwen3-{_name}'] = dict(
        _size, img_size=768, class_token=False, pool=None, final_norm=False, act='gelu_tanh',
        pos_encoding=_table_config(interpolation='bilinear_corners'), rel_pos_encoding=_positions)

# That of DeepSeek-V4 and V4.1 (arXiv 2609.19969), without its projector.
ARCHS['deepseek-412m'] = dict(
    _sizes(1024, 32, 16), patch_size=14, img_size=546, class_token=False, pool='gap', mlp='swiglu',
    mlp_hidden_dims=2816, mlp_bias=False, norm='rms', rel_pos_encoding=_positions)
