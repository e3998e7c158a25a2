"""Tells which arguments a class takes, including those that it hands on to its bases."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any


def parameters_of(target: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a class or function by name.

    Where a constructor takes ``**options``, those of the next base follow. A base that checks its
    options itself says by a class method ``option_parameters`` which they are. What is still open
    at the last base, or in a function, is there as it is (``Parameter.VAR_KEYWORD``).
    """
    parameters: dict[str, Parameter] = {}
    for owner in inspect.getmro(target) if inspect.isclass(target) else [target]:
        further = _parameters_at(target, owner)
        if further is None:
            continue
        options = [name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD]
        for name in options:
            del parameters[name]
        parameters |= {name: each for name, each in further.items() if name not in parameters
                       and name != 'self' and each.kind is not each.VAR_POSITIONAL}
        if all(each.kind is not each.VAR_KEYWORD for each in parameters.values()):
            break
    return parameters


def _parameters_at(target: Any, owner: Any) -> Mapping[str, Parameter] | None:
    """What one class in the order of resolution says about the arguments; None if it says nothing.
    """
    if not inspect.isclass(owner):
        return inspect.signature(owner).parameters
    if 'option_parameters' in vars(owner):
        described: Mapping[str, Parameter] = target.option_parameters()
        return described
    constructor = vars(owner).get('__init__')
    return None if constructor is None else inspect.signature(constructor).parameters


def accepted_arguments(target: Any) -> set[str] | None:
    """The names of the arguments that a class or function takes; None: any."""
    # This is a partial function, whose class is not known here.
    if not hasattr(target, '__name__'):
        return None
    parameters = parameters_of(target)
    is_open = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return None if is_open else set(parameters)
