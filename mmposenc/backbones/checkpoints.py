"""The one way from a checkpoint to a model: its file is read, its names are recognised and
converted, its encodings are fitted, and what does not fit is reported."""
from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from os.path import commonprefix
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoint import (
    SOURCES,
    Converted,
    convert_with_report,
    recognise,
    under_names_of_network,
)
from ..checkpoint.encoding_names import (
    BUT_ENCODINGS,
    GRIDS,
    SLOTS,
    is_encoding_weight,
    replaced_slots,
)
from ..checkpoint.file_weights import checked_meta, read_checkpoint
from ..checkpoint.key_biases import join_biases
from ..checkpoint.mismatch import mismatch_text
from ..checkpoint.numbers import copy_weights
from ..checkpoint.rules import SUPPORTED, names_text
from ..config_types import ConfigType
from ..encodings.base import RelativeEncoding, TokenEncoding
from .arch_of_weights import look_alikes, needed_options
from .fitting import fit_weights, leave_out_classifier
from .optional_mmengine import print_log

State = Mapping[str, Tensor]
_ANY_BLOCK = re.compile(r'(?<=stages\.)\d+|(?<=blocks\.)\d+')


@dataclass(frozen=True)
class Loaded:
    """What became of a checkpoint in a model.

    Attributes:
        source: whose names the file has, a key of :data:`mmposenc.checkpoint.SOURCES`; None: those
            of this project, or of a whole model.
        names: the names of the weights that the model now has from the file.
        misfits: what does not fit, in lines; '' where all does.
        meta: what the training that wrote the file says about itself.
    """

    source: str | None
    names: list[str]
    misfits: str
    meta: dict[str, Any]


def load_pretrained(model: nn.Module, checkpoint: State | Mapping[str, object] | str | Path, *,
                    prefix: str | None = None, strict: bool | str = True, name: str | None = None,
                    same_model: bool = False, remedy: str = '') -> Loaded:
    """Load a checkpoint of this project or of a release it can convert.

    Learned position tables are resized to the backbone's grid, Swin's biases to its window, and the
    kernel of an image's patches to their size here (FlexiViT, Beyer et al., CVPR 2023, Sec. 3.4);
    if the file's images have three channels, and others here, it is summed for one channel, else
    repeated and scaled. This is logged. A classifier's head, last norm and class token are left out
    if the backbone has none, with a log entry (a warning for a token). If the file's table has a
    row for a token and the table here has none, the row is added to the token. If only encodings
    are missing in the file, they keep their initial values, which is logged.

    Args:
        model: a backbone; or a whole model, into which a checkpoint of all of it is loaded. Of a
            whole model only the drop-ins of other libraries' backbones
            (:mod:`mmposenc.openmmlab.upstream`) are converted and fitted.
        checkpoint: a file, a state dict, or a dict with one under 'state_dict', 'model', 'module'
            or 'teacher'.
        prefix: load only names with this prefix, and remove it; 'backbone.' is recognised.
        strict: True: raise if names or shapes differ; encodings in place of which the backbone was
            given another kind, or None, are left out with a log entry. False: load what fits and
            log the rest. 'but encodings': all encodings may differ.
        name: name for messages; by default that of the file.
        same_model: the file was written by this very model, to test, predict or resume: its
            encodings must be there, too.
        remedy: what to do if it does not fit, for the message; by default advice by the names.

    Returns:
        What was done.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: weights are missing, unexpected or of another shape; they are named. Another
            ``strict``.
    """
    if strict not in (True, False, BUT_ENCODINGS):
        raise ValueError(f'strict={strict!r} must be True, False or {BUT_ENCODINGS!r}')
    if name is None:
        name = 'checkpoint' if isinstance(checkpoint, Mapping) else str(checkpoint)
    file = read_checkpoint(checkpoint, name)
    if same_model:
        checked_meta(file.meta, name)
    if averages := set(file.ignored) & {'state_dict_ema', 'model_ema'}:  # timm's, DeiT's
        print_log(f'{name}: averaged weights, {names_text(sorted(averages))}, are not taken: give '
                  'a file or a dict of these alone if you want them', 'current', logging.WARNING)
    is_backbone, source = hasattr(model, 'archs'), None
    if is_backbone:
        converted = _under_our_names(model, file.state_dict, prefix, name)
        source, state = converted.source, fit_weights(model, converted, name)
    else:
        named, network = under_names_of_network(file.state_dict, model.state_dict().keys(), prefix)
        if network:
            print_log(f'{name}: weights of {SOURCES[network].files}, under names of this project',
                      'current')
            named = leave_out_classifier(model, named, name)
        state = convert_drop_ins(model, named, name)
    weights = model.state_dict()
    slots = _replaced_slots(model, weights, state, strict, same_model)
    fitting = _fitting_weights(weights, state)
    state = _without_encodings_model_lacks(state, fitting, slots, name)
    new, encodings = ([], []) if same_model else _new_weights(model, weights, state, slots)
    misfits = mismatch_text({key: value for key, value in weights.items() if key in state or not (
        key in new or is_encoding_weight(key, slots))}, state)
    what = type(model).__name__ if is_backbone else 'the model'
    if misfits and (strict or not fitting):
        advice = remedy or (_advice_text(model, state, source, fitting) if is_backbone else '')
        raise ValueError(f'{name} does not fit {what}{advice}:\n{misfits}')
    copied = OrderedDict((key, value) for key, value in state.items()
                         if key in fitting or not (is_backbone or key in weights))
    setattr(copied, '_metadata', getattr(file.state_dict, '_metadata', {}))  # noqa: B010
    copy_weights(model, copied, name)
    if misfits:
        print_log(f'{name} does not fit {what}: {len(fitting)} of {len(weights)} weights are '
                  f'loaded:\n{misfits}', 'current', logging.WARNING)
    _log_new_weights(name, new, encodings, logging.INFO if source is None else logging.WARNING)
    return Loaded(source, list(fitting), misfits, file.meta)


