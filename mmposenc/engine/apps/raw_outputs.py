"""A model as a function from images to the raw outputs of its heads, without thresholds,
suppression and resizing."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...functional.image_sizes import set_img_shapes, top_left
from ...functional.tracing import is_exporting
from ...padding.single_images import padded_as_alone
from ..config.images import image_samples


class RawOutputs(nn.Module):
    """A module from images to the outputs of a model's heads, before any threshold, suppression or
    resizing.

    Args:
        model: a model of mmdet, mmseg or mmpretrain, in evaluation.

    Images have one size, and pixels from 0 to 255. They are normalised and padded as ``predict``
    does it, and padding is masked where it is then. Detectors of one stage give maps of scores and
    boxes for each level, the family of DETR what its last layer says of each query, segmentors
    logits at the stride of their head, or of each pixel where images are padded, classifiers
    logits.

    Attributes:
        pads: whether images may be padded.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        preprocessor = getattr(model, 'data_preprocessor', None)
        self.normalises = getattr(preprocessor, '_enable_normalize', False)
        if self.normalises:
            self.register_buffer('mean', preprocessor.mean.clone(), persistent=False)
            self.register_buffer('std', preprocessor.std.clone(), persistent=False)
        self.queries = hasattr(model, 'forward_transformer')
        self.pads = padded_as_alone(torch.ones(1, 1, 1, 1), model).numel() > 1
        for module in model.modules():
            if type(module).__module__.startswith('mmseg') and type(module).__name__ == 'Upsample':
                module.forward = partial(_exportable_upsample, module)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """From (B, C, H, W) float32 to tensors, in the order of :meth:`output_names`."""
        return tuple(each for _, each in self._named_outputs(images))

    @torch.no_grad()
    def output_names(self, images: Tensor) -> list[str]:
        """The names of the outputs for such images."""
        return [name for name, _ in self._named_outputs(images)]

    def named_differences(self, images: Tensor, ours: Sequence[Tensor], others: Sequence[Tensor]
                          ) -> Iterator[tuple[str, float]]:
        """For each output, how far another runtime's numbers are from ours: the largest difference
        as a share of the span of ours, or of their largest value if that is more."""
        if getattr(self.model, 'as_two_stage', False):
            others = _in_order_of(ours, others)
        for name, one, other in zip(self.output_names(images), ours, others, strict=True):
            size = float(max(one.max() - one.min(), one.abs().max())) or 1.0
            yield name, (float((one - other).abs().max()) / size if one.shape == other.shape
                         else float('inf'))

    def _normalised_and_padded(self, images: Tensor) -> Tensor:
        """Images as ``predict`` gives them to the network: normalised, padded, with their sizes."""
        images = (images - self.mean) / self.std if self.normalises else images
        if not self.pads:
            return images
        batch = padded_as_alone(images, self.model)
        if is_exporting():  # The one size, perhaps of symbols, is that of all images.
            batch.img_shapes = [images.shape[-2:]]  # type: ignore[attr-defined]
            return batch
        return set_img_shapes(batch, [images.shape[-2:]] * len(images))

    def _named_outputs(self, images: Tensor) -> Iterator[tuple[str, Tensor]]:
        height, width = images.shape[-2:]
        images = self._normalised_and_padded(images)
        if self.queries:
            # There are no samples while exporting. That is safe: where pictures are padded, DETRs
            # are refused.
            samples = None if is_exporting() else image_samples(images)
            scores, boxes = self.model(images, samples, mode='tensor')[:2]
            outputs: Tensor | tuple[Tensor, ...] = (scores[-1], boxes[-1])
        else:
            outputs = self.model(images, mode='tensor')
        if isinstance(outputs, Tensor):
            if self.pads and hasattr(self.model, 'decode_head'):
                outputs = F.interpolate(outputs, images.shape[-2:], mode='bilinear',
                                      align_corners=self.model.align_corners)
                outputs = top_left(outputs, height, width)
            yield 'logits', outputs
            return
        for name, part in zip(('cls_score', 'bbox_pred', 'centerness'), outputs, strict=False):
            if isinstance(part, Tensor):
                yield name, part
            else:
                yield from ((f'{name}_{level}', each) for level, each in enumerate(part))


