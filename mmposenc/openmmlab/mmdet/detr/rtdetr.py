"""RT-DETR and RT-DETRv2: a detector whose neck encodes, on mmdet's DINO."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmdet.models import detectors as mm
from mmdet.models.layers.transformer import CdnQueryGenerator, inverse_sigmoid
from mmdet.structures.bbox import bbox_xyxy_to_cxcywh
from torch import Tensor, nn

from mmposenc.config_types import ConfigType
from mmposenc.detr.building import build_activation
from mmposenc.detr.hybrid import ConvNorm
from mmposenc.detr.refinement import linear_layers
from mmposenc.encodings.checks import check_choices

from .decoders import DeformableDecoder
from .encoded import AnyBatchDINO, Arguments, Deformable

#: Contrastive denoising as in all of the releases' configs.
DENOISING = dict(label_noise_scale=0.5, box_noise_scale=1.0,
                 group_cfg=dict(dynamic=True, num_groups=None, num_dn_queries=100))


class RTDETRDecoder(DeformableDecoder):
    """Decoder of RT-DETR: the positions of queries are an MLP of their boxes.

    Args:
        query_pos_layers: layers of this MLP: 2 with twice the channels between them (RT-DETR), or 3
            (DEIM).
        mlp_act_cfg: its activation, which the branches of the head that move boxes share; DEIM has
            SiLU.
        eval_layers: number of layers in evaluation, where not all (3 of 6 in RT-DETR-R50-m).
        args, kwargs: arguments of mmdet's DeformableDetrTransformerDecoder; ``cross_attn_cfg``
            takes RT-DETRv2's ``num_points`` and ``sampling``
            (:class:`~.deform_attention.MultiScaleDeformableAttention`).

    Raises:
        ValueError: an option is out of range.
    """

    def __init__(self, *args: object, query_pos_layers: int = 2,
                 mlp_act_cfg: ConfigType | None = None, eval_layers: int | None = None,
                 **kwargs: object) -> None:
        check_choices(query_pos_layers=(query_pos_layers, (2, 3)))
        self.query_pos_layers, self.eval_layers = query_pos_layers, eval_layers
        self.mlp_act_cfg = mlp_act_cfg or dict(type='ReLU')
        super().__init__(*args, **kwargs)

    def _init_layers(self) -> None:
        super()._init_layers()
        if self.eval_layers is not None and not 0 < self.eval_layers <= self.num_layers:
            raise ValueError(f'decoder.eval_layers={self.eval_layers} must be from 1 to num_layers='
                             f'{self.num_layers}')
        dims = self.embed_dims
        hidden = (2 * dims,) if self.query_pos_layers == 2 else (dims, dims)
        self.ref_point_head = linear_layers((4, *hidden, dims), self.mlp_act_cfg)

    def forward(self, query: Tensor, *, reference_points: Tensor, valid_ratios: Tensor,
                reg_branches: nn.ModuleList, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Decode; arguments and results are those of :class:`DinoDecoder`."""
        queries, boxes = [], [reference_points]
        ratios = torch.cat([valid_ratios, valid_ratios], -1)[:, None]
        layers = self.layers if self.training else self.layers[:self.eval_layers]
        for layer, branch in zip(layers, reg_branches, strict=False):
            query = layer(query, query_pos=self.ref_point_head(reference_points),
                          reference_points=reference_points[:, :, None] * ratios,
                          valid_ratios=valid_ratios, **kwargs)
            # Look forward twice, as in DinoDecoder.
            boxes.append((branch(query) + inverse_sigmoid(reference_points)).sigmoid())
            queries.append(query)
            reference_points = boxes[-1].detach()
        return torch.stack(queries), torch.stack(boxes)


class DenoisingQueries(CdnQueryGenerator):
    """mmdet's queries for denoising with two details of RT-DETR's release: boxes are limited to
    1e-5 before the inverse of the sigmoid (mmdet: 1e-3), and where an image has fewer objects than
    another, the queries in their place have no content and boxes of size 0 (mmdet: half the image).
    """

    #: Whether a box whose sides change places by noise is turned over (D-FINE) or has no size.
    turns_boxes = False

    def generate_dn_bbox_query(self, gt_bboxes: Tensor, num_groups: int) -> Tensor:
        """Noisy boxes before the sigmoid, (2 * num_groups * objects, 4), of boxes (objects, 4) in
        shares of the image, (x1, y1, x2, y2); every second group is of negative examples."""
        boxes = gt_bboxes.repeat(2 * num_groups, 1)
        negative = torch.arange(2 * num_groups, device=boxes.device) % 2
        sign = torch.randint_like(boxes, 0, 2) * 2 - 1
        share = torch.rand_like(boxes) + negative.repeat_interleave(len(gt_bboxes))[:, None]
        sizes = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
        noisy = boxes + sign * share * sizes * self.box_noise_scale / 2
        noisy = bbox_xyxy_to_cxcywh(noisy.clamp(0, 1))
        return inverse_sigmoid(noisy.abs() if self.turns_boxes else noisy)

    def collate_dn_queries(self, input_label_query: Tensor, input_bbox_query: Tensor,
                           batch_idx: Tensor, batch_size: int, num_groups: int
                           ) -> tuple[Tensor, Tensor]:
        """Queries of all images as in mmdet, (B, queries, C) and (B, queries, 4)."""
        counts = torch.bincount(batch_idx, minlength=batch_size)
        most, groups = int(counts.max()), torch.arange(2 * num_groups, device=batch_idx.device)
        first = (counts.cumsum(0) - counts)[batch_idx]
        in_image = torch.arange(len(batch_idx), device=batch_idx.device) - first
        places = (batch_idx.repeat(len(groups)), (in_image + most * groups[:, None]).flatten())
        size = (batch_size, most * len(groups), -1)
        labels = input_label_query.new_zeros(1, 1, input_label_query.shape[-1]).expand(size)
        boxes = inverse_sigmoid(input_bbox_query.new_zeros(1, 1, 4)).expand(size)
        return labels.index_put(places, input_label_query), boxes.index_put(places,
                                                                            input_bbox_query)


