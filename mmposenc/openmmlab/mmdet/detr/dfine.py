"""D-FINE: RT-DETR whose decoder refines distributions of the sides of boxes."""
from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from mmdet.models.layers.transformer import inverse_sigmoid
from torch import Tensor, nn

from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.detr.layers import ffn_and_norms
from mmposenc.detr.refinement import BoxBins, Gate, linear_layers
from mmposenc.encodings.checks import check_positive

from .decoders import DeformableDecoderLayer, check_head
from .deform_attention import MultiScaleDeformableAttention
from .dfine_head import DFINEHead
from .encoded import Arguments, Deformable
from .rtdetr import RTDETR, RTDETRDecoder

#: Half-precision numbers are at most this large.
_LARGEST = 65504.0


class UnprojectedAttention(MultiScaleDeformableAttention):
    """Deformable attention that projects neither its values nor its output.

    Args:
        args, kwargs: arguments of :class:`MultiScaleDeformableAttention`.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.value_proj, self.output_proj = nn.Identity(), nn.Identity()


class DFINEDecoderLayer(DeformableDecoderLayer):
    """D-FINE's decoder layer: a gate joins the output of cross-attention to the queries."""

    # torch.compile treats this class as one unit, see engine/training/compiling.py.
    is_region = True
    cross_attn_type = UnprojectedAttention

    def _init_layers(self) -> None:
        super()._init_layers()
        self.ffn, self.norms = ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 2)
        self.gateway = Gate(self.embed_dims)

    def forward(self, query: Tensor, *, value: Tensor, query_pos: Tensor,
                self_attn_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        """Decode.

        Args:
            query, query_pos: (B, queries, C); value: (B, keys, C).
            self_attn_mask: as in mmdet's layer.
            kwargs: arguments of the cross-attention.

        Returns:
            (B, queries, C).
        """
        query = self.norms[0](self.self_attn(query, query_pos=query_pos, key_pos=query_pos,
                                             attn_mask=self_attn_mask))
        attended = self.cross_attn(query, value=value, query_pos=query_pos,
                                   identity=query.new_zeros(1), **kwargs)
        query = self.ffn(self.gateway(query, attended))
        return self.norms[1](query.clamp(-_LARGEST, _LARGEST))


class DFINEDecoder(RTDETRDecoder):
    """D-FINE's decoder (Sec. 4.1): the first layer predicts boxes, and all layers add to
    distributions over bins, whose means move the sides of these boxes.

    Args:
        layer_scale: ratio of the channels of layers behind ``eval_layers``, which only train, to
            those of the others.
        args, kwargs: arguments of :class:`RTDETRDecoder`.

    Raises:
        ValueError: an option is out of range.
    """

    layer_type = DFINEDecoderLayer

    def __init__(self, *args: object, layer_scale: float = 1.0, **kwargs: object) -> None:
        check_positive(layer_scale=layer_scale)
        self.layer_scale = layer_scale
        super().__init__(*args, **kwargs)

    def _init_layers(self) -> None:
        super()._init_layers()
        first = self.num_layers if self.eval_layers is None else self.eval_layers
        for number in range(first, self.num_layers if self.layer_scale != 1 else first):
            self.layers[number] = self.layer_type(**scaled(self.layer_cfg, self.layer_scale))
        dims = self.embed_dims
        self.pre_bbox_head = linear_layers((dims, dims, dims, 4), self.mlp_act_cfg)

    def forward(  # type: ignore[override]
            self, query: Tensor, *, value: Tensor, reference_points: Tensor, valid_ratios: Tensor,
            reg_branches: nn.ModuleList, bins: BoxBins, **kwargs: object
            ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Decode.

        Args:
            query: (B, queries, C); value: tokens of all levels (B, keys, C).
            reference_points: boxes (B, queries, 4), (cx, cy, w, h) as shares of the images.
            valid_ratios: (B, levels, 2), valid share of the padded maps (width, height).
            reg_branches: for each layer, the module that changes the distributions.
            bins: the bins.
            kwargs: other arguments of the layers.

        Returns:
            For each layer its queries (B, queries, C or wider); the boxes that the first layer
            predicts and those of each layer (B, queries, 4); the distributions of each layer before
            the softmax (B, queries, 4 * bins).
        """
        states: list[Tensor] = []
        boxes: list[Tensor] = []
        corners: list[Tensor] = []
        ratios = torch.cat([valid_ratios, valid_ratios], -1)[:, None]
        layers = self.layers if self.training else self.layers[:self.eval_layers]
        for layer, branch in zip(layers, reg_branches, strict=False):
            position = self.ref_point_head(reference_points).clamp(-10, 10)
            query, position, memory = (resized(each, layer.embed_dims)
                                       for each in (query, position, value))
            before = query.detach()
            query = layer(query, value=memory, query_pos=position, valid_ratios=valid_ratios,
                          reference_points=reference_points[:, :, None] * ratios, **kwargs)
            if not states:
                moved = self.pre_bbox_head(query) + inverse_sigmoid(reference_points)
                boxes.append(moved.sigmoid())
            change = branch(query + before if states else query)
            corners.append(corners[-1] + change if corners else change)
            boxes.append(bins.boxes(boxes[0].detach(), corners[-1]))
            states.append(query)
            reference_points = boxes[-1].detach()
        return states, boxes, corners


def resized(x: Tensor, channels: int) -> Tensor:
    """Tokens (B, L, C) with each channel as often as the wider layers need it, (B, L, channels)."""
    return x if x.shape[-1] == channels else F.interpolate(x, size=channels)


def scaled(layer_cfg: ReadOnlyConfig, scale: float) -> ConfigType:
    """The config of a layer with this many times its channels.

    Raises:
        ValueError: the channels cannot be divided among the heads.
    """
    cfg = copy.deepcopy(dict(layer_cfg))
    for part in ('self_attn_cfg', 'cross_attn_cfg', 'ffn_cfg'):
        for name in {'embed_dims', 'feedforward_channels'} & set(cfg[part]):
            cfg[part][name] = round(scale * cfg[part][name])
        heads = cfg[part].get('num_heads', 1)
        if cfg[part].get('embed_dims', heads) % heads:
            raise ValueError(f'decoder.layer_scale={scale} gives {cfg[part]["embed_dims"]} channels'
                             f', which {part}.num_heads={heads} must divide')
    return cfg


class DFINE(RTDETR):
    """D-FINE (Peng et al., ICLR 2025) at any size of images.

    Args:
        decoder: arguments of :class:`DFINEDecoder`.
        bbox_head: arguments of :class:`DFINEHead`.
        kwargs: other arguments of :class:`RTDETR`.

    Outputs and losses equal the release's. Where a batch holds several images, its distillation
    loss is a mean over the queries of all of them, as in the release.

    Raises:
        ValueError: options contradict each other.
    """

    decoder_type = DFINEDecoder
    projects_equal_channels = False
    no_relations = {**Deformable.no_relations, 'relation':
                    'boxes of D-FINE come from distributions of all layers; leave it out'}

    def __init__(self, *args: object, decoder: ConfigType, bbox_head: ConfigType, **kwargs: object
                 ) -> None:
        check_head(bbox_head, DFINEHead)
        wide = {name: decoder[name] for name in ('eval_layers', 'layer_scale', 'mlp_act_cfg')
                if name in decoder}
        super().__init__(*args, decoder=decoder, bbox_head={**bbox_head, **wide}, **kwargs)
        self.dn_query_generator.turns_boxes = True

    def _init_parts(self) -> None:
        super()._init_parts()
        for layer in self.decoder.layers:
            for parameter in layer.gateway.gate.parameters():
                nn.init.zeros_(parameter)
        for parameter in self.decoder.pre_bbox_head[-1].parameters():
            nn.init.zeros_(parameter)

    def forward_decoder(  # type: ignore[override]
            self, query: Tensor, memory: Tensor, memory_mask: Tensor | None,
            dn_mask: Tensor | None = None, **kwargs: Any) -> Arguments:
        """Decode; the head gets the distributions of all layers (``corners``), too."""
        states, boxes, corners = self.decoder(
            query=query, value=memory, key_padding_mask=memory_mask, self_attn_mask=dn_mask,
            reg_branches=self.bbox_head.reg_branches, bins=self.bbox_head.bins, **kwargs)
        return dict(hidden_states=states, references=boxes, corners=corners)


__all__ = ['DFINE']
