"""Fits encodings and patches of a pretrained file to the blocks, grids, windows and images of a
backbone."""
from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..checkpoint.encoding_names import GRIDS
from ..checkpoint.numbers import check_numbers
from ..checkpoint.rules import Converted, names_text
from ..encodings.absolute import FactorizedPositionEmbedding, LearnedPositionEmbedding
from ..encodings.decomposed import DecomposedRPE
from ..encodings.relative_bias import RelativePositionBias
from ..encodings.saved_grid import SavesGrid
from ..functional.bias_tables import resize_bias_table
from ..functional.grids import pair
from ..functional.position_tables import (
    at_least_float32,
    resize_axis_table,
    resize_patch_kernel,
    resize_position_table,
)
from ..signatures import parameters_of
from .computed_positions import fit_biases_of_keys, positions_computed_otherwise
from .layers import PatchEmbed
from .optional_mmengine import print_log

#: Weights a classification checkpoint has and a feature extractor need not have, or the reverse.
_CLASSIFIER = re.compile(
    r'(fc_)?norm\d?\.(weight|bias)|(.*\.)?(cls|dist)_token|neck\.\d\.(weight|bias)')
_BIAS = 'relative_position_bias_table'
#: Names of tables of one axis, which some encodings have for rows and for columns.
_AXIS_TABLES = ('row_table', 'col_table', 'pos_embed_y', 'pos_embed_x')


def fit_weights(backbone: nn.Module, converted: Converted, file: str) -> dict[str, Tensor]:
    """Weights in the form and the sizes in which a backbone has them. What the model will compute
    in another way than the model of the file is logged as a warning.

    Args:
        backbone: what they will be loaded into.
        converted: the weights under this project's names, without 'backbone.'.
        file: its name, for messages.

    Raises:
        ValueError: the weights do not fit the backbone's positions.
    """
    try:
        warnings = list(positions_computed_otherwise(backbone, converted.computed))
    except ValueError as error:
        raise ValueError(f'{file}: {error}') from error
    state = fit_patches(backbone, converted.state_dict, file)
    # This comes before tokens are removed, because rows of a table belong to them.
    state = fit_encodings(backbone, state, file)
    state, left_out = fit_biases_of_keys(backbone, state)
    if left_out:
        warnings.append(f'the biases of the keys in {names_text(left_out, 2)} are left out, and '
                        'rotary positions turn them: qkv_bias=True has its features')
    for warning in warnings:
        print_log(f'{file}: {warning}', 'current', logging.WARNING)
    return leave_out_classifier(backbone, state, file)


def fit_encodings(backbone: nn.Module, state: Mapping[str, Tensor], file: str) -> dict[str, Tensor]:
    """Move the encodings of a file to the places where the backbone has them, and resize them to
    its sizes.

    Args:
        backbone: what they will be loaded into.
        state: all weights, in this project's names.
        file: its name, for what is logged about tables that are resized.
    """
    state = move_encodings(backbone, state)
    fitted = _resize_tables(backbone, state, file)
    if resized := [key for key, value in state.items() if not key.endswith('.pos_embed')
                   and not key.endswith(GRIDS) and key in fitted and value is not fitted[key]]:
        print_log(f'{file}: resized to the grid or window here: {names_text(resized)}',
                  'current')
    return fitted


