"""Which arguments a class takes, with those that it hands on to its bases."""
from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any


def parameters_of(found: Any) -> dict[str, Parameter]:
    """The parameters of a class or function by name.

    Where a constructor takes ``**options``, those of the next base follow. What is still open at
    the last base, or in a function, stands there as it is (``Parameter.VAR_KEYWORD``).
    """
    if '__signature__' in vars(found):  # of a backbone, and of one under a library's name
        return dict(inspect.signature(found).parameters)
    parameters: dict[str, Parameter] = {}
    for owner in inspect.getmro(found) if inspect.isclass(found) else [found]:
        function = vars(owner).get('__init__') if inspect.isclass(found) else found
        if function is None:
            continue
        options = [name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD]
        for name in options:
            del parameters[name]
        own = inspect.signature(function).parameters.items()
        parameters |= {name: each for name, each in own if name not in parameters
                       and name != 'self' and each.kind is not each.VAR_POSITIONAL}
        if all(each.kind is not each.VAR_KEYWORD for each in parameters.values()):
            break
    return parameters


def accepted_arguments(found: Any) -> set[str] | None:
    """The names of the arguments that a class or function takes; None: any."""
    if not hasattr(found, '__name__'):  # a partial function: its class is not known here
        return None
    parameters = parameters_of(found)
    is_open = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return None if is_open else set(parameters)
