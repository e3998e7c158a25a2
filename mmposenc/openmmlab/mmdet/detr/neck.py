"""mmdet's ChannelMapper, which here keeps padding out."""
from __future__ import annotations

from collections.abc import Sequence

from mmdet.models.necks import ChannelMapper as MMChannelMapper
from torch import Tensor, nn

from mmposenc.functional.extents import cells_of
from mmposenc.functional.masking import masked_group_norm

from .positions import exact_mask


class ChannelMapper(MMChannelMapper):
    """mmdet's ChannelMapper (same arguments and parameters), whose GroupNorms exclude padding, and
    whose outputs are zero on padding.

    The detectors of this package pass the images' sizes if their backbone masks padding
    (``mask_padding=True``). Otherwise, and in other detectors, results equal mmdet's.
    """

    def forward(self, inputs: tuple[Tensor, ...],
                img_shapes: Sequence[tuple[int, int]] | None = None,
                full_hw: tuple[int, int] | None = None) -> tuple[Tensor, ...]:
        """Map every level to ``out_channels``, and add the further levels.

        Args:
            inputs: maps (B, C_i, H_i, W_i), zero on padding.
            img_shapes, full_hw: (height, width) in pixels of the images and of the batch.

        Returns:
            ``num_outs`` maps (B, out_channels, ., .).
        """
        if img_shapes is None or full_hw is None:
            return super().forward(inputs)
        outs = [_conv_module_without_padding(conv, x, img_shapes, full_hw)
                for conv, x in zip(self.convs, inputs, strict=True)]
        for index, conv in enumerate(self.extra_convs or ()):
            outs.append(_conv_module_without_padding(conv, outs[-1] if index else inputs[-1],
                                                     img_shapes, full_hw))
        return tuple(outs)


def _conv_module_without_padding(module: nn.Module, x: Tensor,
                                 img_shapes: Sequence[tuple[int, int]],
                                 full_hw: tuple[int, int]) -> Tensor:
    """Apply the convolution, norm and activation of a ConvModule, without padding."""
    x = module.conv(x)
    mask = cells_of(exact_mask(x, full_hw, list(img_shapes)))
    if module.with_norm:
        norm = module.norm
        x = masked_group_norm(norm, x, mask) if isinstance(norm, nn.GroupNorm) else norm(x)
    if module.with_activation:
        x = module.activate(x)
    return x if mask is None else x.masked_fill(mask[:, None], 0)
