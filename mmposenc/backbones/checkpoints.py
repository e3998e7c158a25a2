"""Loads pretrained weights into a backbone, official files included, and says what did not fit."""
from __future__ import annotations

import logging
import re
from collections.abc import Container, Mapping
from contextlib import suppress
from os.path import commonprefix
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..checkpoint import convert_with_report, recognise
from ..checkpoint.encoding_names import BUT_ENCODINGS, SLOTS, is_encoding, replaced_slots
from ..checkpoint.files import unwrap
from ..checkpoint.recognition import looks_like
from ..checkpoint.rules import shown
from ..checkpoint.shapes import check_numbers
from ..encodings.base import RelativeEncoding, TokenEncoding
from ..signatures import parameters_of
from .archs import look_alikes, needed_options
from .computed import fit_biases_of_keys, other_positions
from .fitting import fit_encodings, fit_patches
from .modules import print_log, read_checkpoint

#: Weights a classification checkpoint has and a feature extractor need not have, or the reverse.
_CLASSIFIER = re.compile(
    r'(fc_)?norm\d?\.(weight|bias)|(.*\.)?(cls|dist)_token|neck\.\d\.(weight|bias)')


_ANY_BLOCK = re.compile(r'(?<=stages\.)\d+|(?<=blocks\.)\d+')


def load_pretrained(backbone: nn.Module, checkpoint: Mapping[str, Any] | str | Path, *,
                    prefix: str | None = None, strict: bool | str = True,
                    name: str | None = None) -> None:
    """Load a checkpoint of this project or of a release it can convert.

    Learned position tables are resized to the backbone's grid, Swin's biases to its window, and the
    kernel of an image's patches to their size here (FlexiViT, Beyer et al., CVPR 2023, Sec. 3.4);
    if the file's images have three channels, and others here, it is summed for one channel, else
    repeated and scaled. This is logged. A classifier's head, last norm and class token are left out
    if the backbone has none, with a log entry (a warning for a token). If the file's table has a
    row for a token and the table here has none, the row is added to the token. If only encodings
    are missing in the file, they keep their initial values, which is logged.

    Args:
        backbone: the backbone.
        checkpoint: a file, a state dict, or a dict with one under 'state_dict', 'model', 'module'
            or 'teacher'.
        prefix: load only names with this prefix, and remove it; 'backbone.' is recognised.
        strict: True: raise if names or shapes differ; encodings in place of which the backbone was
            given another kind, or None, are left out with a log entry. False: load what fits and
            log the rest. 'but encodings': all encodings may differ.
        name: name for messages; by default that of the file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: weights are missing, unexpected or of another shape; they are named.
    """
    if isinstance(checkpoint, (str, Path)):
        name = str(checkpoint) if name is None else name
        checkpoint = read_checkpoint(str(checkpoint))
    name = 'checkpoint' if name is None else name
    state, is_release = fitted_weights(backbone, unwrap(checkpoint, name).state_dict, prefix, name)
    own = backbone.state_dict()
    slots = SLOTS if strict == BUT_ENCODINGS else replaced_slots(
        getattr(backbone, 'replaced_encodings', ()), own, state)
    state = _leave_out_encodings(own, state, slots, name)
    new, encodings, report = _differences(backbone, own, state, slots)
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
        print_log(f'{name}: not in the file, initial values are kept: {shown(new, 2)}', 'current')
    if encodings:
        new_ones = shown([prefix.removesuffix('.') for prefix in encodings], 2)
        print_log(f'{name} was trained without {new_ones}: with zero_init=True a new '
                  f'encoding does not change the outputs at first', 'current',
                  logging.WARNING if is_release else logging.INFO)


