"""Learning rates and weight decay of drop-ins: the constructor of a config groups the library's
class, which holds the parameters of the drop-in, so names and modules are the library's.

Importing this module changes every constructor of the process, in all tools.
"""
from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any

from mmengine.optim import DefaultOptimWrapperConstructor, OptimWrapper
from torch import nn

from ...checkpoint.encoding_names import is_encoding_weight
from ..logs import quiet_log
from ..stand_ins import with_children

_call = DefaultOptimWrapperConstructor.__call__


def call_by_upstream_names(constructor: Any, model: nn.Module) -> OptimWrapper:
    """Replaces mmengine's ``__call__``, which every constructor of an optimizer's wrapper has."""
    model = getattr(model, 'module', model)
    drop_ins = {f'{name}.' if name else '': module for name, module in model.named_modules()
                if hasattr(type(module), 'numbered_counterpart')}
    if constructor.paramwise_cfg and drop_ins:
        groups = _groups(constructor, model, drop_ins)
        constructor = copy.copy(constructor)
        constructor.add_params = lambda params, module: params.extend(groups)
    return _call(constructor, model)


def groups_without_log(constructor: Any, model: nn.Module) -> list[dict]:
    """The groups that a constructor makes, without a line in the log for each parameter."""
    groups: list[dict] = []
    with quiet_log(logging.WARNING):
        constructor.add_params(groups, model)
    return groups


def _groups(constructor: Any, model: nn.Module, drop_ins: Mapping[str, Any]) -> list[dict]:
    """The groups of a model's parameters, given its drop-ins by their prefixes.

    What the library does not have is grouped by its name here. Where the constructor has rates for
    layers, which it knows by the library's names, it has the rate of its block, and encodings have
    no weight decay unless a key gives them one.
    """
    keys = constructor.paramwise_cfg.get('custom_keys') or {}
    classes, depths, new = {}, {}, {}
    parts: dict[nn.Parameter, list[nn.Parameter]] = {}
    rates: dict[tuple[str, int], dict[str, float]] = {}
    for prefix, drop_in in drop_ins.items():
        theirs, known = drop_in.numbered_counterpart()
        weights = dict(drop_in.named_parameters())
        held: dict[nn.Parameter, list[nn.Parameter]] = {}
        # A key that can only mean encodings by their names here means these.
        own = [key for key in keys if not any(
            key in prefix + name for name, _ in theirs.named_parameters()) and all(
            is_encoding_weight(name) for name in weights if key in prefix + name)]
        for name, parameter in weights.items():
            depths[parameter] = prefix, drop_in.get_layer_depth(prefix + name, prefix)[0]
            if name in known and not any(key in prefix + name for key in own):
                held.setdefault(known[name], []).append(parameter)
            else:
                new[parameter] = name
        for module in theirs.modules():
            module._parameters = {name: held[each][0] for name, each in module._parameters.items()
                                  if each in held}
        classes[id(drop_in)] = theirs
        parts |= {first: others for first, *others in held.values()}
    groups: list[dict] = []
    constructor.add_params(groups, _with_in_place(model, classes))
    for group in groups:
        group.pop('param_names', None)  # torch wants one for each.
        group['params'] += [part for each in group['params'] for part in parts.get(each, ())]
        rates |= {depths[each]: {'lr': group['lr'], 'lr_scale': group['lr_scale']}
                  for each in group['params'] if each in depths and 'lr_scale' in group}
    if rates:
        constructor = DefaultOptimWrapperConstructor(
            dict(optimizer=constructor.optimizer_cfg), constructor.paramwise_cfg)
    for group in groups_without_log(constructor, model):
        if (name := new.get(each := group['params'][0])) is not None:
            if rates and is_encoding_weight(name) and 'decay_mult' not in group:
                group['weight_decay'] = 0.0
            groups.append(group | rates.get(depths[each], {}))
    return groups


def _with_in_place(model: nn.Module, parts: Mapping[int, nn.Module]) -> nn.Module:
    """A model with other modules in place of some, by their ids. It shares all else with the model,
    which stays as it is."""
    if id(model) in parts:
        return parts[id(model)]
    children = {name: child if child is None else _with_in_place(child, parts)
                for name, child in model._modules.items()}
    if all(child is model._modules[name] for name, child in children.items()):
        return model
    return with_children(model, children)


DefaultOptimWrapperConstructor.__call__ = call_by_upstream_names
