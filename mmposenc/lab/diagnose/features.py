"""Records the map of tokens after each block while a model runs."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from mmposenc.encodings.placement import PlacedEncodings
from mmposenc.functional.image_sizes import ImgShapes, set_img_shapes
from mmposenc.functional.masking import split_prefix, tokens_to_map
from mmposenc.functional.packing import Row

from ..figures.recording import given_arguments, watched
from ..figures.subjects import Subject

#: Runs a model on images (B, C, H, W) with their sizes (height, width) in pixels.
Run = Callable[[Tensor, ImgShapes], object]


@dataclass
class FeatureMap:
    """The tokens after one block, including the encodings there.

    Attributes:
        name: name of the block's module; 'input' is the input of the first block.
        values: (B, C, H, W).
        stride: side of a cell in pixels.
        prefix: prefix tokens (B, P, C) such as the class token, or None.
    """

    name: str
    values: Tensor
    stride: int
    prefix: Tensor | None = None

    def __post_init__(self) -> None:
        if self.values.dtype in (torch.float16, torch.bfloat16):  # frozen stages
            self.values = self.values.float()
            self.prefix = None if self.prefix is None else self.prefix.float()


@dataclass(frozen=True)
class Examined:
    """A model, and how it is run.

    Attributes:
        model: a backbone or a detector.
        run: runs the model once, with any result; None: ``model(images)``.
    """

    model: nn.Module
    run: Run | None = None

    def maps(self, images: Tensor, shapes: ImgShapes | None = None) -> list[FeatureMap]:
        """The maps of images (B, C, H, W) in evaluation mode, in the order of the blocks;
        ``shapes``: (height, width) of each image, by default (H, W).

        Raises:
            ValueError: the model has no blocks of this project and returns no maps.
        """
        whole = [tuple(images.shape[-2:])] * len(images) if shapes is None else shapes
        run = self.run or (lambda images, shapes: self.model(set_img_shapes(images, shapes)))
        found = Subject(self.model, lambda: run(images, whole), '').recorded(
            record_features, images.shape[-2:])
        if not found:
            raise ValueError(f'model={type(self.model).__name__} has no blocks of this project and '
                             f'no backbone that returns maps (B, C, H, W)')
        return found


def is_encoder(module: nn.Module) -> bool:
    """Whether a module is a DETR encoder of this project, by its attributes: importing its class
    would import OpenMMLab."""
    levels = getattr(module, 'pos_encodings', None)
    return isinstance(levels, nn.ModuleList) and isinstance(levels[0], PlacedEncodings)


def grids_of(given: dict[str, Any]) -> list[tuple[int, int]]:
    """(H, W) of each level from the arguments of a call of a DETR encoder; [] if there are none."""
    grids: Any = given.get('hw_shapes') or given.get('spatial_shapes')
    if grids is None:
        return []
    grids = grids.tolist() if isinstance(grids, Tensor) else grids
    return [tuple(grids)] if isinstance(grids[0], int) else [tuple(each) for each in grids]


@contextmanager
def record_features(model: nn.Module, hw_shape: tuple[int, ...]) -> Iterator[list[FeatureMap]]:
    """Record the map after each block of this project's backbones and DETR encoders and of ResNets
    while ``model`` runs; for other backbones, the maps that they return.

    Args:
        model: a backbone or a detector.
        hw_shape: (H, W) of the images in pixels.

    Yields:
        The list to which maps are added. With several levels the finest comes last.
    """
    found: list[FeatureMap] = []
    inside = {placed for module in model.modules() if is_encoder(module)
              for placed in module.pos_encodings}
    strides: dict[str, tuple[int, int]] = {}  # by stage: stride and rows of its output

    def note(name: str, module: PlacedEncodings, given: dict[str, Any], out: Any) -> None:
        if module not in inside:
            tokens, grid, _ = out
            stage, position = name.rpartition('pos_encodings')[0], given['position']
            if position == -1:
                strides[stage] = _next_stride(strides, stage, given['hw_shape'], hw_shape)
            stride = strides[stage][0]
            strides[stage] = stride, grid[0]
            label = f'{stage}input' if position == -1 else f'{stage}blocks.{position}'
            prefix, cells = split_prefix(tokens.detach(), given.get('num_prefix_tokens', 0))
            found.append(FeatureMap(label.replace('.input', ' input'), tokens_to_map(
                cells.contiguous(), grid), stride, prefix))

    def note_block(name: str, module: nn.Module, args: Any, out: Tensor) -> None:
        values, prefix = blocks.block_map(out.detach(), hw_shape)
        found.append(FeatureMap(name, values, _stride(values, hw_shape), prefix))

    blocks: Any = getattr(model, 'backbone', model)
    with ExitStack() as stack:
        if hasattr(blocks, 'block_map'):  # timm's models may have no encodings of this project
            for name, block in blocks.blocks():
                stack.callback(block.register_forward_hook(partial(note_block, name)).remove)
            yield found
            return
        stack.enter_context(watched(model, PlacedEncodings, note))
        for name, module in model.named_modules():
            if is_encoder(module):
                _watch_encoder(name, module, found, hw_shape, stack)
        _watch_others(model, found, hw_shape, stack)
        yield found


def _next_stride(strides: dict[str, tuple[int, int]], stage: str, grid: tuple[int, int],
                 hw_shape: tuple[int, ...]) -> tuple[int, int]:
    """The stride of a stage, from that of the stage before: an encoding without padding makes maps
    smaller but does not change the stride. (Rounded, since a last patch may be partial.)"""
    before, rows = list(strides.values())[-1] if strides else (1, hw_shape[0])
    return before * max(1, round(rows / grid[0])), grid[0]


def _stride(values: Tensor, hw_shape: tuple[int, ...]) -> int:
    """The stride of any other map: the ratio of the sides, else the nearest power of 2."""
    side, cells = max(hw_shape), max(values.shape[-2:])
    return side // cells if side % cells == 0 else 2 ** round(math.log2(side / cells))


def _watch_encoder(name: str, encoder: Any, found: list[FeatureMap],
                   hw_shape: tuple[int, ...], stack: ExitStack) -> None:
    """Record the input of each layer (the output of the one before, after encodings) and the
    memory."""
    inputs: list[Tensor] = []

    def collect(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = given_arguments(module, args, kwargs)
        # Tokens without their padding have no grid.
        if not isinstance(given.get('kwargs', {}).get('hw_shape'), Row):
            inputs.append(given['query'].detach())

    def give(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        given = given_arguments(module, args, kwargs)
        grids = grids_of(given)
        assert grids, f'{name} got no grid'
        memory = (out[0] if isinstance(out, tuple) else out).detach()
        names = [f'{name}.layers.{index - 1}' if index else f'{name} input'
                 for index in range(len(inputs))] + [f'{name}.layers.{len(encoder.layers) - 1}']
        for label, tokens in zip(names[-len(inputs) - 1:], [*inputs, memory], strict=True):
            parts = tokens.split([height * width for height, width in grids], 1)
            for level in reversed(range(len(grids))):
                values = tokens_to_map(parts[level].contiguous(), grids[level])
                found.append(FeatureMap(f'{label} level {level}' if len(grids) > 1 else label,
                                        values, _stride(values, hw_shape)))
        inputs.clear()

    for layer in encoder.layers:
        stack.callback(layer.register_forward_pre_hook(collect, with_kwargs=True).remove)
    stack.callback(encoder.register_forward_hook(give, with_kwargs=True).remove)


def _watch_others(model: nn.Module, found: list[FeatureMap], hw_shape: tuple[int, ...],
                  stack: ExitStack) -> None:
    """Record the blocks of a ResNet, or the outputs of a backbone without encodings."""
    backbone: Any = getattr(model, 'backbone', model)
    if any(isinstance(module, PlacedEncodings) for module in backbone.modules()):
        return
    prefix = 'backbone.' if backbone is not model else ''

    def note(name: str) -> Any:
        def take(module: nn.Module, args: Any, out: Any) -> None:
            for index, values in enumerate(tree_leaves(out)):
                if isinstance(values, Tensor) and values.dim() == 4:
                    label = name or f'{prefix}map {index}'
                    found.append(FeatureMap(label, values.detach(), _stride(values, hw_shape)))
        return take

    stages = getattr(backbone, 'res_layers', ())
    for stage in stages:
        for index, block in enumerate(getattr(backbone, stage)):
            stack.callback(block.register_forward_hook(note(f'{prefix}{stage}.{index}')).remove)
    if not stages:
        stack.callback(backbone.register_forward_hook(note('')).remove)
