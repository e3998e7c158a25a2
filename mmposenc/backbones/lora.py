"""Adds LoRA (low-rank matrices that are trained) to frozen blocks, by the package peft."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

TARGET = ('qkv', 'q', 'kv')
_BASE = '.base_layer.'


def add_lora(backbone: nn.Module, blocks: Sequence[nn.Module], *, r: int,
             target: Sequence[str] = TARGET, **options: Any) -> None:
    """Add ``x A^T B^T * alpha / r`` to linear layers (LoRA, Hu et al., ICLR 2022, Eq. 3) by peft. B
    starts at zero, so outputs do not change at first.

    In the state dict the layers keep their names; the matrices are ``lora_A`` and ``lora_B`` next
    to ``weight``. Pretrained files load as without LoRA.

    Args:
        backbone: the backbone.
        blocks: parts of it that get the matrices.
        r: rank.
        target: endings of the names of linear layers.
        options: further arguments of ``peft.LoraConfig``, such as ``lora_alpha`` (8) and
            ``lora_dropout`` (0).

    Raises:
        ImportError: peft is not installed; it says how to install it.
        ValueError: no linear layer has such a name.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ImportError(f"lora=... needs peft: pip install peft 'transformers<5' "
                          f'({error})') from error
    inside = {id(module) for block in blocks for module in block.modules()}
    ends = tuple(f'.{end}' for end in target)
    names = [name for name, module in backbone.named_modules() if id(module) in inside
             and isinstance(module, nn.Linear) and f'.{name}'.endswith(ends)]
    if not names:
        raise ValueError(f'lora.target={tuple(target)}: no linear layer of a frozen block has a '
                         f'name with such an ending')
    trained = {name: p.requires_grad for name, p in backbone.named_parameters()}
    inject_adapter_in_model(LoraConfig(r=r, target_modules=names, **options), backbone)
    # peft has frozen all other parameters, so what was trained before is set to be trained again.
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_(trained.get(name.replace(_BASE, '.'), True))
    # Weights are saved and loaded under the names that they have in a model without LoRA.
    backbone.register_state_dict_post_hook(_save_without_base)
    backbone.register_load_state_dict_pre_hook(_load_with_base)


@torch.no_grad()
def merge_lora(model: nn.Module) -> None:
    """Add the low-rank matrices to the weights and remove them: the model then has the names and
    the speed of a model without LoRA.

    Args:
        model: a backbone, or a model with one; it is changed in place.
    """
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if hasattr(child, 'get_base_layer') and hasattr(child, 'merge'):
                child.merge()
                setattr(module, name, child.get_base_layer())


def _save_without_base(module: nn.Module, state: dict[str, Tensor], prefix: str, _: object) -> None:
    for key in list(state):  # All keys are moved, so that their order stays the same.
        value = state.pop(key)
        state[key.replace(_BASE, '.') if key.startswith(prefix) else key] = value


def _load_with_base(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    wrapped = [prefix + name for name, child in module.named_modules()
               if hasattr(child, 'base_layer')]
    for name in wrapped:
        for key in [key for key in state if key.startswith(f'{name}.')]:
            rest = key[len(name) + 1:]
            if not rest.startswith(('lora_', 'base_layer.')):
                state[f'{name}{_BASE}{rest}'] = state.pop(key)
