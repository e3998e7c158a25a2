"""Forms of layers that do not call torch functions which a mode can replace; each is a mixin before
the class of its layer."""
from __future__ import annotations

import copyreg
from abc import ABCMeta
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..functional.cells import over_valid_cells
from .extents import KeptOut, convolved

#: Attributes of a detector or segmentor that hold heads whose ``forward`` maps maps to maps.
HEADS = ('bbox_head', 'rpn_head', 'mask_head', 'decode_head', 'auxiliary_head')
#: mmcv's deformable convolutions that compute their offsets themselves.
DEFORMABLE = ('DeformConv2dPack', 'ModulatedDeformConv2dPack')


def parts(model: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    """The modules in these attributes; a list of modules gives each of them."""
    found = [getattr(model, name, None) for name in names]
    return [part for value in found if isinstance(value, nn.Module)
            for part in (value if isinstance(value, nn.ModuleList) else [value])]


def put_forms(model: nn.Module) -> None:
    """Replace the classes of a model's layers by classes with these forms, in place."""
    for module in model.modules():
        form: type[nn.Module] | None = None
        if type(module) is nn.SyncBatchNorm:
            form = SyncBatchNorm
        elif type(module).__name__ in DEFORMABLE:
            form = DeformableConv
        elif type(module).__name__ == 'HybridEncoder':
            form = HybridEncoder
        if form is not None:
            module.__class__ = derived(form, type(module))


def derived(first: type, cls: type) -> type:
    """A class that inherits from both: only the class of a module changes, and it can be copied and
    pickled."""
    return _Derived(cls.__name__, (first, cls), {'__module__': cls.__module__})


class _Derived(ABCMeta):
    """The class of such classes, which are pickled as the two that they inherit from."""


def _reduced(cls: Any) -> Any:
    return derived, cls.__bases__


copyreg.pickle(_Derived, _reduced)


class SyncBatchNorm(nn.Module):
    """The form of torch's SyncBatchNorm: statistics of valid cells over all processes. (A single
    process calls ``F.batch_norm``.)"""

    def forward(self, input: Tensor) -> Tensor:
        kept = KeptOut.current()
        shared = self.training and dist.is_initialized() and dist.get_world_size() > 1
        if kept is None or not shared or kept.mask(input) is None:
            return super().forward(input)  # type: ignore[misc, no-any-return]
        extents = kept.extents(input)
        return kept.remember(over_valid_cells(super().forward, input, extents),  # type: ignore[misc]
                         extents)


class DeformableConv(nn.Module):
    """The form of mmcv's deformable convolutions, with and without modulation: they read zeros on
    padding, as they do outside of a map."""

    stride: Any
    padding: Any
    dilation: Any
    weight: Tensor

    def forward(self, x: Tensor) -> Tensor:
        kept = KeptOut.current()
        if kept is None:
            return super().forward(x)  # type: ignore[misc, no-any-return]
        extents = kept.extents(x)
        with torch._C.DisableTorchFunction():  # the form in PyTorch uses refused functions
            out: Tensor = super().forward(kept.cleared(x))  # type: ignore[misc]
        return kept.remember(out, convolved(extents, self.weight.shape[2:], self.stride,
                                            self.padding, self.dilation))


class HybridEncoder(nn.Module):
    """The form of this project's neck that takes a mask."""

    def forward(self, inputs: Sequence[Tensor], padding_mask: Tensor | None = None
                ) -> tuple[Tensor, ...]:
        kept = KeptOut.current()
        if kept is None:
            return super().forward(inputs, padding_mask)  # type: ignore[misc, no-any-return]
        mask = kept.mask(inputs[0])
        with torch._C.DisableTorchFunction():
            return super().forward(inputs, mask)  # type: ignore[misc, no-any-return]
