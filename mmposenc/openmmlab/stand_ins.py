"""A module with others in place of some of its children, for one call of code that hands nothing
down to them. It shares all else with the module, which stays as it is for other threads."""
from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TypeVar

from torch import Tensor, nn

_Module = TypeVar('_Module', bound=nn.Module)


def with_children(module: _Module, children: Mapping[str, object]) -> _Module:
    """A module with these children, or what is called as they are, in place of its own."""
    changed = copy.copy(module)
    vars(changed)['_modules'] = {**module._modules, **children}
    return changed


def with_output(module: _Module, change: Callable[[Tensor], Tensor]) -> _Module:
    """A module whose output is changed by a function of it."""
    changed = copy.copy(module)
    vars(changed)['_forward_hooks'] = type(module._forward_hooks)(module._forward_hooks)
    changed.register_forward_hook(lambda _, args, out: change(out))
    return changed
