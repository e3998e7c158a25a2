"""The head of D-FINE and its losses, on mmdet's DINOHead."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from mmdet.models.dense_heads import DINOHead
from mmdet.models.losses import QualityFocalLoss
from mmdet.structures import SampleList
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy, bbox_overlaps, bbox_xyxy_to_cxcywh
from mmdet.utils import InstanceList, reduce_mean
from mmengine.structures import InstanceData
from torch import Tensor, nn

from mmposenc.config_types import ConfigType
from mmposenc.detr.refinement import (
    BoxBins,
    LocationQuality,
    distillation_loss,
    linear_layers,
    localization_loss,
)
from mmposenc.encodings.checks import check_at_least


class Objects(NamedTuple):
    """The objects of a batch, each image's from number 1 on; number 0 stands for none.

    Args:
        labels: (B, most + 1), the number of classes for none.
        boxes: (B, most + 1, 4), x1, y1, x2, y2 as shares of the image.
        factors: (B, 1, 4), width, height, width, height in pixels.
        counts: the number of objects of each image.
    """

    labels: Tensor
    boxes: Tensor
    factors: Tensor
    counts: list[int]

    def boxes_of(self, assigned: Tensor) -> Tensor:
        """The boxes of the objects with these numbers, (B, queries) -> (B, queries, 4)."""
        return self.boxes.gather(1, assigned[..., None].expand(-1, -1, 4))

    def overlaps(self, boxes: Tensor, assigned: Tensor) -> Tensor:
        """IoU of boxes (B, queries, 4), centre, width and height, with their objects; 0 for none,
        without gradients."""
        pair = (bbox_cxcywh_to_xyxy(boxes.detach()), self.boxes_of(assigned))
        ious = bbox_overlaps(*(each * self.factors for each in pair), is_aligned=True)
        return ious.masked_fill(assigned == 0, 0)


class Outputs(NamedTuple):
    """Scores before the sigmoid and boxes, of the boxes that the first layer predicts and of each
    layer; distributions of each layer."""

    scores: Sequence[Tensor]
    boxes: Sequence[Tensor]
    corners: Sequence[Tensor]


class Goals(NamedTuple):
    """What some queries, of all layers, should predict.

    Args:
        assigned: the object of each query's box (B, queries).
        num_boxes: by which losses of boxes are divided.
        num_classes: by which losses of classes are divided.
        bins, share: of :meth:`BoxBins.targets`, for the queries with an object.
    """

    assigned: Tensor
    num_boxes: float
    num_classes: float
    bins: Tensor
    share: Tensor


def united(assigned: Tensor, most: int) -> Tensor:
    """The object of each query that most of several layers assign to it (D-FINE, Sec. 4.2); of
    several the first.

    Args:
        assigned: (layers, B, queries), numbers of objects from 1 on, 0 for none.
        most: the largest number.

    Returns:
        (B, queries), 0 where no layer assigns an object.
    """
    votes = F.one_hot(assigned, most + 1).sum(0)
    votes[..., 0] = 0
    return votes.argmax(-1)


class DFINEHead(DINOHead):
    """Head of D-FINE (Peng et al., ICLR 2025): DINOHead with distributions of the sides of boxes.

    Boxes and their distributions are computed in the decoder, which hands them over (``corners``).
    Losses of boxes go to all queries to which any layer assigns an object; those of classes, as in
    DINO, to the queries of the layer's own assignment.

    Args:
        reg_max, reg_scale, up: options of :class:`~mmposenc.detr.refinement.BoxBins`.
        fgl_weight, ddf_weight: factors of the localization loss and the distillation loss.
        eval_layers, layer_scale, mlp_act_cfg: of the decoder; :class:`DFINE` fills them in.
        args, kwargs: arguments of mmdet's DINOHead.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(self, *args: object, reg_max: int = 32, reg_scale: float = 4.0, up: float = 0.5,
                 fgl_weight: float = 0.15, ddf_weight: float = 1.5, eval_layers: int | None = None,
                 layer_scale: float = 1.0, mlp_act_cfg: ConfigType | None = None, **kwargs: object
                 ) -> None:
        check_at_least(0, fgl_weight=fgl_weight, ddf_weight=ddf_weight)
        self.bin_options = (reg_max, reg_scale, up)
        self.fgl_weight, self.ddf_weight = fgl_weight, ddf_weight
        self.eval_layers, self.layer_scale = eval_layers, layer_scale
        self.mlp_act_cfg = mlp_act_cfg or dict(type='ReLU')
        super().__init__(*args, **kwargs)

    def _init_layers(self) -> None:
        dims, layers = self.embed_dims, self.num_pred_layer - 1
        narrow = layers if self.eval_layers is None else min(self.eval_layers, layers)
        # The last branches are those of the neck's tokens.
        widths = [dims] * narrow + [round(self.layer_scale * dims)] * (layers - narrow) + [dims]
        self.bins = BoxBins(*self.bin_options)
        outs = [4 * (self.bins.reg_max + 1)] * layers + [4]
        self.cls_branches = nn.ModuleList(nn.Linear(width, self.cls_out_channels)
                                          for width in widths)
        self.reg_branches = nn.ModuleList(
            linear_layers([width] * (self.num_reg_fcs + 1) + [out], self.mlp_act_cfg)
            for width, out in zip(widths, outs, strict=True))
        self.lqe_branches = nn.ModuleList(LocationQuality(self.mlp_act_cfg) for _ in range(layers))

    def init_weights(self) -> None:
        """Initialise as mmdet does; at first no distribution changes a score."""
        super().init_weights()
        for branch in self.lqe_branches:
            for parameter in branch.reg_conf[-1].parameters():
                nn.init.zeros_(parameter)

    def forward(  # type: ignore[override]
            self, hidden_states: Sequence[Tensor], references: Sequence[Tensor],
            corners: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Scores of the decoder's outputs.

        Args:
            hidden_states, references, corners: results of :class:`DFINEDecoder`.

        Returns:
            Scores before the sigmoid (B, queries, classes), and boxes (B, queries, 4): those that
            the first layer predicts, then those of each layer; in evaluation of the last alone.
        """
        def score(number: int) -> Tensor:
            return (self.cls_branches[number](hidden_states[number])
                    + self.lqe_branches[number](corners[number]))

        if not self.training:
            return [score(len(corners) - 1)], [references[-1]]
        first = self.cls_branches[0](hidden_states[0])
        return [first, *map(score, range(len(corners)))], list(references)

    def predict(  # type: ignore[override]
            self, hidden_states: Sequence[Tensor], references: Sequence[Tensor],
            batch_data_samples: SampleList, corners: Sequence[Tensor], rescale: bool = True
            ) -> InstanceList:
        """The results of images, as mmdet's heads give them."""
        return self.predict_by_feat(
            *self(hidden_states, references, corners), rescale=rescale,
            batch_img_metas=[sample.metainfo for sample in batch_data_samples])

    def loss(  # type: ignore[override]
            self, hidden_states: Sequence[Tensor], references: Sequence[Tensor],
            enc_outputs_class: Tensor, enc_outputs_coord: Tensor, batch_data_samples: SampleList,
            dn_meta: dict[str, int], corners: Sequence[Tensor]) -> dict[str, Tensor]:
        """The losses by name: ``pre.`` of the boxes that the first layer predicts, ``d0.`` and so
        on of layers, without a prefix of the last; ``enc_loss`` of the neck's tokens, ``dn_loss``
        of denoising."""
        scores, boxes = self(hidden_states, references, corners)
        instances = [sample.gt_instances for sample in batch_data_samples]
        metas = [sample.metainfo for sample in batch_data_samples]
        objects = self._objects(instances, metas, boxes[0])
        split = dn_meta['num_denoising_queries']
        noisy, plain = (Outputs(*([each[:, part] for each in outputs]
                                  for outputs in (scores, boxes, corners)))
                        for part in (slice(split), slice(split, None)))
        assignments = [self._assigned(*each, instances, metas) for each in zip(
            [*plain.scores, enc_outputs_class], [*plain.boxes, enc_outputs_coord], strict=True)]
        assigned = united(torch.stack(assignments), max(objects.counts))
        number = self._mean_number(sum(objects.counts), boxes[0])
        goals = self._goals(objects, assigned, plain.boxes[0], self._mean_number(
            assigned.count_nonzero(), boxes[0]), number)
        losses = self._losses(plain, assignments, goals, objects, goals)
        of_encoder = self._usual_losses(enc_outputs_class, enc_outputs_coord, assignments[-1],
                                        goals, objects)
        losses.update({f'enc_loss_{kind}': loss for kind, loss in of_encoder.items()})
        groups = dn_meta['num_denoising_groups']
        assigned = self._assigned_noisy(objects, split, groups)
        noisy_goals = self._goals(objects, assigned, noisy.boxes[0], *[number * groups] * 2)
        of_noisy = self._losses(noisy, [assigned] * len(scores), noisy_goals, objects, goals)
        return losses | {name.replace('loss', 'dn_loss'): loss for name, loss in of_noisy.items()}

    def _objects(self, instances: InstanceList, metas: Sequence[dict], like: Tensor) -> Objects:
        counts = [len(each.labels) for each in instances]
        labels = torch.full((len(counts), max(counts) + 1), self.num_classes, device=like.device)
        boxes = like.new_zeros(*labels.shape, 4)
        factors = like.new_tensor([meta['img_shape'][::-1] * 2 for meta in metas])[:, None]
        for image, (each, count) in enumerate(zip(instances, counts, strict=True)):
            labels[image, 1:count + 1] = each.labels
            boxes[image, 1:count + 1] = each.bboxes.to(like) / factors[image]
        return Objects(labels, boxes, factors, counts)

    def _mean_number(self, number: int | Tensor, like: Tensor) -> float:
        """The mean over processes, at least 1."""
        return max(float(reduce_mean(like.new_tensor([float(number)]))), 1.0)

    @torch.no_grad()
    def _assigned(self, scores: Tensor, boxes: Tensor, instances: InstanceList,
                  metas: Sequence[dict]) -> Tensor:
        """The object of each query (B, queries) by mmdet's assigner."""
        assignments = []
        for each_scores, each_boxes, each, meta in zip(scores, boxes, instances, metas,
                                                       strict=True):
            factor = each_boxes.new_tensor(meta['img_shape'][::-1] * 2)
            predicted = InstanceData(scores=each_scores,
                                     bboxes=bbox_cxcywh_to_xyxy(each_boxes) * factor)
            assignments.append(self.assigner.assign(predicted, each, img_meta=meta).gt_inds)
        return torch.stack(assignments)

    def _assigned_noisy(self, objects: Objects, queries: int, groups: int) -> Tensor:
        """The object of each query for denoising; those that are noisy versions of none, 0."""
        assigned = torch.zeros(len(objects.counts), groups, queries // groups, dtype=torch.long,
                               device=objects.boxes.device)
        for image, count in enumerate(objects.counts):
            assigned[image, :, :count] = torch.arange(1, count + 1, device=assigned.device)
        return assigned.flatten(1)

    @torch.no_grad()
    def _goals(self, objects: Objects, assigned: Tensor, start: Tensor, num_boxes: float,
               num_classes: float) -> Goals:
        used = assigned > 0
        bins, share = self.bins.targets(start[used], objects.boxes_of(assigned)[used])
        return Goals(assigned, num_boxes, num_classes, bins, share)

    def _losses(self, outputs: Outputs, assignments: Sequence[Tensor], goals: Goals,
                objects: Objects, plain: Goals) -> dict[str, Tensor]:
        """Losses of the boxes that the first layer predicts and of all layers.

        Args:
            assignments: for each of these predictions, the objects whose classes the queries should
                predict.
            goals, plain: what all queries should predict, and those that are not for denoising.
        """
        losses: dict[str, Tensor] = {}
        scores, boxes, corners = outputs
        last = len(corners)
        for number, (score, box, assigned) in enumerate(
                zip(scores, boxes, assignments, strict=False)):
            kinds = self._usual_losses(score, box, assigned, goals, objects)
            if number:
                kinds.update(self._losses_of_bins(box, corners[number - 1], goals, objects))
            if 0 < number < last:
                kinds['ddf'] = self._distillation(box, corners[number - 1], corners[-1], scores[-1],
                                                  goals, objects, plain)
            prefix = 'pre.' if not number else '' if number == last else f'd{number - 1}.'
            losses.update({f'{prefix}loss_{kind}': loss for kind, loss in kinds.items()})
        return losses

    def _usual_losses(self, scores: Tensor, boxes: Tensor, assigned: Tensor, goals: Goals,
                      objects: Objects) -> dict[str, Tensor]:
        """Losses of classes, where the objects are ``assigned``, and of boxes."""
        labels = objects.labels.gather(1, assigned).flatten()
        target: Any = labels
        if isinstance(self.loss_cls, QualityFocalLoss):
            target = (labels, objects.overlaps(boxes, assigned).flatten())
        used = goals.assigned > 0
        wanted, predicted = objects.boxes_of(goals.assigned)[used], boxes[used]
        factors = objects.factors.expand_as(boxes)[used]
        return dict(
            cls=self.loss_cls(scores.flatten(0, 1), target, avg_factor=goals.num_classes),
            bbox=self.loss_bbox(predicted, bbox_xyxy_to_cxcywh(wanted),
                                avg_factor=goals.num_boxes),
            iou=self.loss_iou(bbox_cxcywh_to_xyxy(predicted) * factors, wanted * factors,
                              avg_factor=goals.num_boxes))

    def _losses_of_bins(self, boxes: Tensor, corners: Tensor, goals: Goals, objects: Objects
                        ) -> dict[str, Tensor]:
        used = goals.assigned > 0
        weights = objects.overlaps(boxes, goals.assigned)[used]
        loss = localization_loss(corners[used], goals.bins, goals.share) * weights[:, None]
        return dict(fgl=self.fgl_weight * loss.sum() / goals.num_boxes)

    def _distillation(self, boxes: Tensor, corners: Tensor, teacher: Tensor, teacher_scores: Tensor,
                      goals: Goals, objects: Objects, plain: Goals) -> Tensor:
        """The distillation loss: means over the queries with an object and over the others, in the
        ratio of the roots of their numbers among the queries that are not for denoising."""
        used = goals.assigned > 0
        weights = torch.where(used, objects.overlaps(boxes, goals.assigned),
                              teacher_scores.detach().sigmoid().amax(-1))
        losses = distillation_loss(corners, teacher).mean(-1) * weights
        means = [(losses * some).sum() / some.sum().clamp(min=1) for some in (used, ~used)]
        roots = [some.sum().sqrt() for some in (plain.assigned > 0, plain.assigned == 0)]
        return self.ddf_weight * (means[0] * roots[0] + means[1] * roots[1]) / (roots[0] + roots[1])


__all__ = ['DFINEHead']