class RTDETR(Deformable, AnyBatchDINO):
    """RT-DETR (Zhao et al., CVPR 2024) and RT-DETRv2 (Lv et al., 2024) at any size of images.

    The neck encodes, usually a :class:`HybridEncoder` with any encodings. The tokens of its maps
    with the highest scores are the contents of the first queries.

    Args:
        decoder: arguments of :class:`RTDETRDecoder`, and ``relation`` as in
            :class:`DETR`.
        num_feature_levels: number of maps that the neck gives.
        dn_cfg: options of mmdet's CdnQueryGenerator, by default :data:`DENOISING`.
        kwargs: other arguments of mmdet's DINO; there is no ``encoder``.

    Boxes and anchors are computed for the maps at hand, so nothing depends on the size of the
    images in training. Outputs and losses equal the release's; transformers' model has other
    gradients, because in it no box has a gradient through the box of the layer before.

    Raises:
        ValueError: options contradict each other.
    """

    decoder_type: type[RTDETRDecoder] = RTDETRDecoder
    encodings_in = ''
    has_no_encoder = 'write its options into neck.encoder of a mmposenc.HybridEncoder'
    #: Whether maps are projected although they have the channels of the decoder.
    projects_equal_channels = True

    def __init__(self, *args: object, num_feature_levels: int = 3,
                 dn_cfg: ConfigType | None = None, **kwargs: object) -> None:
        dn_cfg = dict(DENOISING if dn_cfg is None else dn_cfg)
        super().__init__(*args, dn_cfg=dn_cfg, **{
            'num_feature_levels': num_feature_levels, 'with_box_refine': True,
            'as_two_stage': True, **kwargs})
        self.dn_query_generator = DenoisingQueries(**dn_cfg)  # mmdet has added the sizes.

    def _init_layers(self) -> None:
        self.decoder = {'post_norm_cfg': None, **self.decoder}
        super()._init_layers()
        del self.query_embedding
        dims = self.decoder.embed_dims
        channels = getattr(self.necks[-1], 'out_channels', dims) if self.necks else dims
        self.input_proj = None if channels == dims and not self.projects_equal_channels else (
            nn.ModuleList(ConvNorm(channels, dims, 1) for _ in range(self.num_feature_levels)))
        for branch in self.bbox_head.reg_branches:
            for index, layer in enumerate(branch):
                if not isinstance(layer, nn.Linear):
                    branch[index] = build_activation(self.decoder.mlp_act_cfg)

    def _init_parts(self) -> None:
        # Not DINO's, which needs parameters that are not here.
        super(mm.DeformableDETR, self).init_weights()
        for parameter in self.decoder.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        for layer in self.decoder.layers:
            layer.cross_attn.init_weights()
        for projection in (self.memory_trans_fc, *(each.conv for each in self.input_proj or ())):
            nn.init.xavier_uniform_(projection.weight)

    def _projected(self, maps: Sequence[Tensor], masks: Sequence[Tensor | None]
                   ) -> Sequence[Tensor]:
        return maps if self.input_proj is None else [
            projection(each, mask)
            for projection, each, mask in zip(self.input_proj, maps, masks, strict=True)]

    def pre_decoder(self, memory: Tensor, memory_mask: Tensor | None, spatial_shapes: Tensor,
                    **kwargs: Any) -> tuple[Arguments, Arguments]:
        """Choose the queries among the tokens; in training, add those for denoising the boxes of
        ``batch_data_samples``.

        Raises:
            ValueError: there are fewer tokens than queries.
        """
        self._check_num_queries(memory, spatial_shapes)
        tokens, proposals = self.gen_encoder_output_proposals(memory, memory_mask, spatial_shapes)
        scores = self.bbox_head.cls_branches[self.decoder.num_layers](tokens)
        boxes = self.bbox_head.reg_branches[self.decoder.num_layers](tokens) + proposals
        scores, query, boxes = self._best_tokens(scores, memory_mask, tokens, boxes)
        content, reference, mask, for_head = query.detach(), boxes.detach(), None, {}
        if self.training:
            labels, noisy, mask, meta = self.dn_query_generator(
                kwargs['batch_data_samples'])
            content = torch.cat((labels, content), 1)
            reference = torch.cat((noisy, reference), 1)
            for_head = dict(enc_outputs_class=scores, enc_outputs_coord=boxes.sigmoid(),
                            dn_meta=meta)
        return dict(query=content, memory=memory, reference_points=reference.sigmoid(),
                    dn_mask=mask), for_head


__all__ = ['RTDETR']
