"""The projector of RF-DETR and LW-DETR; it needs only torch."""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from ..backbones.layers import LayerNorm2d
from ..backbones.optional_mmengine import BaseModule, ModuleList
from ..config_types import ConfigType
from ..encodings.checks import check_at_least
from ..functional.extents import MaskLike, cells_of, mask_at_step
from .hybrid import ConvNorm

_NORM = partial(LayerNorm2d, eps=1e-6)
_CONV = partial(ConvNorm, norm=_NORM)
_SILU = dict(type='SiLU')


class MultiScaleProjector(BaseModule):
    """Neck of LW-DETR (Chen et al., 2024, Sec. 3.1) and RF-DETR (Robinson et al., 2025): the maps
    of several blocks of a plain transformer are resized, concatenated and fused by a C2f block,
    once for each level.

    Args:
        in_channels: channels of each map; all maps have the same size.
        out_channels: channels of every level.
        scales: size of each level relative to the maps, from fine to coarse: 2, 1 or 0.5.
        num_blocks: number of pairs of convolutions in a C2f block.
        init_cfg: mmengine's.

    Parameters have the release's names, but ``norm`` for its ``bn``. With ``padding_mask`` an image
    has the results that it has alone.

    Raises:
        ValueError: no map, or other scales.
    """

    #: A detector of the DETR family calls a neck that says so with the maps and their padding mask.
    takes_padding_mask = True

    def __init__(self, in_channels: Sequence[int], out_channels: int = 256, *,
                 scales: Sequence[float] = (1.0,), num_blocks: int = 3,
                 init_cfg: ConfigType | None = None) -> None:
        super().__init__(init_cfg)
        if isinstance(in_channels, int) or not in_channels:
            raise ValueError(f'in_channels={in_channels} must list the channels of each map')
        if not scales or list(scales) != sorted({*scales} & {2, 1, 0.5}, reverse=True):
            raise ValueError(f'scales={tuple(scales)} must be some of 2, 1 and 0.5, from fine to '
                             'coarse')
        check_at_least(0, num_blocks=num_blocks)
        self.in_channels, self.out_channels = tuple(in_channels), out_channels
        self.scales, self.num_levels = tuple(scales), len(scales)
        self.stages_sampling = ModuleList(ModuleList(
            _resizing(channels, scale) for channels in in_channels) for scale in scales)
        self.stages = ModuleList(nn.ModuleList((
            C2f(sum(channels // 2 if scale == 2 else channels for channels in in_channels),
                out_channels, num_blocks), _NORM(out_channels))) for scale in scales)

    def forward(self, inputs: Sequence[Tensor], padding_mask: MaskLike | None = None
                ) -> tuple[Tensor, ...]:
        """Make the levels.

        Args:
            inputs: maps (B, C_i, H, W).
            padding_mask: (B, H, W) bool, True = padding, at the right and bottom; or a
                ``PaddingMask``.

        Returns:
            A map (B, out_channels, scale * H, scale * W) for each scale, rounded up, zero on
            padding.

        Raises:
            ValueError: other channels, or maps of different sizes.
        """
        check_maps(inputs, self.in_channels)
        outs = []
        for scale, sampling, (fuse, norm) in zip(self.scales, self.stages_sampling, self.stages,
                                                 strict=True):
            mask = cells_of(padding_mask)
            if mask is not None and scale == 2:
                mask = mask.repeat_interleave(2, 1).repeat_interleave(2, 2)
            elif mask is not None and scale == 0.5:
                mask = mask_at_step(mask, 2).cells
            maps = [_without_padding(resize(x), mask)
                    for resize, x in zip(sampling.children(), inputs, strict=True)]
            outs.append(_without_padding(norm(fuse(torch.cat(maps, 1), mask)), mask))
        return tuple(outs)


def check_maps(inputs: Sequence[Tensor], in_channels: Sequence[int]) -> None:
    """Raise ValueError for maps (B, C_i, H, W) of other channels or of different sizes."""
    shapes = [tuple(each.shape[1:]) for each in inputs]
    if (tuple(shape[0] for shape in shapes) != tuple(in_channels)
            or any(shape[1:] != shapes[0][1:] for shape in shapes)):
        raise ValueError(f'inputs of shapes {shapes} must be maps of the same size with '
                         f'in_channels={in_channels}')


def _resizing(channels: int, scale: float) -> nn.Module:
    if scale == 1:
        return nn.Identity()
    return nn.Sequential(nn.ConvTranspose2d(channels, channels // 2, 2, 2) if scale == 2
                         else _CONV(channels, channels, 3, 2, act=dict(type='ReLU')))


def _without_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x.masked_fill(mask[:, None], 0)


class C2f(nn.Module):
    """YOLOv8's block with LayerNorms of channels: a convolution, whose second half goes through
    pairs of convolutions one after the other; a last one fuses both halves and all of the pairs.

    Args:
        in_channels, out_channels: channels of input and output.
        num_blocks: number of pairs.
    """

    def __init__(self, in_channels: int, out_channels: int, num_blocks: int) -> None:
        super().__init__()
        hidden = out_channels // 2
        self.cv1 = _CONV(in_channels, 2 * hidden, 1, act=_SILU)
        self.cv2 = _CONV((2 + num_blocks) * hidden, out_channels, 1, act=_SILU)
        self.m = nn.ModuleList(nn.ModuleDict({name: _CONV(hidden, hidden, 3, act=_SILU)
                                              for name in ('cv1', 'cv2')})
                               for _ in range(num_blocks))

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """(B, in_channels, H, W) -> (B, out_channels, H, W)."""
        parts = list(self.cv1(x, padding_mask).chunk(2, 1))
        for pair in self.m:
            parts.append(pair['cv2'](pair['cv1'](parts[-1], padding_mask), padding_mask))
        return self.cv2(torch.cat(parts, 1), padding_mask)