def load_of_init_cfg(model: nn.Module, init_cfg: ConfigType) -> None:
    """Load the file of an ``init_cfg`` of type Pretrained (:func:`load_pretrained`).

    Raises:
        ValueError: it has no file, or unknown options; or the file does not fit.
    """
    options = {key: value for key, value in init_cfg.items() if key != 'type'}
    unknown = sorted(set(options) - {'checkpoint', 'prefix', 'strict', 'map_location'})
    if unknown or 'checkpoint' not in options:
        raise ValueError(f"init_cfg={dict(init_cfg)!r} must have a checkpoint, and may have prefix "
                         f'and strict; unknown: {unknown}')
    load_pretrained(model, options['checkpoint'], prefix=options.get('prefix'),
                    strict=options.get('strict', True))


def _log_new_weights(name: str, new: list[str], encodings: list[str], level: int) -> None:
    """Log which weights keep their initial values."""
    if new:
        print_log(f'{name}: not in the file, initial values are kept: {names_text(new, 2)}',
                  'current')
    if encodings:
        print_log(f'{name} was trained without {names_text(encodings, 2)}: with zero_init=True a '
                  'new encoding does not change the outputs at first', 'current', level)


def convert_drop_ins(model: nn.Module, state: State, name: str = 'checkpoint'
                     ) -> dict[str, Tensor]:
    """The weights of a whole model, in which the weights of drop-ins have the names and sizes of
    this project."""
    state = join_biases(state)
    for module_name, module in model.named_modules():
        if getattr(module, 'takes_upstream_names', False):
            convert_part(module, state, f'{module_name}.' if module_name else '', name)
    return state


