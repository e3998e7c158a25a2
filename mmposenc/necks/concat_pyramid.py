"""A pyramid out of several maps of one stride, each normed."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn

from .simple_feature_pyramid import LayerNorm2d, SimpleFeaturePyramid

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
