"""What a model must be built with for converted weights to fit, where that is not its default; and
which other models have such weights.

An arch fits if a model of it has the names and shapes of the weights: a model with the first block
of each stage, on the meta device.
"""
from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from ..checkpoint.encoding_names import GRIDS, is_encoding_weight
from ..checkpoint.eva import has_swiglu
from ..checkpoint.vit import ROWS, TABLE
from ..config_types import ConfigType, ReadOnlyConfig
from ..signatures import parameters_of
from .archs import pvt, swin, vit

State = Mapping[str, Tensor]

#: The key of a config under which the options of a backbone stand.
BACKBONE = 'model.backbone.'
#: A pattern of names of each kind of backbone, and its archs.
_KINDS = ((r'backbone\.blocks\.0\.attn\.qkv\.weight', vit.ARCHS),
          (r'backbone\.stages\..*\.attn\.w_msa\.qkv\.weight', swin.ARCHS),
          (r'backbone\.stages\.0\.patch_embed\.projection\.weight', pvt.ARCHS))
_GRID = f'{TABLE.rpartition(".")[0]}.grid_shape'
_BLOCK = re.compile(r'backbone\.(?:stages\.(\d+)\.)?blocks\.(\d+)\.')
#: Names that models of one arch may have or lack: later blocks, tokens, norms and necks behind the
#: blocks, and EVA-02's norm in attention.
_FREE = re.compile(r'backbone\.(.*blocks\.[1-9].*|(stages\.\d\.)?cls_token|(fc_)?norm\d?\.\w+|'
                   r'stages\.\d\.norm\.\w+|neck\..*|blocks\.0\.attn\.(norm\.\w+|qkv\.bias\w*))')
#: The number of heads of models without an arch, by their channels, where a head does not have 64
#: channels.
_HEADS = {1152: 16, 1280: 16, 1408: 16, 1536: 24, 1664: 16}
_SIZES = {*vit.SIZES, 'img_size', 'patch_size', 'mlp_hidden_dims', 'rel_pos_encoding.hidden_dims'}


def needed_options(state_dict: State, kinds: Iterable[type]) -> list[str]:
    """Options of a model that converted weights need, as ``--cfg-options`` takes them.

    Args:
        state_dict: as :func:`mmposenc.checkpoint.convert` gives it.
        kinds: classes of backbones, of which those with archs are tried.

    Returns:
        'model.backbone.arch=dinov2-small-reg', 'model.backbone.img_size=224', ... What no file
        shows is in :func:`look_alikes`.
    """
    options = [f'{BACKBONE}{name}={value}'.replace(' ', '')
               for name, value in _arch_and_options(state_dict, kinds)[1].items()]
    if 'neck.convs.0.gn.weight' in state_dict and 'neck.convs.0.conv.bias' in state_dict:
        options.append('model.neck.bias=True')
    if 'level_embed' not in state_dict:  # RT-DETR always refines boxes, in two stages.
        return options
    first, second = (state_dict.get(f'bbox_head.reg_branches.{i}.0.weight') for i in (0, 1))
    if first is not None and second is not None and not torch.equal(first, second):
        options.append('model.with_box_refine=True')
    if 'memory_trans_fc.weight' in state_dict:
        options.append('model.as_two_stage=True')
    return options


def _arch_and_options(state: State, kinds: Iterable[type]) -> tuple[list[str], ConfigType]:
    """The arch that fits best and those that fit as well, whose weights look the same; and options
    of a backbone by their names."""
    tables = [archs for pattern, archs in _KINDS
              if any(re.fullmatch(pattern, name) for name in state)]
    kind: Any = next((kind for kind in kinds if vars(kind).get('archs') in tables), None)
    if kind is None:
        return [], {}
    archs = _fitting_archs(kind, state)
    if kind.archs is vit.ARCHS:
        return _vit_options(kind, state, archs)
    options: ConfigType = {'arch': archs[0]} if archs else {}
    if kind.archs is swin.ARCHS:
        return archs, _swin_options(state, options)
    if archs and 'backbone.stages.0.norm.weight' in state and (
            'stage_norm' not in kind.archs[archs[0]]):
        options['stage_norm'] = True
    return archs, options


