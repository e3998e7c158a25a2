"""Finds out from its config.json which ViT a repository of timm or Hugging Face holds."""
from __future__ import annotations

import re

from ...checkpoint.hub import read_config
from ...config_types import ConfigType
from .vit import ARCHS, SIZES

#: For each of timm's architectures, the name of the arch.
_TIMM = {
    r'vit_(\w+?)_patch14_dinov2': 'dinov2-{}',
    r'vit_(\w+?)_patch14_reg4_dinov2': 'dinov2-{}-reg',
    r'vit_(\w+?)_patch14_reg1_tipsv2': 'tipsv2-{}',
    r'vit_(\w+?)_patch16_(?:dinov3(?:_qkvb)?|lingbot)': 'dinov3-{}',
    r'deit3_(\w+?)_patch\d+_\d+': 'deit3-{}',
    r'vit_(\w+?)_patch\d+_siglip_\d+': 'siglip-{}',
    r'vit_(\w+?)_patch\d+_clip_(quickgelu_)?\d+': 'clip-{}',
    r'eva02_(\w+?)_patch14_\d+': 'eva02-{}',
    r'vit_(\w+?)_patch16_rope_224': 'rope-vit-{}-axial',
    r'vit_(\w+?)_patch16_rope_ape_224': 'rope-vit-{}-axial-ape',
    r'vit_(\w+?)_patch16_rope_mixed_224': 'rope-vit-{}-mixed',
    r'vit_(\w+?)_patch16_rope_mixed_ape_224': 'rope-vit-{}-mixed-ape',
    r'beit_(\w+?)_patch16_\d+': 'beit-{}',
    r'beitv2_(\w+?)_patch16_\d+': 'beitv2-{}',
    r'vit_relpos_(\w+?)_patch16_\d+': 'relpos-{}',
    r'vit_srelpos_(\w+?)_patch16_\d+': 'srelpos-{}',
    r'naflexvit_(base|so400m)_patch16_(gap|par_gap|parfac_gap|siglip)': 'naflex-{}-{}',
    r'naflexvit_(\w+?)_patch16_radio_(v\d)': 'radio-{}-{}',
    r'vit_pe_(core|lang|spatial)_(\w+?)_patch\d+_\d+': 'pe-{}-{}',
    r'qwen3_vit_(\w+?)(?:_merge|_enc)?': 'qwen3-{}',
    r'samvit_(\w+?)_patch16': 'sam-{}',
    r'(?:vit|deit)_(tiny|small|base|large)_patch\d+_\d+': '{}',
}
#: For each of Hugging Face's model types, a pattern of arch names, of which the sizes choose one.
_TYPES = {'dinov2': r'dinov2-\w+', 'dinov2_with_registers': r'dinov2-\w+-reg',
          'dinov3_vit': r'dinov3-[\w-]+', 'eomt': r'dinov2-\w+-reg',
          'eomt_dinov3': r'dinov3-[\w-]+', 'tipsv2': r'tipsv2-\w+',
          'siglip': r'siglip-\w+', 'clip': r'clip-\w+',
          'vit': r'tiny|small|base|large', 'deit': r'tiny|small|base|large'}
_ACTS = {'gelu': 'gelu', 'quick_gelu': 'quick_gelu', 'gelu_pytorch_tanh': 'gelu_tanh'}
#: For each argument that a repository gives timm's model, the name of ours (None: it changes no
#: features). With any other argument it is a model that we do not know.
_ARGS = {'img_size': 'img_size', 'patch_size': 'patch_size', 'num_heads': 'num_heads',
         'init_values': 'layer_scale_init_value', **dict.fromkeys((
             'num_classes', 'global_pool', 'dynamic_img_size', 'dynamic_img_pad'))}


def vit_arguments_of_repository(name: str) -> ConfigType:
    """Arguments of ViT for the weights of ``hf://owner/name`` or ``timm://model``: its arch, and
    where they differ from it.

    Raises:
        ValueError: it is another model, or one that is not known here; give ``arch`` and sizes.
        OSError: there is no config.json, or it is not reached (:func:`.hub.weight_files`).
    """
    return _vit_options(name, read_config(name))


