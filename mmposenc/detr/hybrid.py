"""The hybrid encoder of RT-DETR and D-FINE; it needs only torch."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..backbones.archs import replaced_encodings
from ..backbones.optional_mmengine import BaseModule, ModuleList
from ..config_types import ConfigType
from ..encodings.base import TokenEncoding
from ..encodings.build import EncodingConfig, build_encoding, listed
from ..encodings.checks import check_at_least, check_choices
from ..functional.extents import MaskLike, cells_of, mask_at_step, token_mask
from ..functional.masking import map_to_tokens, masked_batch_norm, tokens_to_map
from ..functional.tracing import is_compiling
from .building import build_activation
from .encoders import DetrEncoder


class HybridEncoder(BaseModule):
    """Neck of RT-DETR (Zhao et al., CVPR 2024, Sec. 4.2) and D-FINE (Peng et al., ICLR 2025) with
    any position encoding: attention within coarse maps (AIFI), then a top-down and a bottom-up
    pyramid with fusion blocks of convolutions (CCFF).

    Args:
        in_channels: channels of each map, from fine to coarse; each map has half the size of the
            one before, rounded up.
        out_channels: channels C of all output maps.
        encoder: arguments of :class:`~mmposenc.detr.DetrEncoder` (``layer_cfg`` with relative
            encodings, ``pos_encoding``, ``positions``); by default one layer as in the release.
        encoder_pos: absolute encoding of queries and keys: 'sine' (the release's: sines and cosines
            of rows, then of columns), the config of a TokenEncoding, or None.
        levels: indices of the maps with attention; by default the last.
        fusion: 'csp' (RT-DETR), or 'gelan' (D-FINE): :class:`GELANFusion`, depthwise convolutions
            where maps shrink, and no activation before a fusion.
        num_blocks: number of blocks in a fusion; in 'gelan' in each of its two parts.
        expansion: ratio of their channels to ``out_channels`` (RT-DETR-R18: .5); in 'gelan' twice
            the ratio.
        act_cfg: activation of the convolutions.
        init_cfg: mmengine's.

    Raises:
        ValueError: a level does not exist, or encodings do not fit.

    On square maps the results equal the releases' and Hugging Face's; on other maps Hugging Face's
    (the releases number positions column by column there). Sides may be odd. With ``padding_mask``
    an image has the results that it has alone, and BatchNorm uses only valid cells.
    """

    #: The argument that takes encodings.
    encodings_in = 'encoder'
    #: A detector of the DETR family calls a neck that says so with the maps and their padding mask.
    takes_padding_mask = True

    def __init__(self, in_channels: Sequence[int] = (512, 1024, 2048), out_channels: int = 256, *,
                 encoder: ConfigType | None = None,
                 encoder_pos: EncodingConfig | str | None = 'sine',
                 levels: Sequence[int] | None = None, fusion: str = 'csp', num_blocks: int = 3,
                 expansion: float = 1.0, act_cfg: ConfigType | None = None,
                 init_cfg: ConfigType | None = None) -> None:
        super().__init__(init_cfg)
        count, dims = len(in_channels), out_channels
        self.levels = (count - 1,) if levels is None else tuple(levels)
        if not set(self.levels) <= set(range(count)) or len(set(self.levels)) < len(self.levels):
            raise ValueError(f'levels={self.levels} must be different maps from 0 to {count - 1}')
        check_choices(fusion=(fusion, ('csp', 'gelan')))
        check_at_least(0, num_blocks=num_blocks)
        check_at_least(1 / dims, expansion=expansion)
        act = dict(type='SiLU') if act_cfg is None else act_cfg
        self.in_channels, self.out_channels = tuple(in_channels), dims
        self.num_levels = count
        self.input_proj = ModuleList(ConvNorm(channels, dims, 1) for channels in in_channels)
        default = dict(num_layers=1, layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=dims, num_heads=8),
            ffn_cfg=dict(embed_dims=dims, feedforward_channels=4 * dims,
                         act_cfg=dict(type='GELU'))))
        self.encoders = ModuleList(DetrEncoder(**{**default, **(encoder or {})})
                                   for _ in self.levels)
        for each in self.encoders:
            if each.embed_dims != dims:
                raise ValueError(f'encoder has embed_dims={each.embed_dims}; it must be '
                                 f'out_channels={dims}')
        self.sine = encoder_pos == 'sine'
        sines = dict(type='mmposenc.SinCosPositionEncoding')
        cfg = sines if self.sine else encoder_pos
        replaced = replaced_encodings(nn.Module, {'pos_encoding': sines}, {
            'pos_encoding': [*listed(cfg), *listed((encoder or {}).get('pos_encoding'))]})
        self.replaced_encodings = {slot: line and f'{line} in the neck'
                                   for slot, line in replaced.items()}
        # Configs exclude parameters of this name from weight decay.
        self.encoder_pos_encodings = None if cfg is None else ModuleList(
            build_encoding(cfg, TokenEncoding, 'encoder_pos',  # type: ignore[type-abstract]
                           embed_dims=dims, grid_shape=(20, 20)) for _ in self.levels)
        gelan = fusion == 'gelan'
        around, kind = (None, GELANFusion) if gelan else (act, Fusion)
        self.lateral_convs = ModuleList(ConvNorm(dims, dims, 1, act=around)
                                        for _ in range(count - 1))
        self.pointwise_convs = None if not gelan else ModuleList(
            ConvNorm(dims, dims, 1) for _ in range(count - 1))
        self.downsample_convs = ModuleList(
            ConvNorm(dims, dims, 3, 2, groups=dims if gelan else 1, act=around)
            for _ in range(count - 1))
        self.fpn_blocks, self.pan_blocks = (ModuleList(
            kind(2 * dims, dims, num_blocks, expansion, act) for _ in range(count - 1))
            for _ in range(2))

    def forward(self, inputs: Sequence[Tensor], padding_mask: MaskLike | None = None
                ) -> tuple[Tensor, ...]:
        """Encode and fuse the maps.

        Args:
            inputs: maps (B, C_i, H_i, W_i), from fine to coarse.
            padding_mask: (B, H_0, W_0) bool for the finest map, True = padding, at the right and
                bottom; or a ``PaddingMask``.

        Returns:
            Maps (B, out_channels, H_i, W_i), zero on padding.

        Raises:
            ValueError: another number of maps, or a map is not half the size of the one before.
        """
        self._check(inputs)
        paddings: list[MaskLike | None] = [padding_mask]
        for _ in inputs[1:]:
            paddings.append(None if padding_mask is None else mask_at_step(paddings[-1], 2))
        masks = [cells_of(each) for each in paddings]
        maps = [proj(x if mask is None else x.masked_fill(mask[:, None], 0), mask)
                for proj, x, mask in zip(self.input_proj, inputs, masks, strict=True)]
        for index, level in enumerate(self.levels):
            maps[level] = self._attend(index, maps[level], paddings[level])
        outs = [maps[-1]]
        for index, (lateral, block) in enumerate(zip(self.lateral_convs, self.fpn_blocks,
                                                     strict=True)):
            level = len(maps) - 2 - index
            outs[0] = lateral(outs[0], masks[level + 1])
            finer = maps[level]
            upper = F.interpolate(outs[0], scale_factor=2.0, mode='nearest')
            upper = upper[..., :finer.shape[-2], :finer.shape[-1]]
            # The map was enlarged by two; where a side is odd, half of a cell lies beyond the
            # image.
            if masks[level] is not None:
                upper = upper.masked_fill(masks[level][:, None], 0)
            outs.insert(0, block(torch.cat((upper, finer), 1), masks[level]))
        for level, (down, block) in enumerate(zip(self.downsample_convs, self.pan_blocks,
                                                  strict=True)):
            mask, lower = masks[level + 1], outs[level]
            if self.pointwise_convs is not None:
                lower = self.pointwise_convs[level](lower, masks[level])
            lower = down(lower, mask)
            outs[level + 1] = block(torch.cat((lower, outs[level + 1]), 1), mask)
        return tuple(outs)

    def _attend(self, index: int, x: Tensor, mask: MaskLike | None) -> Tensor:
        hw_shape = (x.shape[-2], x.shape[-1])
        tokens, position = map_to_tokens(x), None
        if self.encoder_pos_encodings is not None:
            position = self.encoder_pos_encodings[index](torch.zeros_like(tokens), hw_shape,
                                                         padding_mask=cells_of(mask))
            if self.sine:  # The release has the channels of rows first.
                position = position.roll(position.shape[-1] // 2, -1)
        out = self.encoders[index](tokens, position, None if mask is None else token_mask(mask),
                                   spatial_shapes=hw_shape)
        out = tokens_to_map(out, hw_shape)
        return out if mask is None else out.masked_fill(cells_of(mask)[:, None], 0)

    def _check(self, inputs: Sequence[Tensor]) -> None:
        if len(inputs) != len(self.in_channels):
            raise ValueError(f'inputs has {len(inputs)} maps, but in_channels='
                             f'{self.in_channels} needs {len(self.in_channels)}')
        sizes = [tuple(x.shape[-2:]) for x in inputs]
        for fine, coarse in zip(sizes, sizes[1:], strict=False):
            if not is_compiling() and coarse != tuple(
                    (side + 1) // 2 for side in fine):
                raise ValueError(f'inputs have sizes {sizes}; each must be half of the one before, '
                                 'rounded up: take maps of the backbone that are (out_indices)')


class ConvNorm(nn.Module):
    """Convolution, norm and an activation; the output is zero on padding.

    Args:
        in_channels, out_channels, kernel_size, stride, groups: arguments of the convolution, which
            is padded by half its kernel.
        act: config of the activation, or None.
        norm: makes the norm of this many channels: BatchNorm, or a LayerNorm of each cell.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, *,
                 groups: int = 1, act: ConfigType | None = None,
                 norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride,
                              padding=kernel_size // 2, groups=groups, bias=False)
        self.norm = norm(out_channels)
        self.act = nn.Identity() if act is None else build_activation(act)

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Convolve and normalize a map: (B, in_channels, H, W) -> (B, out_channels, H', W').

        The mask (B, H', W') is that of the output, whose padded cells are zero.
        """
        x = self.act(masked_batch_norm(self.norm, self.conv(x), padding_mask))
        return x if padding_mask is None else x.masked_fill(padding_mask[:, None], 0)


class Fusion(nn.Module):
    """The sum of two 1x1 convolutions, one of them followed by RepVGG blocks (RT-DETR, Fig. 5).

    Args:
        in_channels, out_channels: channels of input and output.
        num_blocks: number of RepVGG blocks.
        expansion: ratio of inner channels to ``out_channels``.
        act: config of the activation.
    """

    def __init__(self, in_channels: int, out_channels: int, num_blocks: int, expansion: float,
                 act: ConfigType) -> None:
        super().__init__()
        hidden = int(out_channels * expansion)
        self.conv1 = ConvNorm(in_channels, hidden, 1, act=act)
        self.conv2 = ConvNorm(in_channels, hidden, 1, act=act)
        self.bottlenecks = nn.ModuleList(RepBlock(hidden, act) for _ in range(num_blocks))
        self.conv3 = None if hidden == out_channels else ConvNorm(hidden, out_channels, 1, act=act)

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """(B, in_channels, H, W) -> (B, out_channels, H, W)."""
        out = self.conv1(x, padding_mask)
        for block in self.bottlenecks:
            out = block(out, padding_mask)
        out = out + self.conv2(x, padding_mask)
        return out if self.conv3 is None else self.conv3(out, padding_mask)


class GELANFusion(nn.Module):
    """D-FINE's fusion (GELAN, Wang et al., ECCV 2024, with fewer channels): two halves of the
    channels of a convolution, and what two :class:`Fusion` make of the second one after the other.

    Args:
        in_channels, out_channels: channels of input and output.
        num_blocks: number of RepVGG blocks in each :class:`Fusion`.
        expansion: twice the ratio of their channels to ``out_channels``.
        act: config of the activation.
    """

    def __init__(self, in_channels: int, out_channels: int, num_blocks: int, expansion: float,
                 act: ConfigType) -> None:
        super().__init__()
        hidden = round(out_channels * expansion // 2)
        self.cv1 = ConvNorm(in_channels, 2 * out_channels, 1, act=act)
        self.cv2, self.cv3 = (
            nn.ModuleList((Fusion(channels, hidden, num_blocks, 1.0, act),
                           ConvNorm(hidden, hidden, 3, act=act)))
            for channels in (out_channels, hidden))
        self.cv4 = ConvNorm(2 * (out_channels + hidden), out_channels, 1, act=act)

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """(B, in_channels, H, W) -> (B, out_channels, H, W)."""
        parts = list(self.cv1(x, padding_mask).chunk(2, 1))
        for fusion, conv in (self.cv2, self.cv3):
            parts.append(conv(fusion(parts[-1], padding_mask), padding_mask))
        return self.cv4(torch.cat(parts, 1), padding_mask)


class RepBlock(nn.Module):
    """The sum of a 3x3 and a 1x1 convolution (RepVGG, Ding et al., CVPR 2021).

    Args:
        channels: channels of the map.
        act: config of the activation.
    """

    def __init__(self, channels: int, act: ConfigType) -> None:
        super().__init__()
        self.conv1, self.conv2 = ConvNorm(channels, channels, 3), ConvNorm(channels, channels, 1)
        self.act = build_activation(act)

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """(B, channels, H, W) -> the same."""
        x = self.act(self.conv1(x, padding_mask) + self.conv2(x, padding_mask))
        return x if padding_mask is None else x.masked_fill(padding_mask[:, None], 0)
