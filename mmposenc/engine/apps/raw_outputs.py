"""A model as a function from images to the raw outputs of its heads, without thresholds,
suppression and resizing."""
from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from ...config_types import ReadOnlyConfig
from ...functional.image_sizes import set_img_shapes, top_left
from ...functional.tracing import is_exporting
from ...padding.images import padded_as_alone
from ..config.models import image_samples

#: The mean and standard deviation of the channels, or None.
Normalisation = tuple[Sequence[float], Sequence[float]] | None


class RawOutputs(nn.Module):
    """A module from images to the outputs of a model's heads, before any threshold, suppression or
    resizing.

    Args:
        model: a model of mmdet, mmseg or mmpretrain, in evaluation.
        normalisation: (mean, standard deviation) of the channels, to be part of it; None: images
            come normalised.

    Images have one size. They are padded as ``predict`` pads them, and padding is masked where it
    is then. Detectors of one stage give maps of scores and boxes for each level, the family of DETR
    what its last layer says of each query, segmentors logits at the stride of their head, or of
    each pixel where images are padded, classifiers logits.

    Attributes:
        pads: whether images may be padded.
    """

    def __init__(self, model: nn.Module,
                 normalisation: Normalisation = None) -> None:
        super().__init__()
        self.model = model
        self.normalises = normalisation is not None
        for name, values in zip(('mean', 'std'), normalisation or ((), ()), strict=True):
            self.register_buffer(name, torch.tensor(list(values)).view(-1, 1, 1), persistent=False)
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


class Detections(RawOutputs):
    """A module from one image to its boxes, as mmdet's ``predict`` returns them: boxes (n, 4) in
    pixels of the input, their scores and their labels (n,), the best first.

    What is exported is mmdet's own code but for two steps: boxes below ``score_thr`` stay, with a
    score below 0, until :func:`indices_after_nms` takes those above it.

    Raises:
        ValueError: for a model whose head does not decode in mmdet's usual way.
    """

    def __init__(self, model: nn.Module, normalisation: Normalisation = None) -> None:
        super().__init__(model, normalisation)
        head = getattr(model, 'bbox_head', None)
        single = getattr(type(head), '_predict_by_feat_single', None)
        if (single is None or hasattr(model, 'mask_head')
                or not hasattr(sys.modules[single.__module__], 'filter_scores_and_topk')):
            raise ValueError(f'--decode: {type(model).__name__} with {type(head).__name__} decodes '
                             'its boxes differently; RetinaNet, FCOS, ATSS, GFL and similar work')
        kind = head.test_cfg.nms.get('type', 'nms')
        if kind != 'nms':
            raise ValueError(f"--decode: test_cfg.nms.type={kind!r} must be 'nms'")

    def sum_of_top_logits(self, images: Tensor) -> Tensor:
        """The largest logits of classes, averaged over each level. It has to grow until there are
        boxes."""
        maps = self.model(self._normalised_and_padded(images), mode='tensor')[0]
        return torch.stack([each.flatten().topk(min(20, each.numel())).values.mean()
                            for each in maps]).sum()

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
        head: BaseModule = self.model.bbox_head
        features = self.model.extract_feat(self._normalised_and_padded(images))
        sample = SimpleNamespace(metainfo=dict(img_shape=tuple(images.shape[-2:])))
        with _exportable_functions(head) if is_exporting() else nullcontext():
            instances, = head.predict(features, [sample])
        yield from (('boxes', instances.bboxes), ('scores', instances.scores),
                    ('labels', instances.labels))


class _ExportableInstances(SimpleNamespace):
    """mmdet's InstanceData, whose lengths would turn symbols into numbers, so it is replaced."""

    def __getitem__(self, index: Tensor | slice) -> _ExportableInstances:
        if isinstance(index, slice):  # These are the best boxes, which suppress has chosen already.
            return self
        return _ExportableInstances(**{name: value[index] for name, value in vars(self).items()})

    def pop(self, name: str) -> Tensor:
        return vars(self).pop(name)


@contextmanager
def _exportable_functions(head: BaseModule) -> Iterator[None]:
    """Replace functions of mmdet by ones that can be exported, in the modules where a head looks
    them up."""
    cfg = head.test_cfg
    least = cfg.get('min_bbox_size', -1)

    def above_threshold(scores: Tensor, threshold: float, most: int, results: dict[str, Tensor]
                        ) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        flat = scores.flatten()
        best, index = flat.topk(torch.sym_min(most, flat.shape[0]) if most > 0 else flat.shape[0])
        best = torch.where(best > threshold, best, -1.0)
        box = index // scores.shape[1]
        return best, index % scores.shape[1], box, {
            name: value[box] for name, value in results.items()}

    def best_boxes(boxes: Tensor, scores: Tensor, labels: Tensor, nms: ReadOnlyConfig
                   ) -> tuple[Tensor, Tensor]:
        if least >= 0:
            big = (boxes[:, 2:] - boxes[:, :2] > least).all(1)
            scores = torch.where(big, scores, -1.0)
        shift = 0 if nms.get('class_agnostic') else labels[:, None] * (boxes.max() + 1)
        keep = indices_after_nms(boxes + shift, scores, nms['iou_threshold'], cfg.max_per_img)
        return torch.cat((boxes[keep], scores[keep, None]), 1), keep

    ours = dict(filter_scores_and_topk=above_threshold, batched_nms=best_boxes,
                InstanceData=_ExportableInstances)
    modules = {sys.modules[base.__module__] for base in type(head).__mro__}
    before = [(module, name, getattr(module, name))
              for module in modules for name in ours if hasattr(module, name)]
    head.test_cfg = type(cfg)({**cfg, 'min_bbox_size': -1})
    try:
        for module, name, _ in before:
            setattr(module, name, ours[name])
        yield
    finally:
        head.test_cfg = cfg
        for module, name, theirs in before:
            setattr(module, name, theirs)


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
