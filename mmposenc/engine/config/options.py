"""Puts options of the command line into a config, and finds arguments that nothing would read."""
from __future__ import annotations

import argparse
import ast
from typing import Any

from mmengine.config import Config, DictAction
from mmengine.hooks import CheckpointHook
from mmengine.registry import OPTIMIZERS
from mmengine.runner import Runner

from mmposenc.config_types import ReadOnlyConfig
from mmposenc.signatures import parameters_of
from mmposenc.terminal.messages import suggestion_text

from .arguments import ENCODINGS
from .config import LIVE_KEYS, load_config, set_work_dir
from .data import point_to_folder
from .nodes import type_without_library, value_at, values_with_keys
from .parsed import ParsedConfig

#: The keys that mmengine's DefaultOptimWrapperConstructor reads; it ignores all others, such as
#: the misspelt one in mmpretrain's configs of Twins.
_PARAMWISE = {'lr_mult', 'decay_mult', 'custom_keys', 'bias_lr_mult', 'bias_decay_mult',
              'norm_decay_mult', 'flat_decay_mult', 'dwconv_decay_mult', 'dcn_offset_lr_mult',
              'bypass_duplicate', '_delete'}
#: For each constructor, the keys that it reads in paramwise_cfg.
_PARAMWISE_OF = {'DefaultOptimWrapperConstructor': _PARAMWISE,
                 'mmposenc.LayerDecayOptimWrapperConstructor':
                     _PARAMWISE | {'layer_decay_rate', 'num_layers'}}


def check_silent_arguments(parsed: ParsedConfig) -> None:
    """Find arguments that mmengine ignores, refuses without naming them, or refuses only when it
    writes the first checkpoint, which then is not written.

    Raises:
        ValueError: names the key of the config, the class, the argument, and similar ones.
    """
    cfg, optim = parsed.cfg, parsed.cfg.get('optim_wrapper') or {}
    kind = value_at(optim, 'optimizer.type')
    with OPTIMIZERS.switch_scope_and_registry(parsed.scope) as local:
        # mmengine's message would be "None is not a callable object".
        if isinstance(kind, str) and local.get(kind) is None:
            raise ValueError(f'optim_wrapper.optimizer.type={kind!r}: there is no such class'
                             f'{suggestion_text(kind, OPTIMIZERS.module_dict)}')
    constructor = optim.get('constructor', 'DefaultOptimWrapperConstructor')
    if constructor in _PARAMWISE_OF:
        _refuse_unknown_keys('optim_wrapper.paramwise_cfg', optim.get('paramwise_cfg'),
                             _PARAMWISE_OF[constructor], constructor)
    for key, scheduler in values_with_keys('param_scheduler', cfg.get('param_scheduler') or []):
        if isinstance(scheduler, dict):  # With several optimizers it may be a dict of lists.
            _refuse_schedule_without_length(key, scheduler, cfg.get('train_cfg') or {})
    hook = value_at(cfg, 'default_hooks.checkpoint')
    if isinstance(hook, dict) and type_without_library(hook) == 'CheckpointHook':
        # The hook hands its other arguments to the runner's method.
        known = {*parameters_of(CheckpointHook), *parameters_of(Runner.save_checkpoint)}
        _refuse_unknown_keys('default_hooks.checkpoint', hook,
                             known | {'type', '_scope_', 'priority'}, 'CheckpointHook')


def _refuse_schedule_without_length(key: str, scheduler: ReadOnlyConfig,
                                    train_cfg: ReadOnlyConfig) -> None:
    """Refuse a scheduler that ends before it begins, as the one after a warm-up does if the
    training is made shorter than the warm-up."""
    length = f'max_{"epochs" if scheduler.get("by_epoch", True) else "iters"}'
    begin, end = scheduler.get('begin', 0), scheduler.get('end', train_cfg.get(length))
    if end is not None and begin >= end:
        raise ValueError(f'{key}.begin={begin} must be before its end, '
                         + (f'{key}.end' if 'end' in scheduler else f'train_cfg.{length}')
                         + f'={end}: begin earlier, and end the scheduler before it (the warm-up) '
                         'there, or train for longer')


def _refuse_unknown_keys(key: str, node: ReadOnlyConfig | None, accepted: set[str],
                         owner: str) -> None:
    for name in node or ():
        if name not in accepted:
            raise ValueError(f'{key}.{name}: {owner} has no argument {name!r}'
                             f'{suggestion_text(name, sorted(accepted))}')