def _in_order_of(ours: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
    """The scores and boxes of queries of another runtime in our order. Two stages choose queries in
    the order of their scores, where rounding may exchange neighbours."""
    nearest = torch.cdist(torch.cat(tuple(ours), -1), torch.cat(tuple(others), -1)).argmin(-1)
    return [each.gather(1, nearest[..., None].expand_as(each)) for each in others]


class Detections(RawOutputs):
    """A module from one image to its boxes, as mmdet's ``predict`` returns them: boxes (n, 4) in
    pixels of the input, their scores and their labels (n,), the best first.

    What is exported is :func:`decoded_boxes`; otherwise mmdet's own code runs.

    Raises:
        ValueError: for a model whose head does not decode in mmdet's usual way.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        from mmdet.models.dense_heads.base_dense_head import BaseDenseHead
        head: Any = getattr(model, 'bbox_head', None)
        from mmdet.models.dense_heads.detr_head import DETRHead
        usual: Any = DETRHead if self.queries else BaseDenseHead
        decoders = ('predict_by_feat', '_predict_by_feat_single')[self.queries:]
        if (not isinstance(head, usual) or hasattr(model, 'mask_head')
                or not (self.queries or head.use_sigmoid_cls)
                or any(getattr(type(head), name) is not getattr(usual, name)
                       for name in decoders)):
            raise ValueError(f'--decode: {type(model).__name__} with {type(head).__name__} decodes '
                             'its boxes differently; RetinaNet, FCOS, ATSS, the family of DETR and '
                             'similar work')
        kind = 'nms' if self.queries else head.test_cfg.nms.get('type', 'nms')
        if kind != 'nms':
            raise ValueError(f"--decode: test_cfg.nms.type={kind!r} must be 'nms'")

    def named_differences(self, images: Tensor, ours: Sequence[Tensor], others: Sequence[Tensor]
                          ) -> Iterator[tuple[str, float]]:
        """The largest distance of a box to the nearest one with the same label, as a share of the
        image's longer side, or that of their scores."""
        (boxes, scores, labels), (others_boxes, others_scores, others_labels) = ours, others
        far = torch.maximum(
            (boxes[:, None] - others_boxes).abs().amax(-1) / max(images.shape[-2:]),
            (scores[:, None] - others_scores).abs())
        far = far.masked_fill(labels[:, None] != others_labels, float('inf'))
        if 0 not in far.shape:
            nearest = torch.cat((far.amin(0), far.amin(1))).sort().values
            yield 'a box', float(nearest[-1 - len(nearest) // 20])

    def _named_outputs(self, images: Tensor) -> Iterator[tuple[str, Tensor]]:
        head, size = self.model.bbox_head, tuple(images.shape[-2:])
        if self.queries:
            (_, (scores,)), (_, (boxes,)) = super()._named_outputs(images)
            found = head._predict_by_feat_single(scores, boxes, dict(img_shape=size), rescale=False)
            yield from (('boxes', found.bboxes), ('scores', found.scores), ('labels', found.labels))
            return
        features = self.model.extract_feat(self._normalised_and_padded(images))
        if is_exporting():
            boxes, scores, labels = decoded_boxes(head, head(features), size)
        else:
            sample = SimpleNamespace(metainfo=dict(img_shape=size))
            instances, = head.predict(features, [sample])
            boxes, scores, labels = instances.bboxes, instances.scores, instances.labels
        yield from (('boxes', boxes), ('scores', scores), ('labels', labels))


def decoded_boxes(head: Any, maps: Sequence[Sequence[Tensor]], size: tuple[int, int]
                  ) -> tuple[Tensor, Tensor, Tensor]:
    """Decode the maps of one image as mmdet's heads do it, in steps that can be exported: boxes
    below ``score_thr`` stay, with a score below 0, until :func:`indices_after_nms` takes those
    above it.

    Args:
        head: the head of a one-stage detector.
        maps: what it returns: scores, boxes and, if it has them, centernesses, of each level.
        size: (H, W) of the image.

    Returns:
        The boxes (n, 4), scores (n,) and labels (n,), the best first.
    """
    cfg = head.test_cfg
    priors = head.prior_generator.grid_priors(
        [each.shape[-2:] for each in maps[0]], maps[0][0].dtype, maps[0][0].device)
    levels = []
    for prior, logits, deltas, *factors in zip(priors, *maps, strict=True):
        scores = _rows(logits, head.cls_out_channels).sigmoid()
        cells, most = scores.numel(), cfg.get('nms_pre', -1)
        best, index = scores.flatten().topk(torch.sym_min(most, cells) if most > 0 else cells)
        best = torch.where(best > cfg.score_thr, best, -1.0)
        row = index // scores.shape[1]
        if factors:
            best = best * _rows(factors[0], 1)[row, 0].sigmoid()
        deltas = _rows(deltas, head.bbox_coder.encode_size)
        boxes = head.bbox_coder.decode(prior[row], deltas[row], max_shape=size)
        levels.append((boxes, best, index % scores.shape[1]))
    boxes, scores, labels = (torch.cat(each) for each in zip(*levels, strict=True))
    if (least := cfg.get('min_bbox_size', -1)) >= 0:
        large = (boxes[:, 2:] - boxes[:, :2] > least).all(1)
        scores = torch.where(large, scores, -1.0)
    shift = 0 if cfg.nms.get('class_agnostic') else labels[:, None] * (boxes.max() + 1)
    keep = indices_after_nms(boxes + shift, scores, cfg.nms['iou_threshold'], cfg.max_per_img)
    return boxes[keep], scores[keep], labels[keep]


def _rows(maps: Tensor, channels: int) -> Tensor:
    """The map (1, n * channels, H, W) of one image as rows (H * W * n, channels)."""
    return maps[0].permute(1, 2, 0).reshape(-1, channels)


@torch.library.custom_op('mmposenc::suppress', mutates_args=(), schema=(
    '(Tensor boxes, Tensor scores, float iou_threshold, int most) -> Tensor'))
def indices_after_nms(boxes: Tensor, scores: Tensor, iou_threshold: float, most: int) -> Tensor:
    """The numbers of the boxes with a score above 0 that non-maximum suppression keeps, the best
    first."""
    raise NotImplementedError('a step of ONNX files; mmdet has its own')


@indices_after_nms.register_fake
def _fake_nms_indices(boxes: Tensor, scores: Tensor, iou_threshold: float, most: int) -> Tensor:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.long)


def _exportable_upsample(layer: nn.Module, x: Tensor) -> Tensor:
    """mmseg's Upsample without ``int()``, which would turn a symbol into a number."""
    scale = layer.scale_factor
    factors = scale if isinstance(scale, tuple) else (scale, scale)
    size = layer.size or [side * int(factor) if factor == int(factor) else int(side * factor)
                        for side, factor in zip(x.shape[-2:], factors, strict=True)]
    return F.interpolate(x, size, None, layer.mode, layer.align_corners)
