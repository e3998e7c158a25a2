"""The map of tokens behind each block, noted while a model runs."""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mmposenc.encodings.placement import PlacedEncodings
from mmposenc.functional.image_sizes import ImgShapes, set_img_shapes
from mmposenc.functional.masking import split_prefix, tokens_to_map

from ..figures.recording import given_arguments, watched
from ..figures.subjects import Subject

#: One pass of a model over images (B, C, H, W), of which each fills (height, width) pixels.
Run = Callable[[Tensor, ImgShapes], object]


@dataclass
class FeatureMap:
    """The tokens behind one block, with the encodings that stand there.

    name: of the block's module; 'input' is what the first block gets. values: (B, C, H, W).
    stride: pixels of a side of a cell. prefix: (B, P, C) of class tokens and the like, or None.
    """

    name: str
    values: Tensor
    stride: int
    prefix: Tensor | None = None

    def __post_init__(self) -> None:
        if self.values.dtype in (torch.float16, torch.bfloat16):  # of frozen stages
            self.values = self.values.float()
            self.prefix = None if self.prefix is None else self.prefix.float()


@dataclass(frozen=True)
class Examined:
    """A model, and how it is run.

    model: a backbone or a detector. run: one pass, whatever it returns; None is that of a model
    that takes images alone.
    """

    model: nn.Module
    run: Run | None = None

    def maps(self, images: Tensor, shapes: ImgShapes | None = None) -> list[FeatureMap]:
        """The maps of images (B, C, H, W), in the order in which the blocks run, in evaluation
        mode; ``shapes``: height and width that each fills, by default all of it.

        Raises:
            ValueError: for a model without blocks or maps to look at.
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
    """Whether a module is an encoder of this project's DETR family, which has encodings for each of
    its levels (and whose class brings OpenMMLab along)."""
    levels = getattr(module, 'pos_encodings', None)
    return isinstance(levels, nn.ModuleList) and isinstance(levels[0], PlacedEncodings)


def grids_of(given: dict[str, Any]) -> list[tuple[int, int]]:
    """(H, W) of each level, from the arguments of a call of such an encoder; [] without any."""
    grids: Any = given.get('hw_shapes') or given.get('spatial_shapes')
    if grids is None:
        return []
    grids = grids.tolist() if isinstance(grids, Tensor) else grids
    return [tuple(grids)] if isinstance(grids[0], int) else [tuple(each) for each in grids]


@contextmanager
def record_features(model: nn.Module, hw_shape: tuple[int, ...]) -> Iterator[list[FeatureMap]]:
    """Note the map behind each block of this project's backbones and DETR encoders and of ResNets
    while ``model`` runs; of other backbones, the maps that they return.

    Args:
        model: a backbone or a detector.
        hw_shape: (H, W) of the images in pixels.

    Yields:
        The list that maps are added to. Of several levels the finest comes last, so that the last
        map is what an encoder, or a backbone without one, ends with.
    """
    found: list[FeatureMap] = []
    inside = {placed for module in model.modules() if is_encoder(module)
              for placed in module.pos_encodings}
    strides: dict[str, tuple[int, int]] = {}  # by stage: stride, and rows of what it put out

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
        if hasattr(blocks, 'block_map'):  # timm's, which have no encodings where none are asked
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
    """The stride of a stage's cells, from that of the stage before: an encoding without padding
    makes maps smaller, not their cells larger. (Rounded: a last patch may be one in part.)"""
    before, rows = list(strides.values())[-1] if strides else (1, hw_shape[0])
    return before * max(1, round(rows / grid[0])), grid[0]


def _stride(values: Tensor, hw_shape: tuple[int, ...]) -> int:
    """Of a map whose way is not known: the ratio of the sides, or else the nearest power of 2."""
    side, cells = max(hw_shape), max(values.shape[-2:])
    return side // cells if side % cells == 0 else 2 ** round(math.log2(side / cells))


def _watch_encoder(name: str, encoder: Any, found: list[FeatureMap],
                   hw_shape: tuple[int, ...], stack: ExitStack) -> None:
    """What each layer gets, which is what the one before gave and the encodings behind it; and the
    memory."""
    inputs: list[Tensor] = []

    def collect(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = given_arguments(module, args, kwargs)
        if given.get('kwargs', {}).get('packing') is None:  # its tokens lie on no grid
            inputs.append(given['query'].detach())

    def give(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        given = given_arguments(module, args, kwargs)
        grids = grids_of(given)
        assert grids, f'{name} was not told its grid'
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
    """Blocks of a ResNet; else, where a backbone has no encodings to stop at, what it returns."""
    backbone: Any = getattr(model, 'backbone', model)
    if any(isinstance(module, PlacedEncodings) for module in backbone.modules()):
        return
    prefix = 'backbone.' if backbone is not model else ''

    def note(name: str) -> Any:
        def take(module: nn.Module, args: Any, out: Any) -> None:
            outs = [out] if isinstance(out, Tensor) else list(out) if isinstance(
                out, tuple | list) else []
            for index, values in enumerate(outs):
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
