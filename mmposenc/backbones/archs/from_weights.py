"""What a model must be built with for converted weights to fit, where that is not its default; and
which other models have such weights."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from . import pvt, swin
from .vit import ARCHS
from .vit_from_weights import vit_options

#: The key of a config under which the options of a backbone stand.
BACKBONE = 'model.backbone.'


def needed_options(state_dict: Mapping[str, Tensor]) -> list[str]:
    """Options of a model that converted weights need, as ``--cfg-options`` takes them.

    Args:
        state_dict: as :func:`mmposenc.checkpoint.convert` gives it.

    Returns:
        'model.backbone.arch=dinov2-small-reg', 'model.backbone.img_size=224', ... What no file
        shows is in :func:`look_alikes`.
    """
    options = []
    patches = state_dict.get('backbone.patch_embed.projection.weight')
    if patches is not None and 'backbone.blocks.0.attn.qkv.weight' in state_dict:
        options += [BACKBONE + option for option in vit_options(state_dict)]
    if patches is not None and any('.attn.w_msa.qkv.' in name for name in state_dict):
        options += [BACKBONE + option for option in _swin_options(state_dict)]
    if 'backbone.stages.0.patch_embed.projection.weight' in state_dict:
        options += [BACKBONE + option for option in _pvt_options(state_dict)]
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


#: Archs of Swin by the channels of the first stage and the blocks of the third.
_SWINS = {(sizes['embed_dims'], sizes['num_layers'][2]): arch
          for arch, sizes in swin.ARCHS.items() if not arch.startswith('v2-')}


def _swin_options(state: Mapping[str, Tensor]) -> list[str]:
    """Options of Swin: the arch, or its sizes, and for V1 the sides of its windows, which no weight
    of V2 shows."""
    dims = state['backbone.patch_embed.projection.weight'].shape[0]
    layers = _blocks_by_stage(state)
    scales, tables = (list({name.split('.')[2]: value for name, value in sorted(state.items())
                            # These lists have one entry for each stage.
                            if name.endswith(f'.attn.w_msa.{end}')}.values())
                      for end in ('cosine.logit_scale',
                                  'rel_pos_encoding.relative_position_bias_table'))
    if arch := _SWINS.get((dims, *layers[2:3])):
        options = [f'arch={"v2-" if scales else ""}{arch}']
    else:
        heads = [scale.shape[0] for scale in scales] or [table.shape[-1] for table in tables]
        options = [f'embed_dims={dims}', f'num_layers={_tuple_text(layers)}',
                   f'num_heads={_tuple_text(heads)}']
        if scales:
            options += ['cosine=True', 'post_norm=True', 'qkv_bias=qv',
                        'rel_pos_encoding.type=mmposenc.LogSpacedCPB']
    windows = [(round(table.shape[0] ** 0.5) + 1) // 2 for table in tables]
    if set(windows) - {7}:
        text = str(windows[0]) if len(set(windows)) == 1 else _tuple_text(windows)
        options.append(f'window_size={text}')
    return options


def _pvt_options(state: Mapping[str, Tensor]) -> list[str]:
    """Options of PVT: the arch if the sizes are those of one, otherwise the sizes; and norms of
    stages that the arch does not have."""
    def stages(name: str) -> list[Tensor]:
        return [state[key] for key in (f'backbone.stages.{i}.{name}' for i in range(4))
                if key in state]

    embeds, hidden = stages('patch_embed.norm.weight'), stages('blocks.0.mlp.fc1.bias')
    pegs = stages('pos_encodings.at.after0.0.proj.0.weight')
    facts = dict(
        embed_dims=tuple(len(each) for each in embeds),
        num_layers=_blocks_by_stage(state),
        mlp_ratios=tuple(len(wide) // len(each) for wide, each in zip(hidden, embeds, strict=True)),
        overlap=state['backbone.stages.0.patch_embed.projection.weight'].shape[-1] == 7,
        peg=bool(pegs), windows=bool(stages('blocks.0.attn.qkv.weight')),
        linear=any(each.shape[-1] == 1 for each in stages('blocks.0.attn.sr.weight')))
    defaults = dict(embed_dims=(64, 128, 320, 512), mlp_ratios=(8, 8, 4, 4), overlap=False)
    for name, arch in pvt.ARCHS.items():
        kind = arch.get('pos_encoding', {}).get('type')
        if facts == {**{key: arch.get(key, value) for key, value in defaults.items()},
                     'num_layers': arch['num_layers'], 'peg': kind == 'mmposenc.PEG',
                     'windows': 'window_sizes' in arch, 'linear': 'key_cells' in arch}:
            has_norms = stages('norm.weight') and not arch.get('stage_norm')
            return [f'arch={name}', 'stage_norm=True'] if has_norms else [f'arch={name}']
    return []


def _blocks_by_stage(state: Mapping[str, Tensor]) -> tuple[int, ...]:
    """The number of blocks in each stage."""
    blocks = Counter(int(match[1]) for name in state if (match := re.fullmatch(
        r'backbone\.stages\.(\d+)\.blocks\.\d+\.norm1\.weight', name)))
    return tuple(blocks[stage] for stage in sorted(blocks))


def _tuple_text(numbers: Iterable[int]) -> str:
    """Write numbers as a tuple in the form that ``--cfg-options`` reads."""
    return f'({"".join(f"{number}," for number in numbers)})'


#: For each arch that weights suggest: other models that have the same weights, and their options.
_ALIKE = (
    (r'clip-.*', "CLIP with the exact GELU, as LAION's, DataComp's and timm's without quickgelu in "
                 'the name', ('act=gelu',)),
    (r'siglip-(base|so400m)', 'SigLIP 2 for any aspect ratio (NaFlex)', (
        'pos_encoding.interpolation=bilinear_antialias',)),
    (r'siglip-base', "timm's vit_base_patch16_gap_224", ('act=gelu', 'num_heads=16')),
    (r'siglip-(base|large|so400m)', "those of timm's models of SigLIP that have the exact GELU",
     ('act=gelu',)),
    (r'naflex-base-gap', 'a model that keeps cells square (naflexvit_base_patch16_par_gap)', (
        'pos_encoding.keep_aspect=True',)),
    (r'naflex-base-parfac-gap', 'a model whose positions are shares of each side', (
        'pos_encoding.coordinates=fractional',)),
)


def look_alikes(state_dict: Mapping[str, Tensor], names: Iterable[str] = ()
                ) -> dict[str, list[str]]:
    """Models other than the one that :func:`needed_options` names whose weights look the same as
    these, as positions that turn queries and keys, activations, heads and windows leave no trace in
    a file.

    Args:
        state_dict: as :func:`mmposenc.checkpoint.convert` gives it.
        names: of the weights in the file.

    Returns:
        For each model the options of ``backbone`` that it needs in place of the inferred ones.
    """
    facts = dict(option.removeprefix(BACKBONE).split('=', 1)
                for option in needed_options(state_dict))
    arch = facts.get('arch', '')
    alike = {who: list(options) for pattern, who, options in _ALIKE if re.fullmatch(pattern, arch)}
    if arch in ('siglip-base', 'siglip-so400m'):
        alike['the image tower of Idefics2, Idefics3 or SmolVLM, whose positions are right here at '
              'this size alone'] = [f'img_size={facts.get("img_size", 224)}']
    if any(name.startswith('dpt.') for name in names):
        alike['DPT, as names in the file begin with it'] = ['pos_encoding.interpolation=bilinear']
    rope = arch.replace('deit3', 'rope-vit') + '-axial-ape'
    if arch.startswith('deit3-') and rope in ARCHS:
        alike['RoPE-ViT with axial rotary positions and a table'] = [f'arch={rope}']
    patches = state_dict.get('backbone.patch_embed.projection.weight')
    for size in ('tiny', 'small', 'base', 'large'):
        core = ARCHS[f'pe-core-{size}']
        if (facts.get('pre_norm') or arch.startswith('clip-')) and patches is not None and (
                patches.shape[0], patches.shape[-1]) == (
                core['embed_dims'], core.get('patch_size', 16)):
            alike["Perception Encoder's core"] = [f'arch=pe-core-{size}', 'act=gelu']
    if 'pre_norm' in facts:
        alike['CLIP with QuickGELU, as DFN and MetaCLIP'] = ['act=quick_gelu']
    if ('window_size' not in facts
            and facts.get('rel_pos_encoding.type') == 'mmposenc.DecomposedRPE'):
        alike['a model with windows as large as the map of its images'] = [
            'window_size=14', 'global_blocks=2,5,8,11']
    if arch.startswith('v2-') and arch.removeprefix('v2-') in _SWINS.values():
        alike |= {f'Swin V2 with windows {end[2:]}': [f'arch={arch}{end}'] for end in (
            '-w12', '-w16', '-w12to16', '-w12to24')}
    return alike