def _fitting_archs(kind: Any, state: State, *, shapes: bool = True) -> list[str]:
    """The archs whose models have the names of weights, and with ``shapes`` their channels, numbers
    of blocks and shapes."""
    blocks, names = _blocks_by_stage(state), _names_and_shapes(state)
    kernel = state.get('backbone.patch_embed.projection.weight')
    like_it = [name for name, arch in kind.archs.items() if not shapes or (
        arch['num_layers'] in (blocks, *blocks[:1])
        and (kernel is None or kernel.shape[0] == arch['embed_dims']))]
    return [arch for arch in like_it
            if (theirs := _names_and_shapes(_weights_of_arch(kind, arch))).keys() == names.keys()
            and (theirs == names or not shapes)]


@functools.cache
def _weights_of_arch(kind: Any, arch: str | None, has_table: bool = False, **options: Any
                     ) -> State:
    """The weights of a model with one block in each stage, without memory."""
    config = kind.archs.get(arch, {})
    stages = config.get('num_layers', 1)
    options['num_layers'] = 1 if isinstance(stages, int) else (1,) * len(stages)
    if has_table:
        options['pos_encoding'] = dict(type='mmposenc.LearnedPositionEmbedding')
    if 'global_blocks' in config:
        options |= dict(window_size=None, global_blocks=())
    with torch.device('meta'):
        weights = kind(arch, **options).state_dict()
    return {f'backbone.{name}': value for name, value in weights.items()}


def _names_and_shapes(state: State) -> dict[str, object]:
    """The weights by which archs are told apart, with their shapes; but those that depend on sizes
    of images and patches."""
    return {re.sub(r'blocks\.0\.attn\.(rel_pos)', r'\1', name): (
                None if is_encoding_weight(name) else value.shape[:2]
                if name.startswith('backbone.patch_embed') else value.shape)
            for name, value in state.items() if name.startswith('backbone.')
            and not name.endswith(GRIDS) and not _FREE.fullmatch(name)}


