"""Decoders and layers of the DETR family, batch first."""
from __future__ import annotations

import torch
from mmcv.cnn import build_norm_layer
from mmdet.models.layers.transformer import (
    MLP,
    DeformableDetrTransformerDecoder,
    DetrTransformerDecoder,
    DinoTransformerDecoder,
    coordinate_to_encoding,
    inverse_sigmoid,
)
from mmdet.models.layers.transformer import (
    DeformableDetrTransformerDecoderLayer as MMDeformableDecoderLayer,
)
from mmdet.models.layers.transformer import DetrTransformerDecoderLayer as MMDecoderLayer
from mmengine.model import ModuleList
from torch import Tensor, nn

from mmposenc.config_types import ReadOnlyConfig
from mmposenc.detr.attention import MultiheadAttention
from mmposenc.detr.layers import DetrEncoderLayer, ffn_and_norms
from mmposenc.registry import MODELS

from .deform_attention import MultiScaleDeformableAttention


class DetrDecoderLayer(MMDecoderLayer):
    """mmdet's decoder layer, whose attention returns no attention weights."""

    # torch.compile treats this class as one unit, see engine/training/compiling.py.
    is_region = True
    cross_attn_type: type[nn.Module] = MultiheadAttention

    def _init_layers(self) -> None:
        self.self_attn = MultiheadAttention(**self.self_attn_cfg)
        self.cross_attn = self.cross_attn_type(**self.cross_attn_cfg)
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 3)


class DeformableEncoderLayer(DetrEncoderLayer):
    """Encoder layer of Deformable DETR (Zhu et al., ICLR 2021, Sec. 4.1).

    Raises:
        ValueError: ``rel_pos_encoding`` is given: deformable attention has no logits of pairs.
    """

    attention_type = MultiScaleDeformableAttention

    def _init_layers(self) -> None:
        self.self_attn_cfg = dict(self.self_attn_cfg)
        relative = self.self_attn_cfg.pop('rel_pos_encoding', None)
        if relative is not None:
            raise ValueError(
                f'encoder.layer_cfg.self_attn_cfg.rel_pos_encoding={relative!r}: deformable '
                f'attention has no logits of pairs of tokens; use pos_encoding, or a detector with '
                f'dense attention (mmposenc.DETR, ConditionalDETR, DABDETR)')
        super()._init_layers()


class DeformableDecoderLayer(DetrDecoderLayer, MMDeformableDecoderLayer):
    """mmdet's deformable decoder layer; see :class:`DetrDecoderLayer`."""

    cross_attn_type = MultiScaleDeformableAttention


class DetrDecoder(DetrTransformerDecoder):
    """DETR's decoder whose layers are of :class:`DetrDecoderLayer`."""

    def _init_layers(self) -> None:
        self.layers = ModuleList(DetrDecoderLayer(**self.layer_cfg) for _ in range(self.num_layers))
        self.embed_dims = self.layers[0].embed_dims
        self.post_norm = build_norm_layer(self.post_norm_cfg, self.embed_dims)[1]


class DeformableDecoder(DeformableDetrTransformerDecoder):
    """Deformable DETR's decoder of :class:`DeformableDecoderLayer`."""

    layer_type: type[nn.Module] = DeformableDecoderLayer

    def _init_layers(self) -> None:
        if self.post_norm_cfg is not None:
            raise ValueError(f'decoder.post_norm_cfg={self.post_norm_cfg!r} must be None: a '
                             f'deformable decoder has no final norm')
        self.layers = ModuleList(self.layer_type(**self.layer_cfg) for _ in range(self.num_layers))
        self.embed_dims = self.layers[0].embed_dims


