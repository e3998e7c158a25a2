"""ViTDet's pyramid out of one map."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from ..backbones.layers import LayerNorm2d

#: Of the map: four, two and one times as fine, and half.
SCALES = (4.0, 2.0, 1.0, 0.5)


class SimpleFeaturePyramid(BaseModule):
    """Simple feature pyramid of ViTDet (Li et al., ECCV 2022, Sec. 3): every level comes from the
    last map of a plain transformer, and nothing passes between the levels.

    A scale of 4 is two transposed 2x2 convolutions of stride 2 with norm and GELU between them, 2
    is one of them, 1 nothing, 0.5 a maximum over 2x2 cells. Each level goes through a 1x1 and a 3x3
    convolution, both with a norm and without an activation. Norms are LayerNorms of a cell's
    channels, so that no cell depends on others through them.

    Args:
        in_channels: channels of the map.
        out_channels: channels of every level.
        scales: size of each level by the map's: 4, 2, 1 or 0.5, from fine to coarse. (4, 2, 1, 0.5)
            are strides 4 to 32 of patches of 16, as in Mask R-CNN; (2, 1, 0.5) what RetinaNet
            starts from.
        num_outs: levels to return; those beyond ``scales`` take every second cell of the last.
        norm_eps: epsilon of the norms.
        init_cfg: as of every module of mmengine; by default convolutions start as PyTorch's.

    Raises:
        ValueError: for other scales, or fewer outputs than scales.
    """

    def __init__(self, in_channels: int, out_channels: int = 256, *,
                 scales: Sequence[float] = SCALES, num_outs: int = 5, norm_eps: float = 1e-6,
                 init_cfg: dict[str, Any] | None = None) -> None:
        super().__init__(init_cfg=init_cfg)
        scales = tuple(scales)
        if not scales or not set(scales) <= set(SCALES) or list(scales) != sorted(
                set(scales), reverse=True):
            raise ValueError(f'scales={scales} must be some of {SCALES}, from fine to coarse')
        if num_outs < len(scales):
            raise ValueError(f'num_outs={num_outs} must be at least the {len(scales)} levels of '
                             f'scales={scales}')
        if in_channels % 4:
            raise ValueError(f'in_channels={in_channels} must be a multiple of 4')
        self.num_outs = num_outs
        self.levels = nn.ModuleList(
            _level(in_channels, out_channels, scale, norm_eps) for scale in scales)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Make the pyramid.

        Args:
            inputs: one map (B, in_channels, H, W), in a tuple as backbones return it.

        Returns:
            ``num_outs`` maps (B, out_channels, ., .), from fine to coarse.

        Raises:
            ValueError: for several maps.
        """
        if len(inputs) != 1:
            raise ValueError(f'inputs holds {len(inputs)} maps, but the pyramid is made out of '
                             f'one; give the backbone one number in out_indices')
        outs = [level(inputs[0]) for level in self.levels]
        while len(outs) < self.num_outs:
            outs.append(F.max_pool2d(outs[-1], 1, stride=2))
        return tuple(outs)


