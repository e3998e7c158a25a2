"""Arguments that a class of the config does not take, found from its signature."""
from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from mmengine import registry
from mmengine.config import Config
from mmengine.optim import DefaultOptimWrapperConstructor
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from mmposenc.command_line import suggest
from mmposenc.names import CLASSES

#: What mmengine passes by itself, and keys that it takes out of a section before it builds.
_TAKEN = {'_scope_', 'priority'}
_LOADER_KEYS = set(inspect.signature(DataLoader.__init__).parameters) | {'num_batch_per_epoch'}
_SAVE_KEYS = set(inspect.signature(Runner.save_checkpoint).parameters)
#: Of mmengine's DefaultOptimWrapperConstructor, which passes over any other key in silence.
_PARAMWISE = {'lr_mult', 'decay_mult', 'custom_keys', 'bias_lr_mult', 'bias_decay_mult',
              'norm_decay_mult', 'flat_decay_mult', 'dwconv_decay_mult', 'dcn_offset_lr_mult',
              'bypass_duplicate'}
#: What each constructor reads in paramwise_cfg; others are passed over.
_PARAMWISE_OF = {DefaultOptimWrapperConstructor.__name__: _PARAMWISE,
                 'mmposenc.LayerDecayOptimWrapperConstructor':
                     _PARAMWISE | {'layer_decay_rate', 'num_layers'}}


def check_arguments(cfg: Config, phases: tuple[str, ...]) -> None:
    """Looks whether the classes of a config exist and take the arguments that it gives them.

    Hooks, loops, the optimizer and its schedule, data sets, their pipelines and samplers, and
    evaluators; the model is built before anything is loaded and says so itself. A class whose
    arguments can't be known from its signature is passed over.

    Args:
        cfg: the whole config.
        phases: of 'train', 'val', 'test': the ones about to be used.

    Raises:
        ValueError: names the key of the config, the class, the argument, and similar ones.
    """
    for key, node, kind, given in _sections(cfg, phases):
        with kind.switch_scope_and_registry(cfg.get('default_scope')) as local:
            _check_node(key, node, local, given)
    for phase in phases:
        _check_keys(f'{phase}_dataloader', cfg.get(f'{phase}_dataloader'), _LOADER_KEYS,
                    'a data loader')
    optim = cfg.get('optim_wrapper') if 'train' in phases else None
    constructor = (optim or {}).get('constructor', 'DefaultOptimWrapperConstructor')
    if optim and constructor in _PARAMWISE_OF:
        _check_keys('optim_wrapper.paramwise_cfg', optim.get('paramwise_cfg'),
                    _PARAMWISE_OF[constructor], constructor)


def _sections(cfg: Config, phases: tuple[str, ...]) -> Iterator[tuple[str, Any, Any, set[str]]]:
    """(key, node, registry, arguments that mmengine adds or takes out) of what is to be built."""
    for name, hook in (cfg.get('default_hooks') or {}).items():
        yield f'default_hooks.{name}', hook, registry.HOOKS, set()
    for i, hook in enumerate(cfg.get('custom_hooks') or []):
        yield f'custom_hooks.{i}', hook, registry.HOOKS, set()
    yield 'visualizer', cfg.get('visualizer'), registry.VISUALIZERS, set()
    for phase in phases:
        yield f'{phase}_cfg', cfg.get(f'{phase}_cfg'), registry.LOOPS, {'by_epoch'}
        loader = cfg.get(f'{phase}_dataloader') or {}
        yield f'{phase}_dataloader.sampler', loader.get('sampler'), registry.DATA_SAMPLERS, set()
        yield from _data_sets(f'{phase}_dataloader.dataset', loader.get('dataset'))
        if phase != 'train':
            yield from _listed(f'{phase}_evaluator', cfg.get(f'{phase}_evaluator'),
                               registry.METRICS)
    if 'train' in phases:
        optim = cfg.get('optim_wrapper') or {}
        if isinstance(optim, dict) and 'optimizer' in optim:
            yield 'optim_wrapper', optim, registry.OPTIM_WRAPPERS, {'constructor',
                                                                   'paramwise_cfg'}
            yield 'optim_wrapper.optimizer', optim['optimizer'], registry.OPTIMIZERS, set()
        yield from _listed('param_scheduler', cfg.get('param_scheduler'),
                           registry.PARAM_SCHEDULERS, {'convert_to_iter_based'})


def _listed(key: str, node: Any, kind: Any, given: set[str] | None = None
            ) -> Iterator[tuple[str, Any, Any, set[str]]]:
    many = isinstance(node, (list, tuple))
    for i, each in enumerate(node if many else [node]):
        yield f'{key}.{i}' if many else key, each, kind, given or set()


def _data_sets(key: str, node: Any) -> Iterator[tuple[str, Any, Any, set[str]]]:
    if not isinstance(node, dict):
        return
    yield key, node, registry.DATASETS, set()
    yield from _data_sets(f'{key}.dataset', node.get('dataset'))
    for i, child in enumerate(node.get('datasets') or []):
        yield from _data_sets(f'{key}.datasets.{i}', child)
    for i, step in enumerate(node.get('pipeline') or []):
        yield f'{key}.pipeline.{i}', step, registry.TRANSFORMS, set()


def _check_node(key: str, node: Any, kind: Any, given: set[str]) -> None:
    if isinstance(node, str):
        raise ValueError(f"{key}={node!r} must be a dict with a 'type'")
    if not isinstance(node, dict) or not isinstance(node.get('type'), str):
        return
    found = kind.get(node['type'])
    if kind.name == 'metric' and found is None:
        found = registry.EVALUATOR.get(node['type'])  # mmdet's MultiDatasetsEvaluator
    if found is None:
        near = suggest(node['type'].rpartition('.')[2], _names(kind))
        raise ValueError(f'{key}.type={node["type"]!r}: there is no such class{near}')
    accepted = accepted_arguments(found)
    if accepted is not None:
        _check_keys(key, node, accepted | given | _TAKEN | {'type'}, found.__name__)


def _check_keys(key: str, node: Any, accepted: set[str], owner: str) -> None:
    for name in node if isinstance(node, dict) else ():
        if name not in accepted:
            raise ValueError(f'{key}.{name}: {owner} has no argument {name!r}'
                             f'{suggest(name, sorted(accepted))}')


def _names(kind: Any) -> list[str]:
    """What a registry, its parents and children know by now."""
    while kind.parent is not None:
        kind = kind.parent
    known = {name for each in (kind, *kind.children.values()) for name in each.module_dict}
    return sorted(known.union(CLASSES.get(kind.name, ())))


def accepted_arguments(found: Any) -> set[str] | None:
    """Argument names of a class, with those that its bases get by ``**kwargs``; None: any."""
    if not hasattr(found, '__name__'):  # a partial function: its class is not known here
        return None
    if found.__name__ == 'CheckpointHook':  # it hands the others on when it saves
        return set(inspect.signature(found).parameters) | _SAVE_KEYS
    names: set[str] = set()
    for owner in inspect.getmro(found) if inspect.isclass(found) else [found]:
        function = owner.__dict__.get('__init__') if inspect.isclass(found) else found
        if function is None:
            continue
        if owner is object:
            return None
        parameters = inspect.signature(function).parameters.values()
        names |= {each.name for each in parameters}
        if all(each.kind is not each.VAR_KEYWORD for each in parameters):
            return names
    return None
