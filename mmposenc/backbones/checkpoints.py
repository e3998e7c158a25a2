"""Encodings of a pretrained file, fitted to the blocks, grids and windows of a backbone."""
from __future__ import annotations

import inspect
import logging
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from os.path import commonprefix
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoint import convert_with_report, look_alikes, needed_options, recognise
from ..checkpoint.encoding_names import BUT_ENCODINGS, is_encoding
from ..checkpoint.files import unwrap
from ..checkpoint.recognition import looks_like
from ..checkpoint.rules import shown
from ..checkpoint.shapes import check_numbers
from ..encodings.absolute import FactorizedPositionEmbedding, LearnedPositionEmbedding
from ..encodings.base import RelativeEncoding, TokenEncoding
from ..encodings.decomposed import DecomposedRPE
from ..encodings.relative_bias import RelativePositionBias
from ..encodings.saved_grid import SavesGrid
from ..functional.bias_tables import resize_bias_table
from ..functional.position_tables import resize_axis_table, resize_position_table
from .computed import fit_biases_of_keys, other_positions
from .modules import print_log, read_checkpoint

_BIAS = 'relative_position_bias_table'
#: Of encodings with a table for each axis.
_AXIS_TABLES = ('row_table', 'col_table', 'pos_embed_y', 'pos_embed_x')


def fit_encodings(backbone: nn.Module, state: Mapping[str, Tensor], file: str, is_release: bool
                  ) -> dict[str, Tensor]:
    """The weights of a file with their encodings where the backbone has them, in its sizes.

    Args:
        backbone: what they will be loaded into.
        state: all weights, in this project's names.
        file: its name, for what is logged about tables that are resized.
        is_release: whether the names were others, as in releases, whose tables are squares.
    """
    state = _move_biases(backbone, _unshare(backbone, state))
    fitted = _resize_tables(backbone, state, file, is_release)
    if resized := [key for key, value in state.items() if not key.endswith('.pos_embed')
                   and key in fitted and value.shape != fitted[key].shape]:
        print_log(f'{file}: resized to the grid or window here: {shown(resized)}', 'current')
    return fitted


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
    own = set(backbone.state_dict()) | {
        f'{name}.{module.grid_name}' for name, module in backbone.named_modules()
        if isinstance(module, SavesGrid)}
    moved = {}
    for key, value in state.items():
        combined = re.sub(r'\brel_pos_encoding\.', 'rel_pos_encoding.encodings.0.', key)
        moved[combined if key not in own and combined in own else key] = value
    return moved


def _resize_tables(backbone: nn.Module, state: dict[str, Tensor], file: str, is_release: bool
                   ) -> dict[str, Tensor]:
    """Fit learned tables to the backbone's grids and prefix tokens, biases to its windows."""
    state = dict(state)
    for name, module in backbone.named_modules():
        if isinstance(module, SavesGrid):
            state = _fit_saved_grid(name, module, state, file, is_release,
                                    getattr(backbone, 'patch_size', None))
        if isinstance(module, (DecomposedRPE, FactorizedPositionEmbedding)):
            for part in _AXIS_TABLES:
                if (key := f'{name}.{part}') in state:
                    state[key] = _fit_axis(state[key], key, part, module, file)
    return state


def _fit_axis(table: Tensor, key: str, part: str, module: nn.Module, file: str) -> Tensor:
    """A table of one axis with as many rows as the module's."""
    wanted = module.get_parameter(part).shape[-2]
    coordinates, sides = (getattr(module, each, None) for each in ('coordinates', 'grid_shape'))
    if coordinates == 'aspect' and len(set(sides or ())) > 1 and table.shape[-2] != wanted:
        raise ValueError(f'{file}: {key} has {table.shape[-2]} cells, {wanted} here; a square '
                         "img_size is required to resize tables with coordinates='aspect'")
    return table[:, :wanted] if coordinates == 'absolute' else resize_axis_table(table, wanted)


def _fit_saved_grid(name: str, module: SavesGrid, state: dict[str, Tensor], file: str,
                    is_release: bool, patch_size: int | None) -> dict[str, Tensor]:
    """The weights with the module's table on its grid.

    Of this project's files a table without a grid is of a square. Others say no grid: a table that
    has the module's shape and is no square is taken as it is.
    """
    grid_key, own = f'{name}.{module.grid_name}', getattr(module, module.grid_name)
    saved = state.pop(grid_key, None)
    grid = None if saved is None else (int(saved[0]), int(saved[1]))
    if isinstance(module, LearnedPositionEmbedding) and f'{name}.pos_embed' in state:
        state |= _fit_table(f'{name}.pos_embed', state, module, patch_size, file, grid, is_release)
    elif isinstance(module, RelativePositionBias) and f'{name}.{_BIAS}' in state:
        state[f'{name}.{_BIAS}'] = _fit_biases(state[f'{name}.{_BIAS}'], module, grid, is_release)
    elif grid not in (None, own):
        raise ValueError(f'{file}: {grid_key} is {grid}, {own} here; {type(module).__name__} keeps '
                         'its grid')
    if own[0] != own[1] and any(f'{name}.{part}' in state for part, _ in module.named_parameters()):
        state[grid_key] = torch.tensor(own)
    return state