def fitted_weights(backbone: nn.Module, weights: Mapping[str, Tensor], prefix: str | None = None,
                   name: str = 'checkpoint') -> tuple[dict[str, Tensor], bool]:
    """Weights under this project's names, in the form and the sizes that the backbone has them in;
    what then is other than in the file is a warning.

    Args:
        backbone: what they will be loaded into.
        weights: of any source that is known.
        prefix, name: as in :func:`load_pretrained`.

    Returns:
        The weights, and whether they had other names.

    Raises:
        ValueError: the weights do not fit each other, or the backbone's positions.
    """
    state, computed = _converted(weights, prefix, name)
    try:
        warnings = list(other_positions(backbone, computed or {}))
    except ValueError as error:
        raise ValueError(f'{name}: {error}') from error
    state = fit_patches(backbone, state, name)
    # Before tokens are removed: rows of a table belong to them.
    state = fit_encodings(backbone, state, name, is_release=computed is not None)
    state, left_out = fit_biases_of_keys(backbone, state)
    if left_out:
        warnings.append(f'the biases of the keys in {shown(left_out, 2)} are left out, and rotary '
                        'positions turn them: qkv_bias=True has its features')
    for warning in warnings:
        print_log(f'{name}: {warning}', 'current', logging.WARNING)
    return _leave_out_classifier(backbone, state, name), computed is not None


def _differences(backbone: nn.Module, own: Mapping[str, Tensor], state: Mapping[str, Tensor],
                 slots: Container[str]) -> tuple[list[str], list[str], str]:
    """Weights that may be new, encodings of which a file has nothing, and what does not fit; ''
    where all does."""
    missing = sorted(set(own) - set(state))
    unexpected = sorted(set(state) - set(own))
    encodings = [] if unexpected else _new_encodings(backbone, missing, state)
    missing = [key for key in missing if not is_encoding(key, slots)]
    pattern = getattr(backbone, 'may_be_new', None)
    halves = {key.rpartition('.')[0] for key in state}  # a norm has all its weights or none
    new = [key for key in missing if key.startswith(tuple(encodings)) or '.lora_' in key
           or (pattern and re.fullmatch(pattern, key) and key.rpartition('.')[0] not in halves)]
    missing = [key for key in missing if key not in new]
    shapes = [f'{key}: {tuple(state[key].shape)} in the file, {tuple(own[key].shape)} here'
              for key in sorted(set(own) & set(state)) if own[key].shape != state[key].shape]
    report = '; '.join(f'{title}: {shown(names)}' for title, names in (
        ('missing', missing), ('unexpected', unexpected), ('of another shape', shapes)) if names)
    return new, encodings, report


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
    patches = next((f'. Kernels of patches have {theirs[0]} x {theirs[1]} pixels in the file, '
                    f'{ours[0]} x {ours[1]} here, and are not resized where patches overlap or are '
                    "of a later stage: give the file's patch_sizes and overlap, as what fits "
                    'without them is no trained model'
                    for ours, theirs in kernels if ours != theirs), '')
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


def _leave_out_encodings(own: Mapping[str, Tensor], state: dict[str, Tensor],
                         slots: Container[str], name: str) -> dict[str, Tensor]:
    """The weights without encodings that the backbone does not have, or has in another shape."""
    left_out = [key for key, value in state.items() if is_encoding(key, slots)
                and (key not in own or own[key].shape != value.shape)]
    if left_out:
        print_log(f'{name}: left out, as the model lacks these encodings: {shown(left_out, 2)}',
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
    elif prefix and not prefix.endswith('.'):  # as mmengine reads it
        prefix = f'{prefix}.'
    if not any(key.startswith(prefix) for key in state):
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
        options = parameters_of(type(backbone))
        keeps = ' and '.join(f'{option}=True' if option in options else "pool='cls'"
                             for token, option in (('cls_token', 'class_token'),
                                                   ('dist_token', 'distilled'))
                             if any(key.endswith(token) for key in tokens))
        print_log(f'{name}: {", ".join(tokens)} left out, as {type(backbone).__name__} has none: '
                  f'in training patches attended to it, so their features differ without it; '
                  f'{keeps} keeps it', 'current', logging.WARNING)
    return {key: value for key, value in state.items() if key not in left_out}
