"""Encodings of a pretrained file, fitted to the blocks, grids and windows of a backbone."""
from __future__ import annotations

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..encodings.absolute import LearnedPositionEmbedding
from ..encodings.decomposed import DecomposedRPE
from ..encodings.relative_bias import RelativePositionBias
from ..functional.bias_tables import resize_bias_table
from ..functional.position_tables import resize_axis_table, resize_position_table
from ..modules import print_log

_BIAS = 'relative_position_bias_table'


def fit_encodings(backbone: nn.Module, state: Mapping[str, Tensor], file: str
                  ) -> dict[str, Tensor]:
    """The weights of a file with their encodings where the backbone has them, in its sizes.

    Args:
        backbone: what they will be loaded into.
        state: all weights, in this project's names.
        file: its name, for what is logged about tables that are resized.
    """
    return _resize_tables(backbone, _move_biases(backbone, _unshare(backbone, state)), file)


def _unshare(backbone: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """An encoding that all blocks share, as in BEiT's pretraining, becomes that of each block where
    they have one each, as in BEiT's fine-tuning."""
    own = backbone.state_dict()
    shared = [key for key in state if key.startswith('rel_pos_encoding.') and key not in own]
    copies = {name: state[key] for key in shared for name in own if name.endswith(f'.attn.{key}')}
    return {**{key: value for key, value in state.items() if key not in shared or not copies},
            **copies}


def _move_biases(backbone: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Biases of a plain Swin stand first where the backbone adds another encoding to them."""
    own = set(backbone.state_dict())
    moved = {}
    for key, value in state.items():
        combined = re.sub(r'\brel_pos_encoding\.', 'rel_pos_encoding.encodings.0.', key)
        moved[combined if key not in own and combined in own else key] = value
    return moved


def _resize_tables(backbone: nn.Module, state: dict[str, Tensor], file: str) -> dict[str, Tensor]:
    """Fit learned tables to the backbone's grids and prefix tokens, biases to its windows."""
    state = dict(state)
    for name, module in backbone.named_modules():
        if isinstance(module, RelativePositionBias) and f'{name}.{_BIAS}' in state:
            state[f'{name}.{_BIAS}'] = _fit_biases(state[f'{name}.{_BIAS}'], module)
        if isinstance(module, DecomposedRPE):
            for key in (f'{name}.row_table', f'{name}.col_table'):
                if key in state:
                    wanted = module.get_parameter(key.rpartition('.')[2]).shape[-2]
                    state[key] = resize_axis_table(state[key], wanted)
        key = f'{name}.pos_embed'
        if isinstance(module, LearnedPositionEmbedding) and key in state:
            table = state[key]
            if table.shape != module.pos_embed.shape and table.dim() == 3:
                state |= _fit_table(key, state, module, getattr(backbone, 'patch_size', None), file)
    return state


def _fit_table(key: str, state: Mapping[str, Tensor], module: LearnedPositionEmbedding,
               patch_size: int | None, file: str) -> dict[str, Tensor]:
    """A square table, with or without prefix tokens, on the module's grid, and the tokens that rows
    were added to; nothing where it is no such table.

    A table of cells alone, as DeiT III's, adds nothing to prefix tokens: zeros stand for them.
    """
    table, rows = state[key], module.num_prefix_embeds
    prefix_tokens = [(name, place) for name in ('cls_token', 'dist_token', 'register_tokens')
                     if name in state for place in range(state[name].shape[1])]
    found = next((prefix for prefix in (0, rows, 1, 2, len(prefix_tokens))
                  if math.isqrt(max(table.shape[1] - prefix, 0)) ** 2 == table.shape[1] - prefix
                  and table.shape[1] > prefix and (not prefix or prefix >= rows)), None)
    if found is None:
        return {}
    side = math.isqrt(table.shape[1] - found)
    if module.grid_shape != (side, side):
        keeps = f'; img_size={side * patch_size} keeps it as it is' if patch_size else ''
        print_log(f'{file}: {key} of {side} x {side} cells is resized to {module.grid_shape[0]} x '
                  f'{module.grid_shape[1]}, the grid of img_size, and once more for images of '
                  f'another size{keeps}', 'current')
    cells = resize_position_table(table[:, found:], (side, side), module.grid_shape,
                                  module.interpolation, module.interpolation_offset)
    kept = table[:, :min(found, rows)]
    if found < rows:
        kept = table.new_zeros(1, rows, table.shape[-1])
    tokens = {name: state[name].clone() for name, _ in prefix_tokens[rows:found]}
    for row in range(rows, min(found, len(prefix_tokens))):
        name, place = prefix_tokens[row]
        tokens[name][:, place] += table[:, row]
    return {key: torch.cat((kept, cells), dim=1), **tokens}


def _fit_biases(table: Tensor, module: RelativePositionBias) -> Tensor:
    """Biases of a square window, resized as the module does, or by default as Swin's release; the
    table itself where it is none or fits."""
    side = round(table.shape[0] ** 0.5)
    if (table.shape == module.relative_position_bias_table.shape or table.dim() != 2
            or side * side != table.shape[0] or not side % 2):
        return table
    resized = resize_bias_table(table.t().unflatten(1, (side, side)), module.window_size,
                                module.resize or 'bicubic')
    return resized.flatten(1).t()