def _fit_table(key: str, state: Mapping[str, Tensor], module: LearnedPositionEmbedding,
               patch_size: int | None, file: str, grid: tuple[int, int] | None, is_release: bool
               ) -> dict[str, Tensor]:
    """A table of a grid, or of a square, with or without prefix tokens, on the module's grid, and
    the tokens that rows were added to; nothing where it is no such table, or fits.

    A table of cells only, as DeiT III's, adds nothing to prefix tokens: zeros stand for them.
    """
    table, rows, own = state[key], module.num_prefix_embeds, module.grid_shape
    if table.dim() != 3:
        return {}
    prefix_tokens = [(name, place) for name in ('cls_token', 'dist_token', 'register_tokens')
                     if name in state for place in range(state[name].shape[1])]
    if grid is None:
        found = next((prefix for prefix in (0, rows, 1, 2, len(prefix_tokens))
                      if math.isqrt(max(table.shape[1] - prefix, 0)) ** 2 == table.shape[1] - prefix
                      and table.shape[1] > prefix and (not prefix or prefix >= rows)), None)
        if found is None:
            return {}
        grid = (math.isqrt(table.shape[1] - found),) * 2
    else:
        found = table.shape[1] - grid[0] * grid[1]
    same = table.shape == module.pos_embed.shape
    if same and grid == own:
        return {}
    height, width = grid
    if same and is_release:
        print_log(f'{file}: {key} may be of {height} x {width} or {own[0]} x {own[1]} cells, and '
                  f'is taken as {height} x {width}', 'current', logging.WARNING)
    if own != grid:
        keeps = ''
        if patch_size:
            size = height * patch_size if height == width else (
                height * patch_size, width * patch_size)
            keeps = f'; img_size={size} keeps it as it is'
        print_log(f'{file}: {key} of {height} x {width} cells is resized to {own[0]} x {own[1]}, '
                  f'the grid of img_size, and once more for images of another size{keeps}',
                  'current')
    extents = torch.full((1, 2), max(own)) if module.keep_aspect else None
    cells = resize_position_table(table[:, found:], grid, own, module.interpolation,
                                  module.interpolation_offset, extents)
    kept = table[:, :min(found, rows)]
    if found < rows:
        kept = table.new_zeros(1, rows, table.shape[-1])
    tokens = {name: state[name].clone() for name, _ in prefix_tokens[rows:found]}
    for row in range(rows, min(found, len(prefix_tokens))):
        name, place = prefix_tokens[row]
        tokens[name][:, place] += table[:, row]
    return {key: torch.cat((kept, cells), dim=1), **tokens}