class DinoDecoder(DinoTransformerDecoder, DeformableDecoder):
    """DINO's decoder with the layers of :class:`DeformableDecoder`.

    Args:
        coordinate_feats: number of sines and cosines that encode each of a box's four coordinates
            as positions of queries. 128 in the authors' release and in mmdet's published weights;
            None: the number of the installed mmdet, ``embed_dims`` in 3.5 and 128 in 3.3.

    Raises:
        ValueError: ``coordinate_feats`` is odd or below 2.
    """

    def __init__(self, *args: object, coordinate_feats: int | None = None,
                 **kwargs: object) -> None:
        if coordinate_feats is not None and (coordinate_feats < 2 or coordinate_feats % 2):
            raise ValueError(f'decoder.coordinate_feats={coordinate_feats} must be even and at '
                             f'least 2: half of them are sines, half cosines')
        self.coordinate_feats = coordinate_feats
        super().__init__(*args, **kwargs)

    def _init_layers(self) -> None:
        super()._init_layers()
        dims = self.embed_dims
        if self.coordinate_feats is None:
            taken = self.ref_point_head.layers[0].in_features
            self.coordinate_feats = dims if taken == 4 * dims else 128
        # Built even if mmdet's has this size: otherwise modules that are built later would get
        # other random weights from the same seed.
        self.ref_point_head = MLP(4 * self.coordinate_feats, dims, dims, 2)

    def forward(self, query: Tensor, *, reference_points: Tensor, valid_ratios: Tensor,
                reg_branches: nn.ModuleList, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Decode as in mmdet, with the number of ``coordinate_feats`` as an argument.

        Args:
            query: (B, num_queries, C).
            reference_points: boxes (B, num_queries, 4), (cx, cy, w, h) as shares of the images.
            valid_ratios: (B, num_levels, 2), valid share of the padded maps (width, height).
            reg_branches: for each layer, the module that predicts the change of the boxes.
            kwargs: arguments of the layers.

        Returns:
            Queries (num_layers, B, num_queries, C) and boxes (num_layers + 1, B, num_queries, 4).
        """
        queries, boxes = [], [reference_points]
        ratios = torch.cat([valid_ratios, valid_ratios], -1)[:, None]
        for layer, branch in zip(self.layers, reg_branches, strict=False):
            of_levels = reference_points[:, :, None] * ratios  # (B, num_queries, num_levels, 4)
            encoded = coordinate_to_encoding(of_levels[:, :, 0], num_feats=self.coordinate_feats)
            query = layer(query, query_pos=self.ref_point_head(encoded), valid_ratios=valid_ratios,
                          reference_points=of_levels, **kwargs)
            moved = branch(query) + inverse_sigmoid(reference_points, eps=1e-3)
            # The next layer uses this box without gradients, but the loss of the next box has
            # gradients through it ("look forward twice").
            boxes.append(moved.sigmoid())
            queries.append(self.norm(query))
            reference_points = boxes[-1].detach()
        return torch.stack(queries), torch.stack(boxes)


def check_head(cfg: ReadOnlyConfig, wanted: type[nn.Module]) -> None:
    """Raise ValueError for the config of a head that is not of the class ``wanted``."""
    kind = cfg.get('type')
    head = MODELS.get(kind) if isinstance(kind, str) else kind
    if not (isinstance(head, type) and issubclass(head, wanted)):
        raise ValueError(f"bbox_head.type={kind!r} must be 'mmposenc.{wanted.__name__}'")


def check_decoder(cfg: ReadOnlyConfig) -> None:
    """Raise ValueError for encodings in a decoder's config, because its queries have no grid."""
    for name in ('pos_encoding', 'rel_pos_encoding', 'positions', 'encoder_pos'):
        if name in cfg:
            raise ValueError(f'decoder.{name}={cfg[name]!r}: object queries have no grid; write it '
                             f'into the encoder')
    for name in ('self_attn_cfg', 'cross_attn_cfg'):
        relative = cfg.get('layer_cfg', {}).get(name, {}).get('rel_pos_encoding')
        if relative is not None:
            raise ValueError(f'decoder.layer_cfg.{name}.rel_pos_encoding={relative!r}: object '
                             f'queries have no grid; write it into the encoder')
