"""Finds out how a ViT must be built for converted weights, from their names and shapes: an arch,
and the options in which the weights differ from it."""
from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from ...checkpoint.eva import has_swiglu
from ...checkpoint.vit import ROWS, TABLE
from ...config_types import ConfigType, ReadOnlyConfig
from .vit import ARCHS, SIZES

State = Mapping[str, Tensor]

#: The number of heads of models without an arch, by their channels, where a head does not have 64
#: channels.
_HEADS = {1152: 16, 1280: 16, 1408: 16, 1536: 24, 1664: 16}
#: The values that arguments of ViT have if an arch does not say otherwise, in the order of the
#: options.
_DEFAULTS: dict[str, object] = dict(
    patch_size=16, img_size=224, pre_norm=False, register_tokens=0, layer_scale_init_value=None,
    mlp='mlp', qkv_bias=True, attn_norm=False, mlp_norm=False, rel_pos_sharing='layer',
    distilled=False, pool='cls', final_norm=True, window_size=None, global_blocks=(),
    mask_window_padding=True, neck_channels=None)
#: Kinds of models that exist in more sizes than there are archs.
_ANY_SIZE = ('dinov2', 'dinov3', 'eva02', 'relpos', 'srelpos')
_HIDDEN = 'rel_pos_encoding.hidden_dims'


