"""RF-DETR: a plain transformer with windows, a projector and LW-DETR's decoder, on mmdet's
Deformable DETR."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from mmdet.models import detectors as mm
from mmdet.models.dense_heads import DINOHead
from mmdet.models.layers.transformer import coordinate_to_encoding
from mmdet.structures import SampleList
from torch import Tensor, nn

from mmposenc.compat.deform_attn import host_shapes
from mmposenc.config_types import ConfigType
from mmposenc.detr.boxes import cell_boxes, moved_boxes
from mmposenc.detr.refinement import linear_layers
from mmposenc.encodings.checks import check_at_least

from .decoders import DeformableDecoderLayer, DinoDecoder, check_head
from .encoded import Arguments, Deformable


class RFDETRDecoderLayer(DeformableDecoderLayer):
    """A deformable decoder layer, in which only queries of the same group attend to each other."""

    # torch.compile treats this class as one unit, see engine/training/compiling.py.
    is_region = True

    def forward(self, query: Tensor, *, query_pos: Tensor, num_groups: int = 1,
                **kwargs: object) -> Tensor:
        """Decode.

        Args:
            query, query_pos: (B, groups * queries, C).
            num_groups: number of groups, which lie one after the other.
            kwargs: arguments of the cross-attention.

        Returns:
            (B, groups * queries, C).
        """
        of_group, position = (each.unflatten(1, (num_groups, -1)).flatten(0, 1)
                              for each in (query, query_pos))
        attended = self.self_attn(of_group, query_pos=position, key_pos=position)
        query = self.norms[0](attended.reshape(query.shape))
        query = self.norms[1](self.cross_attn(query, query_pos=query_pos, **kwargs))
        return self.norms[2](self.ffn(query))


class RFDETRDecoder(DinoDecoder):
    """LW-DETR's decoder (Chen et al., 2024): all layers have the boxes, and the positions, that the
    queries begin with.

    Args:
        args, kwargs: arguments of mmdet's DeformableDetrTransformerDecoder.
    """

    layer_type = RFDETRDecoderLayer
    #: Groups of queries in training; :class:`RFDETR` fills it in.
    num_groups = 1

    def _init_layers(self) -> None:
        self.coordinate_feats = self.layer_cfg['self_attn_cfg']['embed_dims'] // 2
        super()._init_layers()

    def forward(self, query: Tensor, *, reference_points: Tensor, valid_ratios: Tensor,
                reg_branches: nn.ModuleList, query_pos: object = None, **kwargs: object
                ) -> tuple[Tensor, Tensor]:
        """Decode.

        Args:
            query: (B, groups * queries, C).
            reference_points: boxes (B, groups * queries, 4), (cx, cy, w, h) as shares of the
                images.
            valid_ratios: (B, levels, 2), valid share of the padded maps (width, height).
            reg_branches, query_pos: only for mmdet's signature.
            kwargs: arguments of the layers.

        Returns:
            The queries of all layers (layers, B, groups * queries, C), and the boxes
            (1, B, groups * queries, 4).
        """
        of_levels = reference_points[:, :, None] * valid_ratios.repeat(1, 1, 2)[:, None]
        position = self.ref_point_head(coordinate_to_encoding(
            reference_points, num_feats=self.coordinate_feats))
        states = []
        for layer in self.layers:
            query = layer(query, query_pos=position, reference_points=of_levels,
                          valid_ratios=valid_ratios,
                          num_groups=self.num_groups if self.training else 1, **kwargs)
            states.append(self.norm(query))
        return torch.stack(states), reference_points[None]


class RFDETRHead(DINOHead):
    """Head of RF-DETR: all layers of the decoder share the branches of number 0; those behind it
    are of the tokens that each group of queries is chosen from.

    Args:
        num_groups: groups of queries in training; :class:`RFDETR` fills it in.
        args, kwargs: arguments of mmdet's DINOHead.
    """

    def __init__(self, *args: object, num_groups: int = 13, **kwargs: object) -> None:
        self.num_groups = num_groups
        super().__init__(*args, **kwargs)

    def _init_layers(self) -> None:
        dims, count = self.embed_dims, 1 + self.num_groups
        self.cls_branches = nn.ModuleList(nn.Linear(dims, self.cls_out_channels)
                                          for _ in range(count))
        self.reg_branches = nn.ModuleList(linear_layers(
            [dims] * (self.num_reg_fcs + 1) + [4], dict(type='ReLU')) for _ in range(count))

    def forward(self, hidden_states: Tensor, references: Sequence[Tensor]
                ) -> tuple[Tensor, Tensor]:
        """Scores and boxes of all layers.

        Args:
            hidden_states: queries (layers, B, groups * queries, C).
            references: the boxes that they begin with (B, groups * queries, 4), and what
                mmdet's detector appends.

        Returns:
            Scores before the sigmoid (layers, B, groups * queries, classes), and boxes (layers, B,
            groups * queries, 4).
        """
        return (self.cls_branches[0](hidden_states),
                moved_boxes(references[0], self.reg_branches[0](hidden_states)))

    def loss(self, hidden_states: Tensor, references: Sequence[Tensor], enc_outputs_class: Tensor,
             enc_outputs_coord: Tensor, batch_data_samples: SampleList, dn_meta: dict[str, int]
             ) -> dict[str, Tensor]:
        """The losses, for which each group of queries is matched as if it were an image (Group
        DETR, Chen et al., ICCV 2023). There is no denoising."""
        states, boxes, scores, chosen = (
            each.unflatten(-2, (self.num_groups, -1)).flatten(-4, -3) for each in (
                hidden_states, references[0], enc_outputs_class, enc_outputs_coord))
        samples = [sample for sample in batch_data_samples for _ in range(self.num_groups)]
        return super().loss(states, [boxes], scores, chosen, samples, dn_meta)

    @staticmethod
    def split_outputs(all_layers_cls_scores: Tensor, all_layers_bbox_preds: Tensor,
                      dn_meta: dict[str, int]) -> tuple:
        """The outputs, of which none are for denoising."""
        return all_layers_cls_scores, all_layers_bbox_preds, None, None


class RFDETR(Deformable, mm.DeformableDETR):
    """RF-DETR (Robinson et al., 2025), whose decoder is LW-DETR's (Chen et al., 2024), at any size
    of images.

    The backbone encodes, usually a :class:`ViT` with windows by number and any encodings. The
    learned queries begin at the boxes of the neck's tokens with the highest scores.

    Args:
        decoder: arguments of :class:`RFDETRDecoder`.
        bbox_head: arguments of :class:`RFDETRHead`.
        num_feature_levels: number of maps that the neck gives.
        num_groups: groups of ``num_queries`` queries in training, each with its choice among the
            tokens; prediction has the first.
        kwargs: other arguments of mmdet's DeformableDETR; there is no ``encoder``.

    Outputs, losses and gradients equal the release's, which differs in two ways: it takes fewer
    tokens than queries; and in padded batches positions of queries are shares of the batch, here of
    the image.

    Raises:
        ValueError: options contradict each other.
    """

    decoder_type = RFDETRDecoder
    encodings_in = ''
    has_no_encoder = 'its backbone encodes'
    no_relations = dict.fromkeys(('relation', 'box_bias'), 'queries of RF-DETR keep the boxes that '
                                 'they begin with; leave it out')

    def __init__(self, *args: object, bbox_head: ConfigType, num_feature_levels: int = 1,
                 num_groups: int = 13, **kwargs: object) -> None:
        check_at_least(1, num_groups=num_groups)
        check_head(bbox_head, RFDETRHead)
        self.num_groups = num_groups
        super().__init__(*args, bbox_head={**bbox_head, 'num_groups': num_groups}, **{
            'num_feature_levels': num_feature_levels, 'with_box_refine': True,
            'as_two_stage': True, **kwargs})

    def _init_layers(self) -> None:
        self.decoder = {'post_norm_cfg': None, **self.decoder}
        super()._init_layers()
        del self.pos_trans_fc, self.pos_trans_norm
        dims, groups = self.decoder.embed_dims, self.num_groups
        self.decoder.num_groups = groups
        channels = getattr(self.necks[-1], 'out_channels', dims) if self.necks else dims
        if channels != dims:
            raise ValueError(f'neck.out_channels={channels} must be embed_dims={dims} of the '
                             'decoder')
        self.memory_trans_fc = nn.ModuleList(nn.Linear(dims, dims) for _ in range(groups))
        self.memory_trans_norm = nn.ModuleList(nn.LayerNorm(dims) for _ in range(groups))
        self.query_embedding = nn.Embedding(groups * self.num_queries, dims)
        self.query_moves = nn.Embedding(groups * self.num_queries, 4)

    def _init_parts(self) -> None:
        # Not that of Deformable DETR, which needs parameters that are not here.
        super(mm.DeformableDETR, self).init_weights()
        nn.init.zeros_(self.query_moves.weight)
        for module in (self.decoder, self.memory_trans_fc):
            for parameter in module.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)
        for layer in self.decoder.layers:
            layer.cross_attn.init_weights()

    def pre_decoder(self, memory: Tensor, memory_mask: Tensor | None, spatial_shapes: Tensor,
                    **kwargs: object) -> tuple[Arguments, Arguments]:
        """Choose the boxes of the queries among the tokens, for each group by its layers.

        Raises:
            ValueError: there are fewer tokens than queries.
        """
        self._check_num_queries(memory, spatial_shapes)
        groups = self.num_groups if self.training else 1
        cells, unused = cell_boxes(host_shapes(spatial_shapes), memory, memory_mask)
        tokens = memory.masked_fill(unused, 0)
        cells = cells.masked_fill(unused, 0).expand(*tokens.shape[:2], 4)
        scores, boxes = (torch.cat(each, 1) for each in zip(*(
            self._chosen(group, tokens, cells, memory_mask) for group in range(groups)),
            strict=True))
        content, moves = (embedding.weight[:groups * self.num_queries].expand(
            memory.shape[0], -1, -1) for embedding in (self.query_embedding, self.query_moves))
        for_head = dict(enc_outputs_class=scores, enc_outputs_coord=boxes, dn_meta={})
        return dict(query=content, query_pos=None, memory=memory, reference_points=moved_boxes(
            boxes.detach(), moves)), for_head if self.training else {}

    def _chosen(self, group: int, tokens: Tensor, cells: Tensor, mask: Tensor | None
                ) -> tuple[Tensor, Tensor]:
        """The scores (B, queries, classes) and boxes (B, queries, 4) of a group's tokens with the
        highest scores."""
        tokens = self.memory_trans_norm[group](self.memory_trans_fc[group](tokens))
        scores = self.bbox_head.cls_branches[1 + group](tokens)
        scores, tokens, cells = self._best_tokens(scores, mask, tokens, cells)
        return scores, moved_boxes(cells, self.bbox_head.reg_branches[1 + group](tokens))


__all__ = ['RFDETR', 'RFDETRHead']
