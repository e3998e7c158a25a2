"""Backbone, neck and head of a model that padding is kept out of, as one graph for all batches."""
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

#: Classes whose functions have forms for a tensor of sizes (:mod:`.masked`).
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
    """Compile what of a model :func:`~mmposenc.padding.keep_padding_out` lets see a whole batch.

    That is backbone, neck and the head's maps, in one graph, if every layer of them has a form that
    looks at no number (:data:`FORMED`); a backbone of this project is no part of it, whose
    blocks are compiled by themselves. Sizes of images are a tensor, so that the graph holds for
    those of all batches; whose height and width are symbols with ``dynamic=True``.

    Args:
        model: as :func:`keep_padding_out` returns it, changed in place.
        options: of ``torch.compile``.

    Returns:
        The networks of the graph; none, and the model left as it is, where a layer of what sees a
        whole batch (backbone, neck, heads with BatchNorms) has no such form. Those of a model that
        is compiled stay.
    """
    if not isinstance(model, PaddingFree):
        return []
    if model.compiled is not None:
        return model.compiled.networks
    networks = [part for part in parts(model, NETWORKS) if not hasattr(part, 'mask_padding')]
    # One with BatchNorms sees a whole batch while it trains, compiled or not: not without it.
    heads = [head for head in parts(model, HEADS)
             if isinstance(head, MapHead) or not _left_out(head)]
    if any(_left_out(part) for part in networks + heads) or not networks + heads:
        return []
    for head in heads:
        note_maps(head)
    model.compiled = _Compiled(torch.compile(_seen, **options), networks + heads)
    return model.compiled.networks


class _Compiled:
    """Calls the graph, and says of its maps which cells are valid. It gets how many cells a
    batch has: a map of half the size then has 16 times as many, not a rounding within roundings,
    whose formulas keep a compiler busy for ever."""

    def __init__(self, seen: Callable[..., Any], networks: list[nn.Module]) -> None:
        self.seen, self.networks = seen, networks

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy of the model, as an EMA keeps it, is not compiled

    def __call__(self, model: Any, batch: Tensor, inputs: Any, kept: KeptOut
                 ) -> tuple[Sequence[Tensor], dict[int, Any]]:
        heads = [head for head in parts(model, HEADS) if isinstance(head, MapHead)]
        whole = isinstance(inputs, Tensor)  # the backbone is part of it
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
    """Maps of backbone and neck, of the heads, and the steps to those of the neck."""
    assert cells.shape[3] == cells.shape[5] == CELL  # which makes numbers of these two symbols
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
    """Whether a layer of it has no form for a tensor of sizes, or is computed twice. A class that
    inherits ``forward`` from one that has, has it too."""
    again = any(getattr(layer, 'with_cp', False) for layer in network.modules())
    resized = getattr(network, 'upsample_cfg', None) or {'mode': 'nearest'}
    # Losses see no map.
    layers = [type(part) for key, part in network.named_modules()
              if not any(name.startswith('loss') for name in key.split('.'))]
    return again or resized != {'mode': 'nearest'} or not all(any(
        f'{base.__module__}.{base.__qualname__}' in FORMED and base.forward is layer.forward
        for base in layer.__mro__ if issubclass(base, nn.Module)) for layer in layers)
