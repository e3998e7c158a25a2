"""Necks that make pyramids from backbones whose maps all have the same stride."""
from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from ..backbones.layers import LayerNorm2d
from ..config_types import ConfigType
from ..detr.hybrid import ConvNorm
from ..detr.projector import check_maps
from ..functional.extents import MaskLike, cells_of, filled_extents, mask_at_step
from ..functional.grids import whole_cells
from ..functional.position_tables import resampling_weights
from ..functional.tracing import is_compiling

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


class STA(BaseModule):
    """Spatial tuning adapter of DEIMv2 (Huang et al., arXiv 2509.20787, ``DINOv3STAs``): a small
    convolutional network of the image itself has maps of strides 8, 16 and 32; each is concatenated
    with a map of the transformer, resized bilinearly to it, and a 1x1 convolution follows.

    Args:
        in_channels: channels of the transformer's maps.
        out_channels: channels of every level.
        base_channels: channels of the first convolution of the image; the levels have 2, 4 and 4
            times as many.
        patch_size: stride of the transformer's maps in pixels.
        image_channels: channels of the image.
        init_cfg: mmengine's; by default PyTorch's initialisation.

    Differences from the release, which takes images whose sides are multiples of 32, with patches
    of 16 pixels: any size works. Maps are interpolated where the cells of a level lie in the image,
    which is the release's formula where that runs. With ``padding_mask`` an image has the results
    that it has alone, and BatchNorm uses only valid cells.
    """

    #: A detector of the DETR family calls a neck that says so with the maps and their padding mask.
    takes_padding_mask = True

    def __init__(self, in_channels: int, out_channels: int, *, base_channels: int = 16,
                 patch_size: int = 16, image_channels: int = 3,
                 init_cfg: ConfigType | None = None) -> None:
        super().__init__(init_cfg=init_cfg)
        self.in_channels, self.patch_size = (in_channels,) * 3, patch_size
        widths = [base_channels * times for times in (1, 2, 4, 4)]
        self.stem = ConvNorm(image_channels, widths[0], 3, 2, act=dict(type='GELU'))
        self.details = nn.ModuleList(ConvNorm(*pair, 3, 2)
                                     for pair in zip(widths, widths[1:], strict=False))
        self.convs = nn.ModuleList(ConvNorm(in_channels + width, out_channels, 1)
                                   for width in widths[1:])

    def forward(self, inputs: Sequence[Tensor], padding_mask: MaskLike | None = None
                ) -> tuple[Tensor, ...]:
        """Build the levels.

        Args:
            inputs: the images (B, image_channels, H, W), then a map (B, in_channels, H', W') for
                each level or one for all, as :class:`~mmposenc.backbones.ViT` returns them with
                ``with_image``.
            padding_mask: (B, H, W) bool, True = padding, at the right and bottom; or a
                ``PaddingMask``.

        Returns:
            Maps (B, out_channels, ., .) of strides 8, 16 and 32, rounded up; zero on padding.

        Raises:
            ValueError: another number of maps, or their size is not that of the images' patches.
        """
        image, *maps = inputs
        self._check(image, maps)
        mask = cells_of(padding_mask)
        cells = _at_step(mask, self.patch_size)
        x = _filled(image, mask, 0)
        mask = _at_step(mask, 2)
        x = _filled(self.stem(x, mask), mask, -torch.inf)
        mask = _at_step(mask, 2)
        x = _filled(F.max_pool2d(x, 3, 2, 1), mask, 0)
        outs = []
        for level, (detail, conv) in enumerate(zip(self.details, self.convs, strict=True)):
            mask = _at_step(mask, 2)
            x = detail(F.gelu(x) if level else x, mask)
            semantic = _resized(maps[level % len(maps)], (x.shape[-2], x.shape[-1]),
                                2 ** (level + 3) / self.patch_size, cells)
            outs.append(conv(torch.cat((semantic, x), 1), mask))
        return tuple(outs)

    def _check(self, image: Tensor, maps: list[Tensor]) -> None:
        if len(maps) in (1, 3) and (is_compiling() or all(
                cells in (side // self.patch_size, whole_cells(side, self.patch_size))
                for each in maps
                for side, cells in zip(image.shape[-2:], each.shape[-2:], strict=True))):
            return
        shapes = [tuple(each.shape[1:]) for each in (image, *maps)]
        raise ValueError(f'inputs of shapes {shapes} must be the images and 1 or 3 maps of their '
                         f'patches of {self.patch_size} pixels; give the backbone with_image=True '
                         'and the neck its patch_size')


def _at_step(mask: Tensor | None, step: int) -> Tensor | None:
    return None if mask is None else mask_at_step(mask, step).cells


def _filled(x: Tensor, mask: Tensor | None, value: float) -> Tensor:
    """A map with this value where a mask is True."""
    return x if mask is None else x.masked_fill(mask[:, None], value)


def _resized(x: Tensor, hw_shape: tuple[int, int], step: float, padding_mask: Tensor | None
             ) -> Tensor:
    """A map (B, C, H, W) at the middles of cells that are ``step`` of its cells long, bilinearly;
    an image ends where the mask (B, H, W) says."""
    extents = (None, None) if padding_mask is None else filled_extents(padding_mask).unbind(1)
    rows, cols = (
        resampling_weights(source, torch.full((1,), source, dtype=torch.float64, device=x.device)
                           / step, length, 'bilinear', x.dtype, valid)
        for source, length, valid in zip(x.shape[-2:], hw_shape, extents, strict=True))
    return rows[:, None] @ x @ cols[:, None].mT