def convert_part(backbone: nn.Module, state: dict[str, Tensor], prefix: str,
                 name: str = 'checkpoint') -> None:
    """Replace the weights of a backbone among those of a model, where they have the names of a
    source, by weights under this project's names.

    Args:
        backbone: what they will be loaded into.
        state: weights of the model; changed in place.
        prefix: the prefix of the backbone's weights in ``state``, with a dot.
        name: name of the file for messages.
    """
    part = {key: state[key] for key in state if key.startswith(prefix)}
    if not part:
        return
    converted = _under_our_names(backbone, part, prefix, name)
    if converted.source is None:
        return
    for key in part:
        del state[key]
    state |= {f'{prefix}{key}': value
              for key, value in fit_weights(backbone, converted, name).items()}


def _under_our_names(backbone: nn.Module, weights: State, prefix: str | None, name: str
                     ) -> Converted:
    """The weights of a backbone under this project's names, without the prefix 'backbone.'."""
    state = _weights_behind_prefix(weights, prefix, name)
    try:
        converted = convert_with_report(state)
        if converted.source is None:
            return converted
        if (network := SOURCES[converted.source].network) and not {
                f'backbone.{key}' for key in backbone.state_dict()} & set(converted.state_dict):
            raise ValueError(f'these are weights of {network.format(source=converted.source)}')
        if alike := '; '.join(f'{who} ({" ".join(options)})' for who, options
                              in look_alikes(converted.state_dict, type(backbone).__mro__,
                                             weights).items()):
            print_log(f'{name}: models with the same names and shapes of weights but other options '
                      f'exist; check that these options are yours: {alike}', 'current',
                      logging.WARNING)
    except ValueError as error:
        raise ValueError(f'{name}: {error}') from error
    except (ArithmeticError, LookupError, RuntimeError, TypeError) as error:
        raise ValueError(f'{name}: a weight has not the dimensions that its names require ({error})'
                         ) from error
    return replace(converted,
                   state_dict=_weights_behind_prefix(converted.state_dict, 'backbone.', name))


def _new_weights(model: nn.Module, weights: State, state: State, slots: Container[str]
                 ) -> tuple[list[str], list[str]]:
    """Which weights a file need not have: their names, and the names of encodings of which it has
    no weight."""
    missing = sorted(set(weights) - set(state))
    encodings = [] if set(state) - set(weights) else _new_encodings(model, missing, state)
    pattern = getattr(model, 'may_be_new', None)
    # A norm that has one of its weights in the file must have all of them.
    halves = {key.rpartition('.')[0] for key in state}
    new = [key for key in missing if not is_encoding_weight(key, slots) and (
        key.startswith(tuple(f'{each}.' for each in encodings))
        or (pattern and re.fullmatch(pattern, key) and key.rpartition('.')[0] not in halves))]
    return new, encodings


def _new_encodings(model: nn.Module, missing: list[str], state: State) -> list[str]:
    """Names of the encodings of which a file has no weight at all, in any block or stage."""
    encodings: list[str] = []
    known = {_ANY_BLOCK.sub('', key) for key in state}
    for prefix, module in model.named_modules():
        names = [f'{prefix}.{name}' for name in module.state_dict()]
        if (isinstance(module, (TokenEncoding, RelativeEncoding)) and names
                and set(names) <= set(missing)
                and not prefix.startswith(tuple(f'{each}.' for each in encodings))
                and not known & {_ANY_BLOCK.sub('', name) for name in names}):
            encodings.append(prefix)
    return encodings


def _replaced_slots(model: nn.Module, weights: State, state: State, strict: bool | str,
                    same_model: bool) -> Container[str]:
    """The kinds of encodings (:data:`SLOTS`) whose weights need not fit, because another encoding
    replaced them."""
    if strict == BUT_ENCODINGS:
        return SLOTS
    if same_model:
        return ()
    replaced = {slot for module in model.modules()
                for slot in getattr(module, 'replaced_encodings', ())}
    return replaced_slots(replaced, weights, state)


def _fitting_weights(weights: State, state: State) -> dict[str, Tensor]:
    """The weights of a file that the model has in the same shape, and its tables for the same grid.
    """
    other_grids = tuple(key.rpartition('.')[0] + '.' for key, value in state.items()
                        if key.endswith(GRIDS) and key in weights
                        and not torch.equal(value.cpu(), weights[key].cpu()))
    return {key: value for key, value in state.items()
            if key in weights and weights[key].shape == value.shape
            and not key.startswith(other_grids)}


