"""Necks that make pyramids from backbones whose maps all have the same stride."""
from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from ..backbones.layers import LayerNorm2d
from ..config_types import ConfigType
from ..detr.projector import check_maps

#: The sizes of the levels, relative to the map.
SCALES = (4.0, 2.0, 1.0, 0.5)


class SimpleFeaturePyramid(BaseModule):
    """Simple feature pyramid of ViTDet (Li et al., ECCV 2022, Sec. 3): every level comes from the
    last map of a plain transformer, and nothing passes between the levels.

    A scale of 4 is two transposed 2x2 convolutions of stride 2 with norm and GELU between them; 2
    is one of them; 1 is the identity; 0.5 is 2x2 max pooling. Then follow a 1x1 and a 3x3
    convolution, each with a norm and without activation. Norms are LayerNorms over the channels of
    a cell.

    Args:
        in_channels: channels of the map.
        out_channels: channels of every level.
        scales: size of each level relative to the map: 4, 2, 1 or 0.5, from fine to coarse. With
            patches of 16, (4, 2, 1, 0.5) are strides 4 to 32, for Mask R-CNN, and (2, 1, 0.5)
            strides 8 to 32, for RetinaNet.
        num_outs: number of levels; those beyond ``scales`` take every second cell of the last.
        norm_eps: epsilon of the norms.
        init_cfg: mmengine's; by default PyTorch's initialisation.

    Raises:
        ValueError: other scales, or fewer outputs than scales.
    """

    def __init__(self, in_channels: int, out_channels: int = 256, *,
                 scales: Sequence[float] = SCALES, num_outs: int = 5, norm_eps: float = 1e-6,
                 init_cfg: ConfigType | None = None) -> None:
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
            _make_level(in_channels, out_channels, scale, norm_eps) for scale in scales)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Build the pyramid.

        Args:
            inputs: one map (B, in_channels, H, W) in a tuple, as backbones return it.

        Returns:
            ``num_outs`` maps (B, out_channels, ., .), from fine to coarse.

        Raises:
            ValueError: ``inputs`` has several maps.
        """
        if len(inputs) != 1:
            raise ValueError(f'inputs holds {len(inputs)} maps, but the pyramid is built from '
                             f'one; give the backbone one number in out_indices')
        outs = [level(inputs[0]) for level in self.levels]
        while len(outs) < self.num_outs:
            outs.append(F.max_pool2d(outs[-1], 1, stride=2))
        return tuple(outs)


def _make_level(channels: int, out_channels: int, scale: float, norm_eps: float) -> nn.Sequential:
    """Make one level: (B, channels, H, W) -> (B, out_channels, scale * H, scale * W)."""
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


_NORMS: dict[str, type[nn.Module]] = {'layer': LayerNorm2d, 'batch': nn.BatchNorm2d}


class ConcatPyramid(BaseModule):
    """Normalise and concatenate the maps of several blocks of a plain transformer.

    The maps are those that DINOv2 (Oquab et al., TMLR 2024, Sec. 7.4) uses for segmentation. Blocks
    have features of different magnitude, so each map has its own norm. With ``out_channels``, a 1x1
    convolution and :class:`SimpleFeaturePyramid` follow. Without it, the concatenation is returned;
    a 1x1 convolution on it is DINOv2's linear head. (The authors' release has one BatchNorm of the
    concatenation, which equals ``norm='batch'``.)

    Args:
        in_channels: channels of each map.
        out_channels: channels of each level; None: one map, the concatenation.
        scales: size of each level relative to the maps, from fine to coarse: 4, 2, 1 or 0.5; with
            patches of 14 pixels (2, 1, 0.5) are strides 7, 14 and 28.
        num_outs: number of levels, by default that of ``scales``; those beyond ``scales`` take
            every second cell of the last.
        norm: norm of each map: 'layer' (over the channels of a cell), 'batch', or None if the
            backbone has a norm for its maps.
        norm_eps: epsilon of the norms.
        init_cfg: mmengine's.

    Raises:
        ValueError: other scales or norms, no map, or scales without ``out_channels``.
    """

    def __init__(self, in_channels: Sequence[int], out_channels: int | None = None, *,
                 scales: Sequence[float] = (1.0,), num_outs: int | None = None,
                 norm: str | None = 'layer', norm_eps: float = 1e-6,
                 init_cfg: ConfigType | None = None) -> None:
        super().__init__(init_cfg=init_cfg)
        if isinstance(in_channels, int) or not in_channels:
            raise ValueError(f'in_channels={in_channels} must list the channels of each map')
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
        """Normalise, concatenate and build the levels.

        Args:
            inputs: a map (B, C_i, H, W) for each of ``in_channels``, all of the same size.

        Returns:
            ``num_outs`` maps (B, out_channels, ., .), from fine to coarse; without ``out_channels``
            one (B, sum of C_i, H, W).

        Raises:
            ValueError: another number of maps, different sizes, or other channels.
        """
        check_maps(inputs, self.in_channels)
        x = torch.cat([norm(each) for norm, each in zip(self.norms, inputs, strict=True)], dim=1)
        if self.project is None or self.pyramid is None:
            return (x,)
        return self.pyramid((self.project(x),))