def _fit_biases(table: Tensor, module: RelativePositionBias, window: tuple[int, int] | None,
                is_release: bool) -> Tensor:
    """Biases of a window, or of a square one, resized as the module does, or by default as Swin's
    release; the table itself where it is none or fits."""
    same = table.shape == module.relative_position_bias_table.shape
    if window is None:
        side = math.isqrt(table.shape[0])
        if table.dim() != 2 or side * side != table.shape[0] or not side % 2 or (
                same and is_release):
            return table
        window = ((side + 1) // 2,) * 2
    if same and window == module.window_size:
        return table
    offsets = table.t().unflatten(1, (2 * window[0] - 1, 2 * window[1] - 1))
    return resize_bias_table(offsets, module.window_size,
                             module.resize or 'bicubic').flatten(1).t()


# Load pretrained weights into a backbone, official files included, and say what did not fit.


#: Weights a classification checkpoint has and a feature extractor need not have, or the reverse.
_CLASSIFIER = re.compile(
    r'(fc_)?norm\d?\.(weight|bias)|(.*\.)?(cls|dist)_token|neck\.\d\.(weight|bias)')


_ANY_BLOCK = re.compile(r'(?<=stages\.)\d+|(?<=blocks\.)\d+')


def load_pretrained(backbone: nn.Module, checkpoint: Mapping[str, Any] | str | Path, *,
                    prefix: str | None = None, strict: bool | str = True,
                    name: str | None = None) -> None:
    """Load a checkpoint of this project or of a release it can convert.

    Learned position tables are resized to the backbone's grid, and Swin's biases to its window;
    this is logged. A classifier's head, last norm and class token are left out if the backbone has
    none, with a log entry (a warning for a token). If the file's table has a row for a token and
    the table here has none, the row is added to the token. If only encodings are missing in the
    file, they keep their initial values, which is logged.

    Args:
        backbone: the backbone.
        checkpoint: a file, a state dict, or a dict with one under 'state_dict', 'model', 'module'
            or 'teacher'.
        prefix: load only names with this prefix, and remove it; 'backbone.' is recognised.
        strict: True: raise if names or shapes differ; False: load what fits and log the rest; 'but
            encodings': only encodings may differ.
        name: name for messages; by default that of the file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: weights are missing, unexpected or of another shape; they are named.
    """
    if isinstance(checkpoint, (str, Path)):
        name = str(checkpoint) if name is None else name
        checkpoint = read_checkpoint(str(checkpoint))
    name = 'checkpoint' if name is None else name
    whole = unwrap(checkpoint, name).state_dict
    state, computed = _converted(whole, prefix, name)
    is_release = computed is not None
    try:
        for different in other_positions(backbone, computed or {}):
            print_log(f'{name}: {different}', 'current', logging.WARNING)
    except ValueError as error:
        raise ValueError(f'{name}: {error}') from error
    # Before tokens are removed: rows of a table belong to them.
    state = fit_encodings(backbone, state, name, is_release)
    state, left_out = fit_biases_of_keys(backbone, state)
    if left_out:
        print_log(f'{name}: the biases of the keys in {shown(left_out, 2)} are left out, and '
                  'rotary positions turn them: qkv_bias=True has its features', 'current',
                  logging.WARNING)
    state = _leave_out_classifier(backbone, state, name)
    own = backbone.state_dict()
    if strict == BUT_ENCODINGS:
        state = _leave_out_encodings(own, state, name)
    missing = sorted(set(own) - set(state))
    unexpected = sorted(set(state) - set(own))
    encodings = [] if unexpected else _new_encodings(backbone, missing, state)
    if strict == BUT_ENCODINGS:
        missing = [key for key in missing if not is_encoding(key)]
    pattern = getattr(backbone, 'may_be_new', None)
    halves = {key.rpartition('.')[0] for key in state}  # a norm has all its weights or none
    new = [key for key in missing if key.startswith(tuple(encodings)) or '.lora_' in key
           or (pattern and re.fullmatch(pattern, key) and key.rpartition('.')[0] not in halves)]
    missing = [key for key in missing if key not in new]
    shapes = [f'{key}: {tuple(state[key].shape)} in the file, {tuple(own[key].shape)} here'
              for key in sorted(set(own) & set(state)) if own[key].shape != state[key].shape]
    report = '; '.join(f'{title}: {shown(names)}' for title, names in (
        ('missing', missing), ('unexpected', unexpected), ('of another shape', shapes)) if names)
    if report and (strict or not set(own) & set(state)):
        raise ValueError(f'{name} does not fit {type(backbone).__name__}: {report}'
                         f'{_advice(own, state)}')
    fitting = {key: value for key, value in state.items()
               if key in own and own[key].shape == value.shape}
    check_numbers({key: value for key, value in fitting.items() if own[key].is_floating_point()},
                  name)
    backbone.load_state_dict(fitting, strict=False)
    if report:
        print_log(f'{name}: {len(fitting)} of {len(own)} weights loaded; {report}', 'current')
    if new:
        print_log(f'{name}: not in the file, initial values are kept: {", ".join(new)}', 'current')
    if encodings:
        print_log(f'{name} was trained without {shown(encodings)}: with zero_init=True a new '
                  f'encoding does not change the outputs at first', 'current',
                  logging.WARNING if is_release else logging.INFO)


def _converted(whole: Mapping[str, Tensor], prefix: str | None, name: str
               ) -> tuple[dict[str, Tensor], Mapping[str, Tensor] | None]:
    """The backbone's weights under this project's names; and, where they had others, what a file
    holds that the model computes by itself."""
    state = _select(whole, prefix, name)
    try:
        source = recognise(whole if prefix is None else state)
        if source is None:
            return state, None
        if source.endswith('detr'):
            raise ValueError('these are weights of a whole detector: convert them with '
                             f'`mmposenc convert {source}`, and give the result to load_from')
        converted, _, computed = convert_with_report(state, source)
        if alike := '; '.join(f'{who} ({" ".join(options)})'
                              for who, options in look_alikes(converted).items()):
            print_log(f'{name}: models with the same names and shapes of weights but other options '
                      f'exist; check that these options are yours: {alike}', 'current',
                      logging.WARNING)
        return _select(converted, 'backbone.', name), computed
    except ValueError as error:
        raise ValueError(f'{name}: {error}') from error
    except (ArithmeticError, LookupError, RuntimeError, TypeError) as error:
        raise ValueError(f'{name}: a weight has not the dimensions that source {source!r} has '
                         f'({error})') from error


def _advice(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """Advice for weights that do not fit: options of the model, or another file."""
    needs = needed_options({f'backbone.{key}': value for key, value in state.items()})
    common = len(set(own) & set(state))
    prefix = '' if common else _prefix(own, state)
    kernels = ((own[key].shape[2:], state[key].shape[2:]) for key in own
               if key.endswith('patch_embed.projection.weight') and key in state)
    patches = next((f'. Patches have {theirs[0]} x {theirs[1]} pixels in the file, {ours[0]} x '
                    f'{ours[1]} here: give patch_size={theirs[0]}, as what fits without them is no '
                    'trained model' for ours, theirs in kernels if ours != theirs), '')
    return ''.join((f' ({looks_like(state)})' if 2 * common < max(len(own), len(state)) else '',
                    f'. The file needs {", ".join(needs)}' if needs else '',
                    f". If this is the backbone, give prefix={prefix!r}" if prefix else '',
                    patches or ('. Load what fits with strict=False' if common else '')))


def _prefix(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """What stands before all names, if those behind it are known."""
    parts = commonprefix([key.split('.') for key in state])
    for count in range(len(parts), 0, -1):
        prefix = '.'.join([*parts[:count], ''])
        behind = [key.removeprefix(prefix) for key in state]
        with suppress(ValueError):
            if set(own) & set(behind) or recognise(behind):
                return prefix
    return ''


def _leave_out_encodings(own: Mapping[str, Tensor], state: dict[str, Tensor], name: str
                         ) -> dict[str, Tensor]:
    """The weights without encodings that the backbone does not have, or has in another shape."""
    left_out = [key for key, value in state.items() if is_encoding(key)
                and (key not in own or own[key].shape != value.shape)]
    if left_out:
        print_log(f'{name}: left out, as the model lacks these encodings: {shown(left_out)}',
                  'current')
    return {key: value for key, value in state.items() if key not in left_out}


def _new_encodings(backbone: nn.Module, missing: list[str], state: Mapping[str, Tensor]
                   ) -> list[str]:
    """Names of the encodings for which a file has no weights at all, in no block or stage."""
    found: list[str] = []
    known = {_ANY_BLOCK.sub('', key) for key in state}
    for prefix, module in backbone.named_modules():
        names = [f'{prefix}.{name}' for name in module.state_dict()]
        if (isinstance(module, (TokenEncoding, RelativeEncoding)) and names
                and set(names) <= set(missing) and not prefix.startswith(tuple(found))
                and not known & {_ANY_BLOCK.sub('', name) for name in names}):
            found.append(f'{prefix}.')
    return found


def _select(state: Mapping[str, Tensor], prefix: str | None, name: str) -> dict[str, Tensor]:
    """The weights with a prefix, without it."""
    if prefix is None:
        prefix = 'backbone.' if any(key.startswith('backbone.') for key in state) else ''
    elif not any(key.startswith(prefix) for key in state):
        prefix = prefix.removeprefix('module.')  # which is left out
    found = {key[len(prefix):]: value for key, value in state.items() if key.startswith(prefix)}
    if not found:
        raise ValueError(f'{name} has no weights with prefix={prefix!r}, but {shown(list(state))}')
    return found


def _leave_out_classifier(backbone: nn.Module, state: dict[str, Tensor], name: str
                          ) -> dict[str, Tensor]:
    own = set(backbone.state_dict())
    left_out = [key for key in state if key not in own and _CLASSIFIER.fullmatch(key)]
    tokens = [key for key in left_out if key.endswith('_token')]
    rest = [key for key in left_out if key not in tokens]
    if rest:
        print_log(f'{type(backbone).__name__} extracts features: left out {", ".join(rest)}',
                  'current')
    if tokens:
        options = inspect.signature(type(backbone)).parameters
        keeps = ' and '.join(f'{option}=True' if option in options else "pool='cls'"
                             for token, option in (('cls_token', 'class_token'),
                                                   ('dist_token', 'distilled'))
                             if any(key.endswith(token) for key in tokens))
        print_log(f'{name}: {", ".join(tokens)} left out, as {type(backbone).__name__} has none: '
                  f'in training patches attended to it, so their features differ without it; '
                  f'{keeps} keeps it', 'current', logging.WARNING)
    return {key: value for key, value in state.items() if key not in left_out}
