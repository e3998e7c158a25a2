"""Encoders of the DETR family that use layers of mmdet."""
from __future__ import annotations

from collections.abc import Callable

import torch
from mmdet.models.layers.transformer.utils import MLP
from mmengine.config import ConfigDict
from torch import Tensor, nn

from mmposenc.compat.deform_attn import host_shapes, note_host_shapes
from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.detr.boxes import cell_centres
from mmposenc.detr.encoders import DetrEncoder, HWShapes, check_levels

from .decoders import DeformableEncoderLayer


class DABEncoder(DetrEncoder):
    """Encoder of DAB-DETR (Liu et al., ICLR 2022): each layer scales the absolute encoding by an
    MLP of its tokens; all layers share the MLP.

    Arguments and results are those of :class:`DetrEncoder`.
    """

    def _init_layers(self) -> None:
        super()._init_layers()
        self.query_scale = MLP(self.embed_dims, self.embed_dims, self.embed_dims, 2)

    def _layer_pos(self, x: Tensor, query_pos: Tensor | None) -> Tensor | None:
        return None if query_pos is None else query_pos * self.query_scale(x)


class DeformableEncoder(DetrEncoder):
    """Encoder of Deformable DETR with encodings between its layers.

    Args:
        pos_encoding_shared: all levels share their encodings; by default each level has its own.
        args, kwargs: arguments of :class:`DetrEncoder`; ``layer_cfg`` takes no
            ``rel_pos_encoding``, and padded tokens are not skipped.

    Raises:
        ValueError: as in DetrEncoder, and for ``skip_padding=True``.
    """

    layer_type = DeformableEncoderLayer

    def __init__(self, *args: object, pos_encoding_shared: bool = False, **kwargs: object) -> None:
        self.pos_encoding_shared = pos_encoding_shared
        if kwargs.get('skip_padding'):
            raise ValueError('encoder.skip_padding=True: deformable attention samples whole maps, '
                             'padding included; leave it out')
        super().__init__(*args, **kwargs)

    def _packing(self, mask: Tensor | None, hw_shapes: HWShapes | None) -> None:
        """Always None: deformable attention samples whole maps, including their padding."""

    def forward(self, query: Tensor, query_pos: Tensor | None,  # type: ignore[override]
                key_padding_mask: Tensor | None, spatial_shapes: Tensor, level_start_index: Tensor,
                valid_ratios: Tensor, reference_points: Tensor | None = None, *,
                hw_shapes: HWShapes | None = None,
                before: Callable[[int, Tensor], Tensor] | None = None) -> Tensor:
        """Encode.

        Args:
            query: tokens (B, L, C) of all levels, one after the other.
            query_pos: encoding of position and level added to the queries, same shape, or None.
            key_padding_mask: (B, L) bool, True = padding, at the right and bottom.
            spatial_shapes: (levels, 2) long, (H, W) of the levels.
            level_start_index: (levels,) long.
            valid_ratios: (B, levels, 2), valid share of each level's width and height.
            reference_points: (B, L, levels, 2) in [0, 1], around which each token samples; None:
                the centre of its own cell.
            hw_shapes: ``spatial_shapes`` as Python numbers, which saves a synchronisation with a
                GPU.
            before: takes the number of each layer and the tokens before it and before its
                encodings, and returns other tokens; or None.

        Returns:
            Memory (B, L, C).

        Raises:
            ValueError: the grids do not have L cells.
        """
        shapes = check_levels(query, hw_shapes or host_shapes(spatial_shapes), self.num_levels)
        note_host_shapes(spatial_shapes, shapes)
        points = reference_points
        if points is None:
            own = torch.cat([cell_centres(hw, wide * hw[1], high * hw[0]) for hw, (wide, high) in
                             zip(shapes, valid_ratios.permute(1, 2, 0)[..., None], strict=True)], 1)
            points = own[:, :, None] * valid_ratios[:, None]
        return self._run_layers(  # type: ignore[return-value]
            query, query_pos, key_padding_mask, shapes, False,
            dict(spatial_shapes=spatial_shapes, level_start_index=level_start_index,
                 reference_points=points, valid_ratios=valid_ratios), before)


def one_layer_config(coder: nn.Module, cfg: ReadOnlyConfig, of_encoder: bool = False) -> ConfigDict:
    """A config of a single layer with the sizes of an encoder or decoder, which mmdet builds as a
    placeholder.

    Args:
        coder: the encoder or decoder that will replace it.
        cfg: the config of ``coder``; mmdet also reads ``post_norm_cfg`` of a decoder and the text
            layers of Grounding DINO's encoder.
        of_encoder: whether it is the config of an encoder, also if ``coder`` is a decoder.
    """
    dims, attention = coder.embed_dims, coder.layers[0].self_attn
    sizes = dict(embed_dims=dims, num_heads=attention.num_heads)
    layer: ConfigType = dict(ffn_cfg=dict(embed_dims=dims, feedforward_channels=1),
                             self_attn_cfg=dict(sizes))
    if hasattr(attention, 'num_levels'):
        layer['self_attn_cfg']['num_levels'] = attention.num_levels
    if not of_encoder and hasattr(coder.layers[0], 'cross_attn'):
        layer['cross_attn_cfg'] = dict(sizes)
    read = {k: cfg[k] for k in ('post_norm_cfg', 'text_layer_cfg', 'fusion_layer_cfg') if k in cfg}
    return ConfigDict(num_layers=1, layer_cfg=layer, **read)