def override_in_place(cfg: Config, options: ReadOnlyConfig | None) -> None:
    """Merges ``--cfg-options`` into a config, and refuses an option that would do nothing.

    An encoding is switched on or to another by its ``type``: a section for it is made where there
    is none, and the options of another class are removed.

    Args:
        cfg: changed in place.
        options: dotted key to value, as mmengine's DictAction gives them.

    Raises:
        ValueError: a key under a name the config does not have, or a variable of the config file
            that was substituted when the file was read. A new key of a dict that has a ``type``
            passes: it is an argument, and the class refuses one that it does not know.
    """
    options = _by_dotted_key(options or {})
    for key in options:
        _refuse_unknown_key(cfg, key)
    for key, value in options.items():
        *sections, name = key.split('.')
        node: Any = cfg
        for part in sections:
            # mmengine would refuse a None on the way, such as ``init_cfg=None``.
            if hasattr(node, 'get') and part in node and node[part] is None:
                node[part] = {}
            node = value_at(node, part)
        if name == 'type':
            _forget_other_encoding(node, sections, value)
        # The shell has no tuples: a list replaces one, or is a size in a pipeline.
        before = value_at(node, name)
        if isinstance(value, list) and (isinstance(before, tuple) or (
                not isinstance(before, list) and 'pipeline' in sections
                and all(isinstance(each, int) for each in value))):
            options[key] = tuple(value)
    cfg.merge_from_dict(options)


def _by_dotted_key(options: ReadOnlyConfig) -> dict[str, object]:
    """Spell each entry of a dict as a separate key, unless the dict replaces what is there or its
    names have dots, as those of ``custom_keys`` have."""
    spelt: dict[str, object] = {}
    for key, value in options.items():
        if isinstance(value, dict) and value and not any(
                name == '_delete_' or '.' in str(name) for name in value):
            spelt |= _by_dotted_key({f'{key}.{name}': each for name, each in value.items()})
        else:
            spelt[key] = value
    return spelt


def _refuse_unknown_key(cfg: Config, key: str) -> None:
    parts = key.split('.')
    first = parts[0]
    if first not in LIVE_KEYS:
        if first in cfg:
            raise ValueError(
                f"--cfg-options {key}: '{first}' is a variable of the config file and was "
                'substituted when the file was read, so setting it here has no effect; set the '
                'key that uses it (such as train_dataloader.dataset.data_root)')
        known = sorted(LIVE_KEYS | set(cfg))
        raise ValueError(f"--cfg-options {key}: the config has no '{first}'"
                         f'{suggestion_text(first, known)}')
    if first == 'data_preprocessor' and cfg.get('model', {}).get(first):
        raise ValueError(f'--cfg-options {key}: the model has its own data_preprocessor, so '
                         f'this has no effect; set model.{key}')
    node, path = cfg, ''
    for number, part in enumerate(parts, 1):
        child = value_at(node, part)
        if child is None and number < len(parts):
            if path == '' or (isinstance(node, dict) and ('type' in node or part in ENCODINGS)):
                return  # The key is an argument of a class, or a section that the runner reads.
            known = sorted({*node, *ENCODINGS}) if isinstance(node, dict) else []
            raise ValueError(f"--cfg-options {key}: '{path}' has no '{part}'"
                             f'{suggestion_text(part, known)}')
        node, path = child, f'{path}.{part}'.lstrip('.')


def _forget_other_encoding(node: object, sections: list[str], kind: object) -> None:
    """Remove the options of an encoding that is replaced by one of another class."""
    if isinstance(node, (list, tuple)):
        section = '.'.join(sections)
        raise ValueError(f'--cfg-options {section}.type: {section} is a list of {len(node)}; name '
                         f'one by its number, as in {section}.0.type')
    if (isinstance(node, dict) and set(sections[-2:]) & set(ENCODINGS)
            and type_without_library(node) != str(kind).rpartition('.')[2]):
        node.clear()


def _value_of_option(key: str, text: str) -> object:
    """Read a value of ``--cfg-options``: as mmengine reads it, or as Python where it is a dict."""
    try:
        if text.lstrip().startswith('{'):
            return ast.literal_eval(text.strip())
        return DictAction._parse_iterable(text)
    except (AssertionError, RecursionError, SyntaxError, ValueError) as error:
        raise ValueError(f'--cfg-options {key}: {text!r} must be a number, a word, a list such as '
                         "'[1,2]', or a dict of Python such as \"{'type': 'FPN'}\"") from error


def config_of_arguments(args: argparse.Namespace, cfg: Config | None = None) -> Config:
    """Read the config that the arguments of ``add_config`` name, with the options that override it,
    and with the work directory and launcher of ``add_run_options`` if there are these. ``cfg`` is
    taken for what the file holds, if it was read already."""
    cfg = load_config(args.config) if cfg is None else cfg
    if args.data:
        point_to_folder(cfg, args.data)
    # Not done while arguments are parsed, because it loads torch.
    pairs = [word.partition('=') for word in args.cfg_options or ()]
    override_in_place(cfg, {key: _value_of_option(key, text) for key, _, text in pairs})
    if 'launcher' in args:
        set_work_dir(cfg, args.work_dir, args.encoding)
        cfg.launcher = args.launcher
    return cfg
