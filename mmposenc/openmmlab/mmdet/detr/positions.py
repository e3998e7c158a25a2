"""Padding masks and absolute positions of a detector's feature maps."""
from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmdet.structures import DetDataSample
from torch import Tensor, nn

from mmposenc.backbones.archs import replaced_encodings
from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.encodings.base import TokenEncoding
from mmposenc.encodings.build import build_encoding, listed, resolve
from mmposenc.encodings.placement import EncodingConfigs
from mmposenc.functional.extents import PaddingMask, extents_to_mask
from mmposenc.functional.grids import whole_cells
from mmposenc.functional.masking import map_to_tokens

#: The grid of the learned table, which is resized to the valid grid of each image.
LEARNED_GRID = (25, 42)
#: Absolute encodings by their names; 'sine' stands for the module that mmdet's detector has itself.
NAMED = {'sine': dict(type='mmposenc.SinCosPositionEncoding'),
         'learned': dict(type='mmposenc.LearnedPositionEmbedding')}


#: Height and width.
Size = tuple[int, int]
#: An absolute encoding: 'sine', 'learned', its config, or none.
AbsoluteKind = str | ReadOnlyConfig | None


def build_position(kind: AbsoluteKind, embed_dims: int, argument: str) -> nn.Module | None:
    """The module of an absolute encoding, or None for 'sine' and None.

    Args:
        kind: 'sine', 'learned', None, or the config of an absolute encoding.
        embed_dims: channels.
        argument: name of the caller's argument, for error messages.

    Raises:
        ValueError: ``kind`` is something else.
    """
    if kind is None or kind == 'sine':
        return None
    cfg = NAMED['learned'] if kind == 'learned' else kind
    if isinstance(cfg, dict):
        # Needed by mypy only: TokenEncoding is abstract, but here it is just compared.
        module = build_encoding(cfg, TokenEncoding, argument,  # type: ignore[type-abstract]
                                embed_dims=embed_dims, grid_shape=LEARNED_GRID)
        if module.default_positions == (-1,):
            return module
    raise ValueError(f"{argument}={kind!r} must be 'sine', 'learned', None, or the config of an "
                     f'absolute encoding such as LearnedPositionEmbedding')


def pop_absolute(encoder: ConfigType) -> AbsoluteKind:
    """Take the absolute encoding of queries and keys out of an encoder's arguments.

    It is ``encoder_pos``. Without it, a given ``pos_encoding`` replaces the sines, with the
    absolute encoding that is in it, or with none.

    Args:
        encoder: changed in place.

    Returns:
        As ``kind`` in :func:`build_position`.

    Raises:
        ValueError: ``pos_encoding`` has several absolute encodings.
    """
    if 'encoder_pos' in encoder or 'pos_encoding' not in encoder:
        return encoder.pop('encoder_pos', 'sine')
    absolute = []
    for each in listed(encoder['pos_encoding']):
        known = encoder.get('positions') is None and isinstance(each, dict) and (
            'type' in each and 'blocks' not in each)
        encoding = resolve(each['type'], 'encoder.pos_encoding') if known else None
        if getattr(encoding, 'default_positions', None) == (-1,):
            absolute.append(each)
    if len(absolute) > 1:
        raise ValueError(f'encoder.pos_encoding: {len(absolute)} absolute encodings; it takes one')
    if absolute:
        encoder['pos_encoding'] = [each for each in listed(encoder['pos_encoding'])
                                   if each is not absolute[0]] or None
    return next(('sine' if each == NAMED['sine'] else each for each in absolute), None)


def replaced_sines(kind: AbsoluteKind, between: EncodingConfigs) -> dict[str, str]:
    """Which encodings replace mmdet's sines, see :func:`.backbones.archs.replaced_encodings`.

    Args:
        kind: as in :func:`build_position`.
        between: ``pos_encoding`` of the encoder.
    """
    absolute = NAMED.get(kind, kind) if isinstance(kind, str) else kind
    lines = replaced_encodings(nn.Module, {'pos_encoding': NAMED['sine']},
                               {'pos_encoding': [*listed(absolute), *listed(between)]})
    return {slot: line and f'{line} in the encoder' for slot, line in lines.items()}