def vit_options(state: State) -> list[str]:
    """The arch of converted weights, and where they are others than the arch's:
    'arch=dinov2-small', 'img_size=224', ...; or sizes and all else, with heads as is usual, where
    there is none.

    What no file shows is in :func:`.look_alikes`.
    """
    facts = _options_shown_by_weights(state)
    arch_of_kind = _arch_name(_arch_prefix(state, facts), state, facts)
    arch = arch_of_kind or next((name for name in ('tiny', 'small', 'base', 'large')
                                 if _has_sizes(name, facts)), None)
    base = {**_DEFAULTS, 'mlp_hidden_dims': 4 * facts['embed_dims'], **ARCHS.get(arch or '', {})}
    base[_HIDDEN] = (base.get('rel_pos_encoding') or {}).get('hidden_dims')
    if base['layer_scale_init_value'] and facts['layer_scale_init_value']:
        base['layer_scale_init_value'] = facts['layer_scale_init_value']
    base.setdefault('class_token', facts['pool'] == 'cls')
    options = [f'arch={arch}'] if arch else []
    if not arch or not _has_sizes(arch, facts):
        dims = facts['embed_dims']
        heads = _HEADS.get(dims, None if dims % 64 else dims // 64)
        options += [f'{name}={facts[name]}' for name in SIZES[:2]]
        options += [f'num_heads={heads}'] if heads else []
    if not arch_of_kind:
        options += _options_without_arch(state, facts)
    return options + [f'{name}={value}'.replace(' ', '') for name, value in facts.items()
                      if name not in SIZES and base[name] != value]


def _has_sizes(arch: str, facts: ReadOnlyConfig) -> bool:
    """Whether weights have the same numbers of channels and blocks as an arch."""
    return all(facts[name] == ARCHS[arch][name] for name in SIZES[:2])


def _options_shown_by_weights(state: State) -> ConfigType:
    """What weights say about arguments of ViT, whatever the arch is, by the names of options."""
    def has(name: str) -> bool:
        return f'backbone.{name}' in state

    def sides(height: int, width: int) -> int | tuple[int, int]:
        return height if height == width else (height, width)

    kernel = state['backbone.patch_embed.projection.weight']
    if kernel.dim() != 4:
        raise ValueError(f'the projection of patches has shape {tuple(kernel.shape)}; one for '
                         'images, (channels, 3, rows, columns), is required')
    dims, _, rows, cols = kernel.shape
    blocks = {match[1] for name in state if (match := re.match(r'backbone\.blocks\.(\d+)\.', name))}
    registers, fc2 = (state.get(f'backbone.{name}') for name in (
        'register_tokens', 'blocks.0.mlp.fc2.weight'))
    facts: dict[str, object] = dict(embed_dims=dims, num_layers=len(blocks),
                                    patch_size=sides(rows, cols))
    bias = _relative_weight_or_none(state, 'relative_position_bias_table')
    grid = state.get(f'{TABLE.rpartition(".")[0]}.grid_shape')
    if grid is not None and not grid.is_meta:
        facts['img_size'] = sides(int(grid[0]) * rows, int(grid[1]) * cols)
    elif side := (int(state[TABLE].shape[1] ** 0.5) if TABLE in state
                  else state[ROWS].shape[1] if ROWS in state
                  else (round(bias.shape[0] ** 0.5) + 1) // 2 if bias is not None else 0):
        facts['img_size'] = sides(side * rows, side * cols)
    facts |= dict(
        pre_norm=has('norm_pre.weight'),
        register_tokens=0 if registers is None else registers.shape[1],
        layer_scale_init_value='1e-6' if has('blocks.0.ls1.gamma') else None,
        mlp='swiglu' if has_swiglu(state) else 'mlp')
    if fc2 is not None:
        facts['mlp_hidden_dims'] = fc2.shape[1]
    facts |= dict(
        qkv_bias='qv' if has('blocks.0.attn.qkv.bias_mask') else has('blocks.0.attn.qkv.bias'),
        attn_norm=has('blocks.0.attn.norm.weight'), mlp_norm=has('blocks.0.mlp.norm.weight'),
        rel_pos_sharing='all' if any(name.startswith('backbone.rel_pos_encoding.')
                                     for name in state) else 'layer')
    if (network := _relative_weight_or_none(state, 'cpb_mlp.0.weight')) is not None:
        facts[_HIDDEN] = network.shape[0]
    facts |= dict(class_token=has('cls_token'), distilled=has('dist_token'))
    if has('norm.weight'):
        facts |= dict(pool='cls' if has('cls_token') else 'gap', final_norm=True)
    else:
        pooled = has('fc_norm.weight')
        facts |= dict(pool='gap' if pooled else None, final_norm='pooled' if pooled else False)
    return facts | _facts_of_windows(state, rows)


def _facts_of_windows(state: State, patch_size: int) -> ConfigType:
    """What weights of SAM and ViTDet say about windows; nothing of other weights. Blocks attend in
    windows where their tables of offsets are the shortest."""
    lengths = {int(name.split('.')[2]): table.shape[-2] for name, table in state.items()
               if re.fullmatch(r'backbone\.blocks\.\d+\.attn\.rel_pos_encoding\.row_table', name)}
    if not lengths:
        return {}
    shortest, longest = min(lengths.values()), max(lengths.values())
    facts: ConfigType = dict(pool=None, img_size=(longest + 1) // 2 * patch_size,
                             mask_window_padding=False)
    if shortest < longest:
        facts |= dict(window_size=(shortest + 1) // 2, global_blocks=tuple(
            block for block, length in sorted(lengths.items()) if length > shortest))
    neck = state.get('backbone.neck.0.weight')
    return facts if neck is None else facts | dict(neck_channels=neck.shape[0])


def _relative_weight_or_none(state: State, name: str) -> Tensor | None:
    """Find a weight of the relative positions, whether all blocks share it or the first block has
    its own."""
    return next((state[key] for module in ('', 'blocks.0.attn.')
                 if (key := f'backbone.{module}rel_pos_encoding.{name}') in state), None)


def _arch_prefix(state: State, facts: ReadOnlyConfig) -> str | None:
    """The prefix of the names of archs that weights can belong to, such as 'dinov2', or None."""
    table, scale, token = TABLE in state, facts['layer_scale_init_value'], facts['class_token']
    bias, rows, gated = facts['qkv_bias'], _num_prefix_rows(state), facts['mlp'] == 'swiglu'
    if ROWS in state:
        return 'naflex'
    if (table_of_rows := _relative_weight_or_none(state, 'row_table')) is not None:
        if not table or table_of_rows.shape[-2] != 27:  # Windows of both have 14 cells a side.
            return None
        return 'vitdet' if state[TABLE].shape[1] == 14 ** 2 else 'sam'
    if _relative_weight_or_none(state, 'cpb_mlp.2.bias') is not None:
        return 'srelpos' if facts['rel_pos_sharing'] == 'all' else 'relpos'
    if _relative_weight_or_none(state, 'relative_position_bias_table') is not None:
        return 'beit' if bias == 'qv' else None
    if (_relative_weight_or_none(state, 'freqs') is not None
            or not (table or facts['register_tokens'] or gated)):
        return 'rope-vit' if scale and token and bias is True else None
    if any('rel_pos_encoding' in name for name in state) or facts['distilled']:
        return None
    if facts['pre_norm']:
        if facts['final_norm'] is True:
            return None if scale else 'clip' if token else 'pe-core'
        return 'pe-lang' if scale and facts['num_layers'] != 50 else 'pe-spatial'
    if not table:
        return 'dinov3' if scale and token and facts['final_norm'] is True else None
    if gated and bias == 'qv':
        return 'eva02'
    if facts['img_size'] == 2048 and facts['register_tokens'] and not facts['final_norm']:
        return 'radio' if token else None
    if facts['register_tokens'] and not rows and not token:
        return 'naflex' if scale else None
    if bias is not True or bool(scale) != token:
        return None
    if not scale:
        if facts['final_norm'] is False:
            return 'qwen3'
        return 'siglip' if facts['final_norm'] is True and not facts['register_tokens'] else None
    if facts['patch_size'] == 14 and facts['register_tokens'] == 1:
        return 'tipsv2'
    if facts['patch_size'] == 14 and (rows or facts['register_tokens']):
        return 'dinov2'
    return None if rows or facts['register_tokens'] else 'deit3'


def _arch_name(kind: str | None, state: State, facts: ReadOnlyConfig) -> str | None:
    """The name of an arch of this kind with the same sizes; for kinds that exist in any size, else
    the first with the same parts."""
    mixed = _relative_weight_or_none(state, 'freqs') is not None
    alike = [name for name, arch in ARCHS.items() if kind and name.startswith(f'{kind}-')
             and arch.get('mlp', 'mlp') == facts['mlp'] and ('-mixed' in name) == mixed
             and bool(arch.get('register_tokens')) == bool(facts['register_tokens'])
             and (kind != 'rope-vit' or ('pos_encoding' in arch) == (TABLE in state))
             and ('Factorized' in (arch.get('pos_encoding') or {}).get('type', '')) == (
                 ROWS in state)]
    same_sizes = [name for name in alike if _has_sizes(name, facts)]
    return min(same_sizes or (alike if kind in _ANY_SIZE else ()), default=None, key=lambda name: (
        ARCHS[name].get('register_tokens', 0) != facts['register_tokens']))


def _num_prefix_rows(state: State) -> int:
    """The number of rows of the table that belong to prefix tokens."""
    length = state[TABLE].shape[1] if TABLE in state else 0
    return length - int(length ** 0.5) ** 2


def _options_without_arch(state: State, facts: ReadOnlyConfig) -> list[str]:
    """Options for the encodings, and for the epsilon of norms, of models of no known kind."""
    options: list[str] = []
    if _relative_weight_or_none(state, 'row_table') is not None:
        options += ['rel_pos_encoding.type=mmposenc.DecomposedRPE']
    if TABLE in state:
        options.append('pos_encoding.type=mmposenc.LearnedPositionEmbedding')
        if facts['class_token'] and not _num_prefix_rows(state):
            options.append('pos_encoding.num_prefix_embeds=0')
        return options + ['norm_eps=1e-5'] * facts['pre_norm']
    if ROWS in state:
        return ['pos_encoding.type=mmposenc.FactorizedPositionEmbedding',
                'pos_encoding.coordinates=aspect']
    # These are timm's models vit_*_rope_reg*_gap.
    if facts['layer_scale_init_value'] and facts['register_tokens']:
        return [f'rel_pos_encoding.{option}' for option in (
            'type=mmposenc.RotaryEmbedding', 'axes=yx', 'theta=10000.0',
            'reference_grid=(16,16)')]
    return options
