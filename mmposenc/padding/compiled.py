"""Compiles backbone, neck and head of a model without padding into one graph for all batches."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .extents import KeptOut
from .images import CELL
from .layers import HEADS, parts
from .masked import Steps, all_reached, shrunk
from .models import NETWORKS, MapHead, PaddingFree, note_maps

#: Classes whose functions have a form in :mod:`.masked`, for image sizes in a tensor.
FORMED = {f'{cls.__module__}.{cls.__qualname__}' for name in """
Conv2d BatchNorm2d MaxPool2d Sequential ModuleList ModuleDict Identity Dropout Dropout2d ReLU ReLU6
LeakyReLU PReLU ELU GELU SiLU Mish Sigmoid Hardsigmoid Hardswish Tanh Softplus
""".split() for cls in [getattr(nn, name)]} | {f'{module}.{name}' for module, names in {
    'mmengine.model.base_module': 'Sequential ModuleList ModuleDict',
    'mmcv.cnn.bricks.wrappers': 'Conv2d MaxPool2d',
    'mmcv.cnn.bricks.conv_module': 'ConvModule',
    'mmcv.cnn.bricks.depthwise_separable_conv_module': 'DepthwiseSeparableConvModule',
    'mmcv.cnn.bricks.activation': 'Clamp GELU',
    'mmcv.cnn.bricks.hswish': 'HSwish',
    'mmcv.cnn.bricks.hsigmoid': 'HSigmoid',
    'mmcv.cnn.bricks.swish': 'Swish',
    'mmcv.cnn.bricks.scale': 'Scale LayerScale',
    'mmcv.cnn.bricks.drop': 'Dropout',
    'mmdet.models.layers.res_layer': 'ResLayer SimplifiedBasicBlock',
    'mmdet.models.backbones.resnet': 'BasicBlock Bottleneck ResNet',
    'mmdet.models.backbones.resnext': 'Bottleneck',
    'mmdet.models.necks.fpn': 'FPN',
    'mmdet.models.dense_heads.retina_head': 'RetinaHead'}.items() for name in names.split()}


def compile_networks(model: nn.Module, **options: Any) -> list[nn.Module]:
    """Compile the networks of a model that see a whole batch: backbone, neck and the head's maps.

    They become one graph if each layer has a form for image sizes in a tensor (:data:`FORMED`). A
    backbone of this project is not part of it; its blocks are compiled separately. Since image
    sizes are a tensor, the graph is valid for all batches; with ``dynamic=True`` also height and
    width of the batch are symbols.

    Args:
        model: a model changed by :func:`keep_padding_out`; it is changed in place.
        options: options of ``torch.compile``.

    Returns:
        The networks in the graph. If a layer of backbone, neck or a head with BatchNorms has no
        such form, the list is empty and the model is not changed. A compiled model keeps its graph.
    """
    if not isinstance(model, PaddingFree):
        return []
    if model.compiled is not None:
        return model.compiled.networks
    networks = [part for part in parts(model, NETWORKS) if not hasattr(part, 'mask_padding')]
    # In training, a head with BatchNorms sees the whole batch, so it must be in the graph.
    heads = [head for head in parts(model, HEADS)
             if isinstance(head, MapHead) or not _left_out(head)]
    if any(_left_out(part) for part in networks + heads) or not networks + heads:
        return []
    for head in heads:
        note_maps(head)
    model.compiled = _Compiled(torch.compile(_seen, **options), networks + heads)
    return model.compiled.networks


class _Compiled:
    """Calls the graph, and records which cells of its maps are valid.

    The graph gets the size of the batch in cells of :data:`.images.CELL` pixels, so that a map of
    stride 2 has 16 times as many. From pixels the sizes would be nested roundings, for which the
    compiler takes very long.
    """

    def __init__(self, seen: Callable[..., Any], networks: list[nn.Module]) -> None:
        self.seen, self.networks = seen, networks

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy of the model, such as an EMA's, is not compiled

    def __call__(self, model: Any, batch: Tensor, inputs: Any, kept: KeptOut
                 ) -> tuple[Sequence[Tensor], dict[int, Any]]:
        heads = [head for head in parts(model, HEADS) if isinstance(head, MapHead)]
        whole = isinstance(inputs, Tensor)  # the backbone is in the graph
        strides = None if whole else tuple(model.backbone.strides)
        cells = batch.unflatten(3, (-1, CELL)).unflatten(2, (-1, CELL))
        images = torch.tensor(kept.images).to(batch.device, non_blocking=True)
        maps, outs, steps = self.seen(model, heads, cells, None if whole else inputs, images,
                                       strides)
        for level, each in zip(maps, steps, strict=True):
            kept.remember(level, all_reached(kept.images, each))
        return maps, {id(head): out for head, out in zip(heads, outs, strict=True)}


def _seen(model: Any, heads: list[nn.Module], cells: Tensor, inputs: Any, images: Tensor,
          strides: tuple[int, ...] | None) -> tuple[Sequence[Tensor], list[Any], list[Steps]]:
    """Maps of backbone and neck, maps of the heads, and the steps to the maps of the neck."""
    assert cells.shape[3] == cells.shape[5] == CELL  # tells the compiler these two sizes
    batch = cells.flatten(4).flatten(2, 3)
    inputs = batch if strides is None else inputs
    kept = KeptOut(images, (batch.shape[-2], batch.shape[-1]))
    if strides is not None:
        for level, side in zip(inputs, strides, strict=True):
            kept.remember(level, shrunk(side))
    with kept:
        maps = model.network_maps(inputs)
        outs = [head(maps) for head in heads]
    return maps, outs, [kept.cells_of(level) for level in maps]


def _left_out(network: nn.Module) -> bool:
    """Whether a layer of a network has no form for image sizes in a tensor, or is recomputed. A
    class that inherits ``forward`` from a class with a form has that form."""
    again = any(getattr(layer, 'with_cp', False) for layer in network.modules())
    resized = getattr(network, 'upsample_cfg', None) or {'mode': 'nearest'}
    # Losses are not applied to maps.
    layers = [type(part) for key, part in network.named_modules()
              if not any(name.startswith('loss') for name in key.split('.'))]
    return again or resized != {'mode': 'nearest'} or not all(any(
        f'{base.__module__}.{base.__qualname__}' in FORMED and base.forward is layer.forward
        for base in layer.__mro__ if issubclass(base, nn.Module)) for layer in layers)