def move_encodings(backbone: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the encodings of a file, and a classifier's norm, to where the backbone has them."""
    return _move_last_norm(backbone, _move_biases(backbone, _unshare(backbone, state)))


def fit_patches(backbone: nn.Module, state: Mapping[str, Tensor], file: str) -> dict[str, Tensor]:
    """The weights with the kernel of an image's patches in the backbone's patch size, and in its
    channels where the file has three. Patches that overlap, and those of a map, stay as they are.

    Args:
        backbone, state, file: as in :func:`fit_encodings`.
    """
    state, modules = dict(state), dict(backbone.named_modules())
    for name in ('patch_embed', 'stages.0.patch_embed'):
        embed, kernel = modules.get(name), state.get(key := f'{name}.projection.weight')
        if not isinstance(embed, PatchEmbed) or kernel is None or kernel.dim() != 4:
            continue
        channels, sides, done = embed.projection.in_channels, embed.projection.kernel_size, []
        if kernel.shape[1:] == (channels, *sides) or sides != embed.projection.stride:
            continue
        check_numbers({key: kernel}, file)
        kernel = at_least_float32(kernel)
        if kernel.shape[2:] != sides and min(kernel.shape[2:]):
            done.append(f'patches of {kernel.shape[2]} x {kernel.shape[3]} pixels are resized to '
                        f'{sides[0]} x {sides[1]} (FlexiViT)')
            kernel = resize_patch_kernel(kernel, sides)
        if kernel.shape[1] == 3 != channels:
            done.append(f'the 3 channels are {"summed" if channels == 1 else "repeated and scaled"}'
                        f' to {channels}')
            kernel = _fit_channels(kernel, channels)
        if done:
            print_log(f'{file}: {", and ".join(done)}', 'current')
        state[key] = kernel
    return state


def _fit_channels(kernel: Tensor, channels: int) -> Tensor:
    """Adapt a kernel of three channels to another number of channels, as timm does. For one channel
    it is summed; otherwise its channels are repeated and scaled, so that a uniform image keeps its
    tokens."""
    if channels == 1:
        return kernel.sum(1, keepdim=True)
    return kernel[:, torch.arange(channels) % 3] * (3 / channels)


def _unshare(backbone: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Give each block the encoding that all blocks share in the file (BEiT's pretraining), if the
    backbone has one for each block (BEiT's fine-tuning)."""
    weights = backbone.state_dict()
    shared = [key for key in state if key.startswith('rel_pos_encoding.') and key not in weights]
    copies = {name: state[key] for key in shared for name in weights
              if name.endswith(f'.attn.{key}')}
    return {**{key: value for key, value in state.items() if key not in shared or not copies},
            **copies}


def _move_biases(backbone: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the biases of a plain Swin to the first part of a sum, if the backbone adds another
    encoding to them."""
    names = set(backbone.state_dict())
    moved = {}
    for key, value in state.items():
        combined = re.sub(r'\brel_pos_encoding\.', 'rel_pos_encoding.encodings.0.', key)
        moved[combined if key not in names and combined in names else key] = value
    return moved


def _move_last_norm(backbone: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the norm of a classifier's pooled map to the norm of the last map, if the backbone has
    only that one."""
    norms = [name for name, _ in backbone.named_modules()
             if re.fullmatch(r'norm|stages\.\d+\.norm', name)]
    if len(norms) != 1:
        return state
    return {re.sub(r'^norm(?=\.)', norms[0], key): value for key, value in state.items()}


def _resize_tables(backbone: nn.Module, state: dict[str, Tensor], file: str) -> dict[str, Tensor]:
    """Fit learned tables to the backbone's grids and prefix tokens, biases to its windows."""
    state = dict(state)
    for name, module in backbone.named_modules():
        if isinstance(module, SavesGrid):
            state = _fit_saved_grid(name, module, state, file,
                                    getattr(backbone, 'patch_size', None))
        if isinstance(module, (DecomposedRPE, FactorizedPositionEmbedding)):
            for part in _AXIS_TABLES:
                if (key := f'{name}.{part}') in state:
                    state[key] = _fit_axis(state[key], key, part, module, file)
    return state


def _fit_axis(table: Tensor, key: str, part: str, module: nn.Module, file: str) -> Tensor:
    """Fit a table of one axis to the number of rows that the module has."""
    wanted = module.get_parameter(part).shape[-2]
    if table.shape[-2] == wanted:
        return table
    coordinates, sides = (getattr(module, each, None) for each in ('coordinates', 'grid_shape'))
    if coordinates == 'aspect' and len(set(sides or ())) > 1:
        raise ValueError(f'{file}: {key} has {table.shape[-2]} cells, {wanted} here; a square '
                         "img_size is required to resize tables with coordinates='aspect'")
    if coordinates == 'absolute':
        return table[:, :wanted]
    return resize_axis_table(at_least_float32(table), wanted)


def _fit_saved_grid(name: str, module: SavesGrid, state: dict[str, Tensor], file: str,
                    patch_size: int | tuple[int, int] | None) -> dict[str, Tensor]:
    """The weights with the module's table on its grid.

    Files of releases say no grid: a table of the module's shape is of its grid, others of squares.
    """
    grid_key, target = f'{name}.{module.grid_name}', module.sides
    saved = state.pop(grid_key, None)
    grid = None if saved is None else (int(saved[0]), int(saved[1]))
    here = {key: weight.shape for part, weight in module.named_parameters()
            if (key := f'{name}.{part}') in state}
    if grid is None and here and all(state[key].shape == here[key] for key in here):
        grid = target
        if target[0] != target[1]:
            print_log(f'{file}: {min(here)} has the shape that it has here, and the file does not '
                      f'say its grid: it is taken as one of {target[0]} x {target[1]}', 'current',
                      logging.WARNING)
    if isinstance(module, LearnedPositionEmbedding) and f'{name}.pos_embed' in state:
        state |= _fit_table(f'{name}.pos_embed', state, module, patch_size, file, grid)
    elif isinstance(module, RelativePositionBias) and f'{name}.{_BIAS}' in state:
        state[f'{name}.{_BIAS}'] = _fit_biases(state[f'{name}.{_BIAS}'], module, grid)
    elif grid not in (None, target):
        raise ValueError(f'{file}: {grid_key} is {grid}, {target} here; {type(module).__name__} '
                         'keeps its grid')
    if here:
        state[grid_key] = torch.tensor(target)
    return state


def _fit_table(key: str, state: Mapping[str, Tensor], module: LearnedPositionEmbedding,
               patch_size: int | tuple[int, int] | None, file: str, grid: tuple[int, int] | None
               ) -> dict[str, Tensor]:
    """Fit a table to the module's grid. Returns the table and the prefix tokens to which rows of it
    were added; nothing if it is no such table, or fits already.

    A table of cells only, as DeiT III's, adds nothing to prefix tokens: zeros stand for them.
    """
    table, rows, target = state[key], module.num_prefix_embeds, module.sides
    if table.dim() != 3:
        return {}
    prefix_tokens = [(name, index) for name in ('cls_token', 'dist_token', 'register_tokens')
                     if name in state for index in range(state[name].shape[1])]
    if grid is None:
        prefix_rows, side = next((
            (prefix, side) for prefix in (0, rows, 1, *range(2, len(prefix_tokens) + 1))
            for side in (math.isqrt(max(table.shape[1] - prefix, 0)),)
            if side ** 2 == table.shape[1] - prefix > 0 and (not prefix or prefix >= rows)),
            (None, 0))
        if prefix_rows is None:
            return {}
        grid = side, side
    else:
        prefix_rows = table.shape[1] - grid[0] * grid[1]
    if grid == target and prefix_rows == rows:
        return {}
    table, (height, width) = at_least_float32(table), grid
    if target != grid:
        keeps = ''
        if patch_size:
            size = height * pair(patch_size)[0], width * pair(patch_size)[1]
            keeps = f'; img_size={size[0] if size[0] == size[1] else size} keeps it as it is'
        print_log(f'{file}: {key} of {height} x {width} cells is resized to {target[0]} x '
                  f'{target[1]}, the grid of img_size, and once more for images of another size'
                  f'{keeps}', 'current')
    extents = torch.full((1, 2), max(target)) if module.keep_aspect else None
    cells = resize_position_table(table[:, prefix_rows:], grid, target, module.interpolation,
                                  module.interpolation_offset, extents)
    token_rows = table[:, :min(prefix_rows, rows)]
    if prefix_rows < rows:
        token_rows = table.new_zeros(1, rows, table.shape[-1])
    tokens = {name: at_least_float32(state[name]).clone()
              for name, _ in prefix_tokens[rows:prefix_rows]}
    for row in range(rows, min(prefix_rows, len(prefix_tokens))):
        name, index = prefix_tokens[row]
        tokens[name][:, index] += table[:, row]
    return {key: torch.cat((token_rows, cells), dim=1), **tokens}


def _fit_biases(table: Tensor, module: RelativePositionBias, window: tuple[int, int] | None
                ) -> Tensor:
    """Resize the biases of a window, which may be square, as the module does it, or as Swin's
    release if the module does not say. Returns the table itself if it is no such table, or fits
    already."""
    if window is None:
        side = math.isqrt(table.shape[0])
        if table.dim() != 2 or side * side != table.shape[0] or not side % 2:
            return table
        window = ((side + 1) // 2,) * 2
    if window == module.sides:
        return table
    offsets = at_least_float32(table).t().unflatten(1, (2 * window[0] - 1, 2 * window[1] - 1))
    return resize_bias_table(offsets, module.sides,
                             module.resize or 'bicubic').flatten(1).t()


def leave_out_classifier(backbone: nn.Module, state: Mapping[str, Tensor], name: str
                         ) -> dict[str, Tensor]:
    """Leave out a classifier's norm and tokens that the backbone does not have, and log it."""
    names = set(backbone.state_dict())
    left_out = [key for key in state if key not in names and _CLASSIFIER.fullmatch(key)]
    tokens = [key for key in left_out if key.endswith('_token')]
    rest = [key for key in left_out if key not in tokens]
    if rest:
        print_log(f'{type(backbone).__name__} extracts features: left out {", ".join(rest)}',
                  'current')
    if tokens:
        options = parameters_of(type(backbone))
        keeps = ' and '.join(f'{option}=True' if option in options else "pool='cls'"
                             for token, option in (('cls_token', 'class_token'),
                                                   ('dist_token', 'distilled'))
                             if any(key.endswith(token) for key in tokens))
        print_log(f'{name}: {", ".join(tokens)} left out, as {type(backbone).__name__} has none: '
                  f'in training patches attended to it, so their features differ without it; '
                  f'{keeps} keeps it', 'current', logging.WARNING)
    return {key: value for key, value in state.items() if key not in left_out}