def _level(channels: int, out_channels: int, scale: float, norm_eps: float) -> nn.Sequential:
    """(B, channels, H, W) -> (B, out_channels, scale * H, scale * W)."""
    resize: list[nn.Module] = []
    if scale == 0.5:
        resize = [nn.MaxPool2d(2, 2)]
    if scale == 4:
        resize = [nn.ConvTranspose2d(channels, channels // 2, 2, 2),
                  LayerNorm2d(channels // 2, eps=norm_eps), nn.GELU()]
        channels //= 2
    if scale > 1:
        resize.append(nn.ConvTranspose2d(channels, channels // 2, 2, 2))
        channels //= 2
    return nn.Sequential(
        *resize,
        nn.Conv2d(channels, out_channels, 1, bias=False), LayerNorm2d(out_channels, eps=norm_eps),
        nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
        LayerNorm2d(out_channels, eps=norm_eps))


# A pyramid out of several maps of one stride, each normed.


_NORMS: dict[str, type[nn.Module]] = {'layer': LayerNorm2d, 'batch': nn.BatchNorm2d}


class ConcatPyramid(BaseModule):
    """Several blocks' maps of a plain transformer, normed and concatenated, for any head.

    The maps are those that DINOv2 (Oquab et al., TMLR 2024, Sec. 7.4) hands to its segmentation
    heads. Values of different blocks differ in size, so each map has a norm of its own. With
    ``out_channels`` a 1x1 convolution and :class:`SimpleFeaturePyramid` make levels of them;
    without, the concatenation is returned, to which a 1x1 convolution is DINOv2's linear head. (Its
    release norms the concatenation in one BatchNorm: the same as ``norm='batch'``.)

    Args:
        in_channels: channels of every map.
        out_channels: channels of every level; None: one map, the concatenation.
        scales: size of each level by the maps', from fine to coarse: 4, 2, 1 or 0.5; with patches
            of 14 pixels (2, 1, 0.5) are strides 7, 14 and 28.
        num_outs: levels to return, None for as many as ``scales``; those beyond take every second
            cell of the last.
        norm: of each map: 'layer' (of the channels of a cell), 'batch', or None where the backbone
            norms its maps.
        norm_eps: epsilon of the norms.
        init_cfg: as of every module of mmengine.

    Raises:
        ValueError: for other scales or norms, no map, or scales without ``out_channels``.
    """

    def __init__(self, in_channels: Sequence[int], out_channels: int | None = None, *,
                 scales: Sequence[float] = (1.0,), num_outs: int | None = None,
                 norm: str | None = 'layer', norm_eps: float = 1e-6,
                 init_cfg: dict[str, Any] | None = None) -> None:
        super().__init__(init_cfg=init_cfg)
        if isinstance(in_channels, int) or not in_channels:
            raise ValueError(f'in_channels={in_channels} must list the channels of every map')
        if norm is not None and norm not in _NORMS:
            raise ValueError(f"norm={norm!r} must be 'layer', 'batch' or None")
        if out_channels is None and (tuple(scales) != (1,) or num_outs not in (None, 1)):
            raise ValueError(f'scales={tuple(scales)}, num_outs={num_outs}: levels other than the '
                             'maps themselves need out_channels')
        self.in_channels = tuple(in_channels)
        self.norms = nn.ModuleList(
            nn.Identity() if norm is None else _NORMS[norm](channels, eps=norm_eps)
            for channels in in_channels)
        self.project = self.pyramid = None
        if out_channels is not None:
            self.project = nn.Conv2d(sum(in_channels), out_channels, 1)
            self.pyramid = SimpleFeaturePyramid(
                out_channels, out_channels, scales=scales,
                num_outs=len(scales) if num_outs is None else num_outs, norm_eps=norm_eps)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Norm, concatenate, and make the levels.

        Args:
            inputs: a map (B, C_i, H, W) for each of ``in_channels``, all of one size.

        Returns:
            ``num_outs`` maps (B, out_channels, ., .), from fine to coarse; without ``out_channels``
            one (B, sum of C_i, H, W).

        Raises:
            ValueError: for another number of maps, or maps of several sizes or other channels.
        """
        shapes = [tuple(each.shape[1:]) for each in inputs]
        if (tuple(shape[0] for shape in shapes) != self.in_channels
                or len({shape[1:] for shape in shapes}) != 1):
            raise ValueError(f'inputs of shapes {shapes} must be maps of one size with '
                             f'in_channels={self.in_channels}')
        x = torch.cat([norm(each) for norm, each in zip(self.norms, inputs, strict=True)], dim=1)
        if self.project is None or self.pyramid is None:
            return (x,)
        return self.pyramid((self.project(x),))  # type: ignore[no-any-return]