def position_tokens(kind: AbsoluteKind, module: nn.Module | None, sine: nn.Module, feature: Tensor,
                    mask: Tensor | None) -> Tensor | None:
    """The positions of the tokens of a map.

    Args:
        kind, module: the argument of :func:`build_position`, and its result.
        sine: mmdet's SinePositionalEncoding.
        feature: (B, C, H, W).
        mask: (B, H, W) bool, True = padding, or None.

    Returns:
        (B, H * W, C), or None for kind None.
    """
    if kind is None:
        return None
    if module is None:
        return map_to_tokens(sine(mask, input=feature))
    height, width = feature.shape[-2:]
    zeros = feature.new_zeros(feature.shape[0], height * width, feature.shape[1])
    return module(zeros, (height, width), padding_mask=mask)


def image_sizes(samples: Sequence[DetDataSample] | None) -> tuple[Size, list[Size]]:
    """The (height, width) of the batch and of each of its images.

    Raises:
        ValueError: there are no samples, or an image is empty or larger than the batch.
    """
    if not samples:
        raise ValueError('batch_data_samples is empty: a DETR needs the sizes of its images')
    full = int(samples[0].batch_input_shape[0]), int(samples[0].batch_input_shape[1])
    sizes = [(int(s.img_shape[0]), int(s.img_shape[1])) for s in samples]
    for index, size in enumerate(sizes):
        if not all(0 < side <= limit for side, limit in zip(size, full, strict=True)):
            raise ValueError(f'img_shape={size} of image {index} must be from (1, 1) to the size '
                             f'of the batch, {full}: an image of only padding has no boxes')
    return full, sizes


def padding_masks(samples: Sequence[DetDataSample] | None, features: Sequence[Tensor], exact: bool
                  ) -> list[PaddingMask | None]:
    """Padding mask (B, H, W) of every map, True = padding, or None for a map without padding.

    Args:
        samples: samples with ``batch_input_shape`` and ``img_shape``.
        features: maps (B, C, H, W).
        exact: a cell is valid if it contains a valid pixel. False: as in mmdet, the mask of pixels
            is resized to the map by the nearest pixel; for sizes that are not multiples of the
            stride this depends on the size of the batch.

    Raises:
        ValueError: as in :func:`image_sizes`.
    """
    full, sizes = image_sizes(samples)
    if all(size == full for size in sizes):
        return [None] * len(features)
    if exact:
        return [exact_mask(feature, full, sizes) for feature in features]
    return [extents_to_mask(nearest_extents(full, grid, sizes), grid, feature.device)
            for feature in features for grid in [(feature.shape[-2], feature.shape[-1])]]


def nearest_extents(full: Size, grid: Size, sizes: list[Size]) -> list[Size]:
    """For each image, how many rows and columns of the grid have their nearest pixel in the image.
    """
    rows, cols = map(_nearest_pixels, full, grid)
    return [(bisect_left(rows, height), bisect_left(cols, width)) for height, width in sizes]


@functools.lru_cache(maxsize=1024)
def _nearest_pixels(side: int, cells: int) -> list[float]:
    """The nearest pixel to each cell along an axis, ascending. It is that of ``F.interpolate``,
    which is not always that of exact arithmetic."""
    pixels = torch.arange(float(side), device='cpu')[None, None]
    return F.interpolate(pixels, cells)[0, 0].tolist()


def exact_mask(feature: Tensor, full: Size, sizes: list[Size]) -> PaddingMask | None:
    """The padding mask (B, H, W) of a map (B, C, H, W), in which a cell is valid if it contains a
    valid pixel; None if there is no padding."""
    grid = (feature.shape[-2], feature.shape[-1])
    stride = _power_of_two_stride(full, grid)
    extents = []
    for size in sizes:
        if stride is not None:
            cells = [whole_cells(side, stride) for side in size]
        else:  # There is no common stride, so all cells get the same size.
            cells = [whole_cells(side * n, total)
                     for side, n, total in zip(size, grid, full, strict=True)]
        extents.append((min(cells[0], grid[0]), min(cells[1], grid[1])))
    return extents_to_mask(extents, grid, feature.device)


def _power_of_two_stride(full: Size, grid: Size) -> int | None:
    """The stride of a grid in pixels as a power of two; None if there is none.

    If the grid is rounded up (or the division is exact), as in this project's backbones and ResNet,
    it is the smallest power whose cells cover the image; if rounded down, the next smaller one.
    """
    least = max(-(-side // cells) for side, cells in zip(full, grid, strict=True))
    stride = 1 << (least - 1).bit_length()
    if tuple(whole_cells(side, stride) for side in full) == grid:
        return stride
    stride //= 2
    return stride if stride and tuple(side // stride for side in full) == grid else None


def masks_exactly(detector: nn.Module) -> bool:
    """Whether the backbone masks padding (``mask_padding=True``)."""
    return bool(getattr(detector.backbone, 'mask_padding', False))
