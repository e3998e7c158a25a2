"""Forms of layers whose work is no function of torch that a mode sees; each is put in front of the
class of its layer."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..functional.cells import over_valid_cells
from .extents import KeptOut, convolved

#: Heads whose ``forward`` maps maps to maps, by their names in a detector or segmentor.
HEADS = ('bbox_head', 'rpn_head', 'mask_head', 'decode_head', 'auxiliary_head')
#: mmcv's deformable convolutions that compute their steps themselves.
DEFORMABLE = ('DeformConv2dPack', 'ModulatedDeformConv2dPack')


def parts(model: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    """Modules of these names; those of a list one by one."""
    found = [getattr(model, name, None) for name in names]
    return [part for value in found if isinstance(value, nn.Module)
            for part in (value if isinstance(value, nn.ModuleList) else [value])]


def put_forms(model: nn.Module) -> None:
    """Put the forms in front of the classes of a model's layers, in place."""
    for module in model.modules():
        form: type[nn.Module] | None = None
        if type(module) is nn.SyncBatchNorm:
            form = SyncBatchNorm
        elif type(module).__name__ in DEFORMABLE:
            form = DeformableConv
        if form is not None:
            module.__class__ = derived(form, type(module))


def derived(first: type, cls: type) -> type:
    """A class of both, so that a module is changed in nothing but its class, and can be copied."""
    return type(cls.__name__, (first, cls), {'__module__': cls.__module__})


class SyncBatchNorm(nn.Module):
    """Of torch's, with the statistics of valid cells while processes share them. (One process calls
    ``F.batch_norm``.)"""

    def forward(self, input: Tensor) -> Tensor:
        kept = KeptOut.current()
        shared = self.training and dist.is_initialized() and dist.get_world_size() > 1
        if kept is None or not shared or kept.mask(input) is None:
            return super().forward(input)  # type: ignore[misc, no-any-return]
        extents = kept.extents(input)
        return kept.remember(over_valid_cells(super().forward, input, extents),  # type: ignore[misc]
                         extents)


class DeformableConv(nn.Module):
    """Of mmcv's deformable convolutions, with and without modulation, that see zeros beyond each
    image's cells, as they do beyond a map."""

    stride: Any
    padding: Any
    dilation: Any
    weight: Tensor

    def forward(self, x: Tensor) -> Tensor:
        kept = KeptOut.current()
        if kept is None:
            return super().forward(x)  # type: ignore[misc, no-any-return]
        extents = kept.extents(x)
        with torch._C.DisableTorchFunction():  # the form in PyTorch has functions that are refused
            out: Tensor = super().forward(kept.cleared(x))  # type: ignore[misc]
        return kept.remember(out, convolved(extents, self.weight.shape[2:], self.stride,
                                            self.padding, self.dilation))
