"""Distributes weights over processes (FSDP2), for backbones that do not fit on one device."""
from __future__ import annotations

import os
from collections.abc import Callable

import torch
from mmengine._strategy import DDPStrategy
from mmengine.device import get_device
from mmengine.dist import is_main_process
from mmengine.runner import FlexibleRunner as _FlexibleRunner
from torch import distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict as sharded
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from mmposenc.compat.deterministic import deterministic_forms
from mmposenc.encodings import RelativeEncoding

from .processes import join_on_a_cpu, synchronize_norms

_WHOLE = sharded.StateDictOptions(full_state_dict=True, cpu_offload=True)
_SPREAD = sharded.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


def shard(model: nn.Module, min_parameters: int = 1_000_000) -> nn.Module:
    """Spreads the weights of a model over all processes, block by block.

    Every member of a ``ModuleList`` or ``Sequential`` with so many parameters is gathered and freed
    by itself: the blocks of a transformer, those of a ResNet. Single layers, sequences of them and
    relative encodings are gathered with what they are part of.

    Args:
        model: with the same weights in all processes, on its device; changed in place.
        min_parameters: smaller modules are gathered with what they are part of.
    """
    mesh = init_device_mesh(get_device(), (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # Modules inside others come first.
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            for child in module:
                if _is_called_before_use(child) and (
                        sum(p.numel() for p in child.parameters()) >= min_parameters):
                    fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _is_called_before_use(module: nn.Module) -> bool:
    """Whether all uses of a module's weights lie within a call of the module, which is what gathers
    them.

    Not of a layer whose owner reads its weights (a feed-forward network by rows, a PEG), of a
    relative encoding, which is asked for terms, or of branches that a head runs for every layer.
    """
    return (any(True for _ in module.children())
            and not isinstance(module, (nn.ModuleList, nn.Sequential, RelativeEncoding))
            # The same module may be in two lists, and is sharded only once.
            and not isinstance(module, FSDPModule))


class FlexibleRunner(_FlexibleRunner):
    """mmengine's FlexibleRunner without its error: its ``deterministic`` reads an attribute that is
    never set."""

    @property
    def deterministic(self) -> bool:
        return bool((self.cfg.get('randomness') or {}).get('deterministic', False))

    def train(self) -> nn.Module:
        if self.deterministic:
            torch.use_deterministic_algorithms(True)
        with deterministic_forms():
            return super().train()


class FSDP2Strategy(DDPStrategy):
    """FSDP2 for mmengine's ``FlexibleRunner`` (mmengine's own strategy is FSDP1).

    Checkpoints are whole, as those of one process, and load in any number of them.

    Args:
        min_parameters: see :func:`shard`.
        **kwargs: to mmengine's DDPStrategy.
    """

    def __init__(self, *, min_parameters: int = 1_000_000, **kwargs: object) -> None:
        self.min_parameters = min_parameters
        super().__init__(**kwargs)

    def _setup_distributed(self, launcher: str = 'pytorch', backend: str = 'nccl', **kwargs: object
                           ) -> None:
        if get_device() != 'cpu':
            super()._setup_distributed(launcher, backend, **kwargs)
        else:
            join_on_a_cpu(launcher, kwargs.get('timeout'))

    def _wrap_model(self, model: nn.Module) -> nn.Module:
        if not dist.is_initialized():
            raise ValueError('FSDP2Strategy needs several processes: start it by '
                             'torchrun (docs/scale.md), with --launcher pytorch')
        model = synchronize_norms(self.convert_model(model.to(get_device())))
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor, 0)
        return shard(model, self.min_parameters)

    def model_state_dict(self) -> dict:
        return sharded.get_model_state_dict(self.model, options=_WHOLE)

    def optim_state_dict(self) -> dict:
        return sharded.get_optimizer_state_dict(self.model, self.optim_wrapper.optimizer,
                                                options=_WHOLE)

    def load_model_state_dict(self, state_dict: dict, *, strict: bool = True, **kwargs: object
                              ) -> None:
        options = sharded.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True,
                                           strict=strict)
        sharded.set_model_state_dict(self.model, state_dict, options=options)

    def load_optim_state_dict(self, state_dict: dict) -> None:
        sharded.set_optimizer_state_dict(self.model, self.optim_wrapper.optimizer, state_dict,
                                         options=_SPREAD)

    def save_checkpoint(self, filename: str, *, callback: Callable | None = None, **options: object
                        ) -> None:
        """Gather the weights of all processes; the first process writes them."""
        writes = is_main_process()
        super(DDPStrategy, self).save_checkpoint(
            filename if writes else os.devnull, callback=callback if writes else None, **options)
        dist.barrier()
