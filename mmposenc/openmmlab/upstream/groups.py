"""Learning rates and weight decay of drop-ins: those that the library's class gets from the same
config, decided by the names and modules of its parameters."""
from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

from mmengine.logging import MMLogger, print_log
from mmengine.optim import DefaultOptimWrapperConstructor, OptimWrapper
from torch import nn

from ...checkpoint.encoding_names import is_encoding_weight


def decide_by_upstream_names() -> None:
    """Change mmengine's DefaultOptimWrapperConstructor, and so every constructor, in all tools: the
    parameters of drop-ins are grouped as those of the library's classes."""
    call = DefaultOptimWrapperConstructor.__call__
    if hasattr(call, '__wrapped__'):
        return

    @wraps(call)
    def call_by_upstream_names(constructor: Any, model: nn.Module) -> OptimWrapper:
        model = getattr(model, 'module', model)
        drop_ins = {name: module for name, module in model.named_modules()
                    if hasattr(type(module), 'numbered_counterpart')}
        if constructor.paramwise_cfg and drop_ins:
            groups = _Groups(constructor, model, drop_ins).decided()
            constructor = copy.copy(constructor)
            constructor.add_params = lambda params, module: params.extend(groups)
        return call(constructor, model)
    DefaultOptimWrapperConstructor.__call__ = call_by_upstream_names


@contextmanager
def silent_log() -> Iterator[None]:
    """mmengine logs each parameter that it groups; here it would do it a second time."""
    logger = MMLogger.get_current_instance()
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)
        yield
    finally:
        logger.setLevel(level)


class _Groups:
    """The groups of a model's parameters.

    Args:
        constructor: any constructor of an optimizer's wrapper.
        model: a model.
        drop_ins: its drop-ins, by their names.
    """

    def __init__(self, constructor: Any, model: nn.Module, drop_ins: Mapping[str, Any]) -> None:
        self.names = {id(each): name for name, each in model.named_parameters()}
        #: By the name of a parameter here, that of the library's class.
        self.theirs: dict[str, nn.Parameter] = {}
        self.drop_ins = {f'{name}.' if name else '': module for name, module in drop_ins.items()}
        classes = {}
        for prefix, drop_in in self.drop_ins.items():
            classes[id(drop_in)], known = drop_in.numbered_counterpart()
            for each in classes[id(drop_in)].parameters():
                each.requires_grad_(False)
            for name, parameter in drop_in.named_parameters():
                if name in known:
                    self.theirs[prefix + name] = known[name]
                    known[name].requires_grad_(known[name].requires_grad
                                               or parameter.requires_grad)
        library_model = _with_in_place(model, classes)
        upstream: list[dict] = []
        here: list[dict] = []
        constructor.add_params(upstream, library_model)
        #: By a parameter's id.
        self.upstream = {id(each): group for group in upstream for each in group['params']}
        self.layer_wise = any('lr_scale' in group for group in upstream)
        if self.layer_wise:  # Of blocks it knows only the library's names.
            constructor = DefaultOptimWrapperConstructor(
                dict(optimizer=constructor.optimizer_cfg), constructor.paramwise_cfg)
        with silent_log():
            constructor.add_params(here, model)
        self.here = here
        #: Keys that name encodings by the names of this project.
        self.own_keys = []
        for key in constructor.paramwise_cfg.get('custom_keys') or ():
            own = [name for name in self.names.values() if _names(key, name)]
            if own and not any(_names(key, name) for name, _ in library_model.named_parameters()):
                if all(is_encoding_weight(name) for name in own):
                    self.own_keys.append(key)
                else:
                    print_log(f'custom_keys[{key!r}] names no parameter of the library, by whose '
                              f'names parameters such as {own[0]} are grouped', 'current',
                              logging.WARNING)

    def decided(self) -> list[dict]:
        """One group for each parameter that is trained."""
        groups, rates = [], {}
        for group in self.here:
            parameter, = group['params']
            name = self.names[id(parameter)]
            counterpart = self.theirs.get(name, parameter)
            settings = self.upstream.get(id(counterpart))
            if settings is not None and 'lr_scale' in settings:
                rates[self._depth(name)] = settings
            groups.append((name, group, settings))
        return [self._one(*each, rates) for each in groups]

    def _one(self, name: str, here: dict, upstream: dict | None, rates: Mapping[Any, dict]) -> dict:
        """The group of one parameter, given those of both models."""
        settings = upstream
        if settings is None or any(_names(key, name) for key in self.own_keys):
            settings = dict(here)
            if upstream is None and self.layer_wise and is_encoding_weight(name) and (
                    'decay_mult' not in here):
                settings['weight_decay'] = 0.0
            if self.layer_wise:
                rate = upstream or rates.get(self._depth(name), {})
                settings |= {key: rate[key] for key in ('lr', 'lr_scale') if key in rate}
        return {**{key: value for key, value in settings.items() if key != 'param_names'},
                'params': here['params']}

    def _depth(self, name: str) -> tuple[str, int]:
        """The backbone that a parameter belongs to, and its depth there."""
        prefix = next((each for each in self.drop_ins if name.startswith(each)), None)
        return ('', -1) if prefix is None else (
            prefix, self.drop_ins[prefix].get_layer_depth(name, prefix)[0])


def _names(key: str, parameter: str) -> bool:
    """Whether a key of custom_keys names a parameter, as mmengine understands it."""
    return key in (parameter if '.' in parameter else f'.{parameter}')


def _with_in_place(model: nn.Module, parts: Mapping[int, nn.Module]) -> nn.Module:
    """A model with other modules in place of some, by their ids. It shares all else with the model,
    which stays as it is."""
    if id(model) in parts:
        return parts[id(model)]
    children = {name: child if child is None else _with_in_place(child, parts)
                for name, child in model._modules.items()}
    if all(child is model._modules[name] for name, child in children.items()):
        return model
    changed = copy.copy(model)
    vars(changed)['_modules'] = children
    return changed
