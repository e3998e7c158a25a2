"""Parts of a backbone that are not trained."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from ..encodings.base import RelativeEncoding, TokenEncoding


def freeze(backbone: nn.Module, modules: Iterable[nn.Module],
           parameters: Iterable[nn.Parameter] = (), trainable: Sequence[str] = ()) -> None:
    """Take gradients from modules and parameters and put the modules into evaluation, except for
    what ``trainable`` names: that trains, in the backbone's mode.

    Args:
        backbone: whose names ``trainable`` means.
        modules, parameters: parts of it.
        trainable: parts of names.
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


def store_matrices(module: nn.Module, dtype: torch.dtype) -> None:
    """Weights of linear layers and convolutions that are not trained; encodings stay as they are,
    which compute positions in full precision."""
    if isinstance(module, (RelativeEncoding, TokenEncoding)):
        return
    if isinstance(module, (nn.Linear, nn.Conv2d)) and not module.weight.requires_grad:
        module.weight.data = module.weight.data.to(dtype)
    for child in module.children():
        store_matrices(child, dtype)
