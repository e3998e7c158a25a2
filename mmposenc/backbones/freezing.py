"""Freezes parts of a backbone."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import nn


def freeze(backbone: nn.Module, modules: Iterable[nn.Module],
           parameters: Iterable[nn.Parameter] = (), trainable: Sequence[str] = ()) -> None:
    """Freeze modules and parameters: no gradients, and modules in evaluation mode. Parameters named
    in ``trainable`` are trained, and their modules keep the backbone's mode.

    Args:
        backbone: the backbone.
        modules, parameters: parts of it to freeze.
        trainable: parts of names of parameters in the backbone.
    """
    def trains(name: str) -> bool:
        return any(part in name for part in trainable)

    modules = list(modules)
    parts = {id(part) for module in modules for part in module.modules()}
    frozen = {id(parameter) for parameter in parameters}
    for module in modules:
        module.eval()
        frozen |= {id(parameter) for parameter in module.parameters()}
    for name, parameter in backbone.named_parameters():
        if id(parameter) in frozen:
            parameter.requires_grad_(trains(name))
    for name, module in backbone.named_modules() if trainable else ():
        if id(module) in parts and trains(name):
            module.training = backbone.training