def _vit_options(kind: Any, state: State, archs: list[str]) -> tuple[list[str], ConfigType]:
    """Of archs that fit a ViT the one that differs least, and in what weights differ from it; or
    sizes and all else, with heads as is usual, where they differ less from a model without arch."""
    facts = _facts(state)
    differences = {arch: _differences(kind, arch, facts) for arch in (*archs, None)}
    counts = {arch: len(options.keys() - _SIZES) for arch, options in differences.items()}
    is_relative = any('rel_pos_encoding' in name for name in state)
    fitting = [name for name in archs if is_relative or 'class_token' not in differences[name]]
    arch = min(fitting, key=lambda name: (counts[name], 'patch_size' in differences[name]),
               default=None)
    if arch is not None and not is_relative and counts[arch] > counts[None]:
        arch = None
    if not archs:  # Rotary positions, which leave no trace, are those of an arch of other sizes.
        of_names = _fitting_archs(kind, state, shapes=False)
        arch = next((name for name in of_names
                     if 'rel_pos_encoding.hidden_dims' in facts
                     or not _differences(kind, name, facts).keys() - _SIZES), None)
        arch = arch if 'rel_pos_encoding' in kind.archs.get(arch, {}) else None
    alike = [] if arch is None else [arch, *(
        name for name in fitting if name != arch and counts[name] == counts[arch]
        and 'patch_size' not in differences[name])]
    sizes = {name: facts[name] for name in vit.SIZES[:2]}
    plain = next((name for name, config in kind.archs.items()
                  if set(config) == set(vit.SIZES) and sizes.items() <= config.items()), None)
    options: ConfigType = {'arch': arch or plain} if arch or plain else {}
    if not sizes.items() <= kind.archs.get(arch or plain, {}).items():
        heads = _HEADS.get(dims := facts['embed_dims'], None if dims % 64 else dims // 64)
        options |= sizes | ({'num_heads': heads} if heads else {})
    if arch is None:
        options |= _options_of_encodings(state, facts)
    # Loading adds the row of a token, or leaves it out.
    ignored = (*vit.SIZES, 'pos_encoding.num_prefix_embeds' if arch else '')
    return alike, options | {name: value for name, value in _differences(kind, arch, facts).items()
                             if name not in ignored}


def _differences(kind: Any, arch: str | None, facts: ReadOnlyConfig) -> ConfigType:
    """The facts in which weights differ from an arch, or from a model with their channels."""
    defaults = {name: each.default for name, each in parameters_of(kind).items()}
    config = kind.archs.get(arch, {})
    options = {} if arch else dict(
        embed_dims=facts['embed_dims'], num_heads=1,
        has_table='pos_encoding.num_prefix_embeds' in facts)
    base = {**defaults, **config, **_facts(_weights_of_arch(kind, arch, **options)),
            'img_size': config.get('img_size', defaults['img_size'])}
    if arch is None:
        base['class_token'] = facts['pool'] == 'cls'
    return {name: value for name, value in facts.items() if base.get(name) != value}


def _facts(state: State) -> ConfigType:
    """What weights say about arguments of ViT, whatever the arch is, by the names of options."""
    def has(name: str) -> bool:
        return f'backbone.{name}' in state

    def sides(height: int, width: int) -> int | tuple[int, int]:
        return height if height == width else (height, width)

    kernel, block = state['backbone.patch_embed.projection.weight'], 'backbone.blocks.0.'
    registers = 'backbone.register_tokens'
    if kernel.dim() != 4:
        raise ValueError(f'the projection of patches has shape {tuple(kernel.shape)}; one for '
                         'images, (channels, 3, rows, columns), is required')
    dims, _, rows, cols = kernel.shape
    relative = {name.rpartition('rel_pos_encoding.')[2]: value for name, value in state.items()
                if name.startswith(('backbone.rel_pos_encoding', f'{block}attn.rel_pos_encoding'))}
    bias, grid = relative.get('relative_position_bias_table'), state.get(_GRID)
    facts: ConfigType = dict(embed_dims=dims, num_layers=_blocks_by_stage(state)[0],
                             patch_size=sides(rows, cols))
    side = (isqrt(state[TABLE].shape[1]) if TABLE in state else state[ROWS].shape[1]
            if ROWS in state else 0 if bias is None else (isqrt(len(bias)) + 1) // 2)
    height, width = (side, side) if grid is None or grid.is_meta else map(int, grid)
    if height:
        facts['img_size'] = sides(height * rows, width * cols)
    if TABLE in state:
        facts['pos_encoding.num_prefix_embeds'] = int(
            not has('cls_token') or state[TABLE].shape[1] > height * width)
    facts |= dict(
        pre_norm=has('norm_pre.weight'),
        register_tokens=state[registers].shape[1] if registers in state else 0,
        layer_scale_init_value=None if not has('blocks.0.ls1.gamma') else
        '1e-6' if has('blocks.0.ls2.gamma') else '(1e-6,None)',
        mlp='swiglu' if has_swiglu(state) else 'mlp')
    if f'{block}mlp.fc2.weight' in state:
        facts['mlp_hidden_dims'] = state[f'{block}mlp.fc2.weight'].shape[1]
    facts |= dict(
        qkv_bias='qv' if has('blocks.0.attn.qkv.bias_mask') else has('blocks.0.attn.qkv.bias'),
        attn_norm='qk' if has('blocks.0.attn.q_norm.weight') else has('blocks.0.attn.norm.weight'),
        mlp_norm=has('blocks.0.mlp.norm.weight'),
        mlp_bias=has('blocks.0.mlp.fc2.bias') or not has('blocks.0.mlp.fc2.weight'),
        norm='rms' if has('blocks.0.norm1.weight') and not has('blocks.0.norm1.bias') else 'layer',
        rel_pos_sharing='all' if any(name.startswith('backbone.rel_pos_encoding.')
                                     for name in state) else 'layer')
    if 'cpb_mlp.0.weight' in relative:
        facts['rel_pos_encoding.hidden_dims'] = len(relative['cpb_mlp.0.weight'])
    normed, pooled = has('norm.weight'), has('fc_norm.weight')
    pool = 'cls' if normed and has('cls_token') else 'gap' if normed or pooled else None
    facts |= dict(class_token=has('cls_token'), distilled=has('dist_token'), pool=pool,
                  final_norm=normed or ('pooled' if pooled else False))
    return facts | _facts_of_windows(state, rows)


def _facts_of_windows(state: State, patch_size: int) -> ConfigType:
    """What weights of SAM and ViTDet say about windows; nothing of other weights. Blocks attend in
    windows where their tables of offsets are the shortest."""
    lengths = {int(name.split('.')[2]): table.shape[-2] for name, table in state.items()
               if name.endswith('.attn.rel_pos_encoding.row_table')}
    if not lengths:
        return {}
    shortest, longest = min(lengths.values()), max(lengths.values())
    cells = (longest + 1) // 2
    facts: ConfigType = dict(pool=None, img_size=cells * patch_size, mask_window_padding=False)
    if TABLE in state:
        side = isqrt(state[TABLE].shape[1])
        facts['pos_encoding.grid_shape'] = None if side == cells else (side, side)
    if shortest < longest:
        facts |= dict(window_size=(shortest + 1) // 2, global_blocks=tuple(
            block for block, length in sorted(lengths.items()) if length > shortest))
    neck = state.get('backbone.neck.0.weight')
    return facts if neck is None else facts | dict(neck_channels=len(neck))


def _options_of_encodings(state: State, facts: ReadOnlyConfig) -> ConfigType:
    """Options for the encodings, and for the epsilon of norms, of models of no arch."""
    if ROWS in state:
        return {'pos_encoding.type': 'mmposenc.FactorizedPositionEmbedding',
                'pos_encoding.coordinates': 'aspect'}
    options: ConfigType = {}
    if any(name.endswith('rel_pos_encoding.row_table') for name in state):
        options['rel_pos_encoding.type'] = 'mmposenc.DecomposedRPE'
    if TABLE in state:
        options['pos_encoding.type'] = 'mmposenc.LearnedPositionEmbedding'
        options |= {'norm_eps': '1e-5'} if facts['pre_norm'] else {}
    elif facts['layer_scale_init_value'] and facts['register_tokens']:  # vit_*_rope_reg*_gap
        options |= {f'rel_pos_encoding.{name}': value for name, value in dict(
            type='mmposenc.RotaryEmbedding', axes='yx', theta=10000.0,
            reference_grid=(16, 16)).items()}
    return options


def _swin_options(state: State, options: ConfigType) -> ConfigType:
    """Options of Swin besides the arch: for V1 the sides of its windows, which no weight of V2
    shows, and the sizes where there is no arch."""
    scales, tables = (list({name.split('.')[2]: value for name, value in sorted(state.items())
                            # These lists have one entry for each stage.
                            if name.endswith(f'.attn.w_msa.{end}')}.values())
                      for end in ('cosine.logit_scale',
                                  'rel_pos_encoding.relative_position_bias_table'))
    if not options:
        heads = [len(scale) for scale in scales] or [table.shape[-1] for table in tables]
        options = dict(embed_dims=len(state['backbone.patch_embed.projection.weight']),
                       num_layers=_blocks_by_stage(state), num_heads=tuple(heads))
        if scales:
            options |= {'cosine': True, 'post_norm': True, 'qkv_bias': 'qv',
                        'rel_pos_encoding.type': 'mmposenc.LogSpacedCPB'}
    windows = tuple((isqrt(len(table)) + 1) // 2 for table in tables)
    if set(windows) - {7}:
        options['window_size'] = windows if len(set(windows)) > 1 else windows[0]
    return options


def _blocks_by_stage(state: State) -> tuple[int, ...]:
    """The number of blocks in each stage; of a model without stages in a tuple of one."""
    blocks = {match[0]: match[1] for name in state if (match := _BLOCK.match(name))}
    counts = Counter(blocks.values())
    return tuple(counts[stage] for stage in sorted(counts))


#: For each arch that weights suggest: other models that have the same weights, and their options.
_ALIKE = (
    (r'clip-.*', "CLIP with the exact GELU, as LAION's, DataComp's and timm's without quickgelu in "
                 'the name', {'act': 'gelu'}),
    (r'pe-core-(tiny|small)', 'CLIP with QuickGELU, as DFN and MetaCLIP',
     {'act': 'quick_gelu', 'rel_pos_encoding': None}),
    (r'siglip-so400m', 'SigLIP 2 for any aspect ratio (NaFlex)',
     {'pos_encoding.interpolation': 'bilinear_antialias'}),
    (r'naflex-so400m-siglip', 'SigLIP 2 for squares', {'pos_encoding.interpolation': 'bicubic'}),
    (r'siglip-base', "timm's vit_base_patch16_gap_224", {'act': 'gelu', 'num_heads': 16}),
    (r'siglip-(base|large|so400m)|naflex-so400m-siglip',
     "those of timm's models of SigLIP that have the exact GELU", {'act': 'gelu'}),
    (r'naflex-base-parfac-gap', 'a model whose positions are shares of each side',
     {'pos_encoding.coordinates': 'fractional'}),
)
#: What archs are that fit beside those before them, by how their names begin.
_KNOWN_AS = {'rope-vit': 'RoPE-ViT with axial rotary positions and a table',
             'pe-core': "Perception Encoder's core",
             'naflex-base-par': 'a model that keeps cells square (naflexvit_base_patch16_par_gap)',
             'naflex': 'SigLIP 2 for any aspect ratio (NaFlex)'}


def look_alikes(state_dict: State, kinds: Iterable[type], names: Iterable[str] = ()
                ) -> dict[str, list[str]]:
    """Other models whose files look the same as these weights.

    Rotations of queries and keys, activations, the number of heads and windows leave no trace in a
    file, so :func:`needed_options` may have named another model than that of the file.

    Args:
        state_dict, kinds: as for :func:`needed_options`.
        names: the names of the weights in the file.

    Returns:
        For each model the options of ``backbone`` that it needs in place of the inferred ones.
    """
    archs, options = _arch_and_options(state_dict, kinds)
    arch = options.get('arch', '')
    alike = {who: changes for pattern, who, changes in _ALIKE if re.fullmatch(pattern, arch)}
    tables = {**vit.ARCHS, **swin.ARCHS}
    size = options.get('img_size', tables.get(arch, {}).get('img_size', 224))
    if arch in ('siglip-base', 'siglip-so400m', 'naflex-so400m-siglip'):
        alike['the image tower of Idefics2, Idefics3 or SmolVLM, whose positions are right here at '
              'this size alone'] = {'img_size': size}
    if any(name.startswith('dpt.') for name in names):
        alike['DPT, as names in the file begin with it'] = {
            'pos_encoding.interpolation': 'bilinear'}
    for other in archs[1:]:
        same = {'img_size': size, 'layer_scale_init_value': None}
        if {**tables[other], **same} != {**tables[arch], **same}:
            who = next((text for start, text in _KNOWN_AS.items() if other.startswith(start)),
                       f'the arch {other}')
            alike[who] = {'arch': other} | (
                {} if size in (options.get('img_size'), tables[other].get('img_size', 224))
                else {'img_size': size})
    if 'pre_norm' in options:
        alike['CLIP with QuickGELU, as DFN and MetaCLIP'] = {'act': 'quick_gelu'}
    if options.get('rel_pos_encoding.type') == 'mmposenc.DecomposedRPE' and (
            'window_size' not in options):
        alike['a model with windows as large as the map of its images'] = {
            'window_size': 14, 'global_blocks': '2,5,8,11'}
    return {who: [f'{name}={value}' for name, value in changes.items()]
            for who, changes in alike.items()}