def _without_encodings_model_lacks(state: State, fitting: State, slots: Container[str], name: str
                               ) -> dict[str, Tensor]:
    """Leave out the weights of encodings that the model does not have, or has in another shape."""
    left_out = [key for key in state if key not in fitting and is_encoding_weight(key, slots)]
    if left_out:
        print_log(f'{name}: left out, as the model lacks these encodings: '
                  f'{names_text(left_out, 2)}', 'current')
    return {key: value for key, value in state.items() if key not in left_out}


def _weights_behind_prefix(state: State, prefix: str | None, name: str) -> dict[str, Tensor]:
    """Take the weights whose names begin with a prefix, and remove it. By default these are the
    weights of a backbone; a release of DETR is taken as a whole."""
    if prefix is None:
        of_backbone = any(key.startswith('backbone.') for key in state)
        of_detr = any(key.startswith('transformer.') for key in state)
        prefix = 'backbone.' if of_backbone and not of_detr else ''
    elif prefix and not prefix.endswith('.'):  # mmengine adds the dot in the same way.
        prefix = f'{prefix}.'
    if not any(key.startswith(prefix) for key in state):
        # The prefix 'module.' of DistributedDataParallel is removed from names when a file is read.
        prefix = prefix.removeprefix('module.')
    selected = {key[len(prefix):]: value for key, value in state.items() if key.startswith(prefix)}
    if not selected:
        raise ValueError(f'{name} has no weights with prefix={prefix!r}, but '
                         f'{names_text(list(state))}')
    return selected


def _advice_text(model: nn.Module, state: State, source: str | None, fitting: State) -> str:
    """What to do about weights that do not fit: options of the backbone, or another file."""
    weights = model.state_dict()
    common_names = set(weights) & set(state)
    common, needs = len(common_names), []
    few = 2 * common < max(len(weights), len(state))
    if any('.attn.' in key for key in common_names):  # Both are of one kind of backbone.
        ours, theirs = (needed_options({f'backbone.{key}': value for key, value in each.items()},
                                       type(model).__mro__) for each in (weights, state))
        needs = [option for option in theirs if option not in ours]
    here, there = (sum(bool(re.fullmatch(r'predictor\.upscale\.\d+\.conv1\.weight', key))
                       for key in each) for each in (weights, state))
    if here and there != here:  # An EoMT, whose patches decide how often its map is enlarged.
        needs.append(f'model.backbone.num_upscales={there}')
    kind = SUPPORTED if source is None else f'its weights are those of source {source!r}'
    prefix = '' if common else _common_prefix(weights, state)
    kernels = ((weights[key].shape[2:], state[key].shape[2:]) for key in weights
               if key.endswith('patch_embed.projection.weight') and key in state)
    patches = next((f'. Kernels of patches have {theirs[0]} x {theirs[1]} pixels in the file, '
                    f'{ours[0]} x {ours[1]} here, and are not resized where patches overlap or are '
                    "of a later stage: give the file's patch_sizes and overlap, as what fits "
                    'without them is no trained model'
                    for ours, theirs in kernels if ours != theirs), '')
    return ''.join((f' ({kind})' if few else '',
                    f'. The file needs {", ".join(needs)}' if needs else '',
                    f". If this is the backbone, give prefix={prefix!r}" if prefix else '',
                    patches or '. Load what fits with strict=False' * bool(fitting and not few)))


def _common_prefix(weights: State, state: State) -> str:
    """The common prefix of all names, found from the names that are known to follow it."""
    parts = commonprefix([key.split('.') for key in state])
    for count in range(len(parts), 0, -1):
        prefix = '.'.join([*parts[:count], ''])
        behind = {key.removeprefix(prefix): value for key, value in state.items()}
        with suppress(ValueError):
            if set(weights) & set(behind) or recognise(behind):
                return prefix
    return ''