def eomt_arguments_of_repository(name: str) -> ConfigType:
    """Arguments of EoMT for the weights of ``hf://owner/name``: those of its ViT and, if they are
    weights of an EoMT, those of its queries.

    Raises:
        ValueError, OSError: as :func:`vit_arguments_of_repository`.
    """
    published = read_config(name)
    options = _vit_options(name, published)
    kind = published.get('model_type')
    if kind in ('eomt', 'eomt_dinov3'):
        options |= dict(
            num_classes=len(published['id2label']), num_queries=published['num_queries'],
            query_blocks=published['num_blocks'], num_upscales=published['num_upscale_blocks'])
        if kind == 'eomt':
            options['pos_encoding'] = dict(num_prefix_embeds=0)
    return options


def _vit_options(name: str, published: ConfigType) -> ConfigType:
    """Arguments of ViT, read from config.json, as :func:`vit_arguments_of_repository` returns
    them."""
    if 'architecture' in published:
        what = architecture = str(published['architecture'])
        args = published.get('model_args') or {}
        options = _options_of_timm(architecture, published.get('pretrained_cfg') or {})
        if options and args:
            what = f'{architecture} with model_args={args}'
            options |= {name: args[key] for key, name in _ARGS.items() if name and key in args}
            options = options if args.keys() <= _ARGS.keys() else None
    else:
        published = {**published, **(published.get('vision_config') or {})}
        what = (f'model_type={published.get("model_type")!r}, '
                f'hidden_act={published.get("hidden_act")!r}')
        options = _options_of_model_type(published)
    if options is None:
        raise ValueError(f'{name}: which ViT {what} is, is not known here; give arch, or sizes')
    arch, arch_options = options['arch'], ARCHS[options['arch']]
    defaults = {'patch_size': 16, 'img_size': 224, 'act': 'gelu', 'norm_eps': 1e-6, **arch_options}
    if arch in ('tiny', 'small', 'base', 'large'):
        options |= dict(class_token=True, pos_encoding=dict(
            type='mmposenc.LearnedPositionEmbedding', num_prefix_embeds=1))
    return {key: value for key, value in options.items() if defaults.get(key) != value}


def _options_of_timm(architecture: str, published: ConfigType) -> ConfigType | None:
    for pattern, arch in _TIMM.items():
        match = re.fullmatch(pattern, architecture)
        name = arch.format(*((part or '').replace('_', '-') for part in match.groups())
                           ) if match else None
        if name not in ARCHS:
            continue
        options: ConfigType = dict(arch=name)
        # The table of a NaFlexViT has another size than the images it was trained on.
        if 'input_size' in published and not architecture.startswith('naflexvit'):
            options['img_size'] = published['input_size'][-1]
        if patch := re.search(r'_patch(\d+)', architecture):
            options['patch_size'] = int(patch[1])
        if name.startswith('clip-') and 'quickgelu' not in architecture:
            options['act'] = 'gelu'
        if architecture.endswith('dinov3'):
            options['qkv_bias'] = False
        if '_reg' in architecture:  # In these models of timm the class token has no position.
            options['pos_encoding'] = dict(num_prefix_embeds=0)
        return options
    return None


def _options_of_model_type(published: ConfigType) -> ConfigType | None:
    kind = str(published.get('model_type')).removesuffix('_vision_model')
    sizes = tuple(published.get(key) for key in (
        'hidden_size', 'num_hidden_layers', 'num_attention_heads'))
    gated = bool(published.get('use_gated_mlp') or published.get('use_swiglu_ffn'))
    arch = next((name for name, arch_options in ARCHS.items()
                 if re.fullmatch(_TYPES.get(kind, ''), name)
                 and tuple(arch_options[key] for key in SIZES) == sizes
                 and (arch_options.get('mlp') == 'swiglu') == gated), None)
    act = published.get('hidden_act')
    rope = published.get('rope_parameters') or {}
    theta = published.get('rope_theta', rope.get('rope_theta', 100))
    if arch is None or theta != 100 or not (act is None or gated or act in _ACTS):
        return None
    options: ConfigType = dict(arch=arch)
    for key, option, types in (('patch_size', 'patch_size', int), ('image_size', 'img_size', int),
                               ('layer_norm_eps', 'norm_eps', float)):
        if isinstance(published.get(key), types):
            options[option] = published[key]
    if act and not gated:
        options['act'] = _ACTS[act]
    return options
