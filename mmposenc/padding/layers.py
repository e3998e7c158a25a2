"""Layers that mask padding themselves, in an :class:`~.context.IgnorePadding`: one hook tells the
layer what is padding, another tells the context which cells of the layer's maps are valid."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..functional.cells import Extents
from ..functional.grids import whole_cells
from ..functional.tracing import is_compiling
from .context import IgnorePadding, convolved_extents

#: What a layer that masks padding gets: its arguments, and the valid cells of its maps.
Masked = tuple[tuple[object, ...], dict[str, object], list[Extents]]


def arguments_of_own_backbone(context: IgnorePadding, layer: Any, batch: Tensor,
                              **kwargs: object) -> Masked:
    """Give a backbone with ``mask_padding=True`` the sizes of the images."""
    extents = [[(whole_cells(rows, stride), whole_cells(cols, stride))
                for rows, cols in context.images] for stride in layer.strides]
    return (batch,), {**kwargs, 'img_shapes': context.images}, extents


def arguments_of_hybrid_encoder(context: IgnorePadding, layer: Any, inputs: Sequence[Tensor],
                                padding_mask: Tensor | None = None) -> Masked:
    """Give RT-DETR's neck the mask of its finest map."""
    return (inputs, context.mask(inputs[0])), {}, [context.extents(x) for x in inputs]


def arguments_of_deformable_conv(context: IgnorePadding, layer: Any, x: Tensor) -> Masked:
    """Let mmcv's deformable convolutions, which read zeros outside of a map, read zeros on padding
    too."""
    extents = convolved_extents(context.extents(x), layer.weight.shape[2:], layer.stride,
                                layer.padding, layer.dilation)
    return (context.cleared(x),), {}, [extents]


#: For the names of layers' classes, the function that tells the layer what is padding. (mmcv's
#: layers compute their offsets themselves.)
MASKING: dict[str, Callable[..., Masked]] = {
    'HybridEncoder': arguments_of_hybrid_encoder, 'DeformConv2dPack': arguments_of_deformable_conv,
    'ModulatedDeformConv2dPack': arguments_of_deformable_conv}


def hide_padding_from_layers(model: nn.Module) -> None:
    """Register hooks on a model's layers of these classes, and on its backbone if it is one of this
    project."""
    backbone = getattr(model, 'backbone', None)
    for layer in model.modules():
        mask = MASKING.get(type(layer).__name__)
        if layer is backbone and hasattr(layer, 'mask_padding'):
            mask = arguments_of_own_backbone
        if mask is not None:
            layer.register_forward_pre_hook(partial(_hide_padding_from_layer, mask),
                                            with_kwargs=True)
            layer.register_forward_hook(_record_extents)


def _hide_padding_from_layer(mask: Callable[..., Masked], layer: nn.Module,
                             args: tuple[object, ...], kwargs: dict[str, object]
                             ) -> tuple[tuple[object, ...], dict[str, object]] | None:
    """Tell a layer what is padding. Until it returns, torch's functions read everything."""
    context = None if is_compiling() else IgnorePadding.current()
    if context is None or context.masking_layer is not None:
        return None
    args, kwargs, extents = mask(context, layer, *args, **kwargs)
    context.masking_layer = (layer, extents)
    return args, kwargs


def _record_extents(layer: nn.Module, args: object, out: object) -> object:
    """Record the valid cells of the maps that a layer returned."""
    context = None if is_compiling() else IgnorePadding.current()
    if context is None or context.masking_layer is None or context.masking_layer[0] is not layer:
        return None
    extents, context.masking_layer = context.masking_layer[1], None
    maps, structure = tree_flatten(out)
    return tree_unflatten([context.with_extents(x, cells)
                           for x, cells in zip(maps, extents, strict=True)], structure)
