"""Backbones of which only a part is trained."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from ..encodings.base import RelativeEncoding, TokenEncoding
from .lora import add_lora

DTYPES = (None, 'bfloat16')


class Freezing:
    """Gives a backbone ``train``, ``trainable``, ``lora`` and ``frozen_dtype``.

    It has ``_freeze``, which calls :func:`freeze` with what its ``frozen_stages`` cover.
    """

    frozen_stages: int
    #: Parts of names of parameters that are trained though their stage is frozen.
    trainable: tuple[str, ...] = ()
    #: What frozen blocks keep their matrices and compute in; None: as the others.
    frozen_dtype: str | None = None

    def _start_freezing(self, blocks: Sequence[nn.Module], trainable: Sequence[str],
                        lora: dict[str, Any] | None, frozen_dtype: str | None) -> None:
        """Check and set the options, and freeze; ``blocks`` is all that ``frozen_stages`` count.

        Raises:
            ValueError: for a dtype there is not, a name that nothing has, or nothing frozen.
            ImportError: for ``lora`` without peft.
        """
        assert isinstance(self, nn.Module)
        for name, value in (('trainable', tuple(trainable)), ('lora', lora),
                            ('frozen_dtype', frozen_dtype)):
            if value and self.frozen_stages < 0:
                raise ValueError(f'{name}={value!r} with frozen_stages=-1: nothing is frozen; set '
                                 f'frozen_stages')
        if frozen_dtype not in DTYPES:
            raise ValueError(f'frozen_dtype={frozen_dtype!r} must be one of {DTYPES}')
        for part in trainable:
            if not part or not any(part in name for name, _ in self.named_parameters()):
                raise ValueError(f'trainable={tuple(trainable)}: {part!r} is in the name of no '
                                 f'parameter; such a name is '
                                 f'{next(name for name, _ in self.named_parameters())!r}')
        self.trainable, self.frozen_dtype = tuple(trainable), frozen_dtype
        frozen = list(blocks[:self.frozen_stages]) if self.frozen_stages > 0 else []
        if lora is not None:
            add_lora(self, frozen, **lora)
            self.trainable += ('.lora_',)
        self._freeze()
        if frozen_dtype is not None:
            for block in frozen:
                _store_matrices(block, getattr(torch, frozen_dtype))

    def _precision(self, stage: int, x: torch.Tensor) -> AbstractContextManager[Any]:
        """What a stage is computed in."""
        if self.frozen_dtype is None or stage >= self.frozen_stages:
            return nullcontext()
        return torch.autocast(x.device.type, getattr(torch, self.frozen_dtype))

    def _full(self, x: torch.Tensor, stage: int) -> torch.Tensor:
        """What a stage gives, in float32 where it was computed in less."""
        return x if self.frozen_dtype is None or stage >= self.frozen_stages else x.float()

    def _freeze(self) -> None:
        raise NotImplementedError

    def train(self, mode: bool = True) -> Any:
        """Set the mode; what is frozen stays in evaluation."""
        super().train(mode)  # type: ignore[misc]
        self._freeze()
        return self


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


def _store_matrices(module: nn.Module, dtype: torch.dtype) -> None:
    """Weights of linear layers and convolutions that are not trained; encodings stay as they are,
    which compute positions in full precision."""
    if isinstance(module, (RelativeEncoding, TokenEncoding)):
        return
    if isinstance(module, (nn.Linear, nn.Conv2d)) and not module.weight.requires_grad:
        module.weight.data = module.weight.data.to(dtype)
    for child in module.children():
        _store_matrices(child, dtype)
