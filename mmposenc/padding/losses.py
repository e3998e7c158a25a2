"""The loss of a batch: mmdet's or mmseg's own, over the cells of its images alone."""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import derived

#: Heads, and what makes features of boxes, by their names in a detector or segmentor.
HEADS = ('bbox_head', 'rpn_head', 'mask_head', 'panoptic_head', 'decode_head', 'auxiliary_head')
#: Scores of cells that no image has: neither a sigmoid's loss nor its gradient sees them.
NOTHING = -1e4
_MMDET = 'mmdet.models.'
#: Losses of detectors and segmentors that hand maps to their heads and to nothing else; the last
#: but one runs a transformer in between.
_TRANSFORMER = f'{_MMDET}detectors.base_detr.DetectionTransformer'
_MODELS = {f'{_MMDET}detectors.{name}.loss' for name in (
    'single_stage.SingleStageDetector', 'two_stage.TwoStageDetector', 'maskformer.MaskFormer',
    'single_stage_instance_seg.SingleStageInstanceSegmentor')} | {
    f'{_TRANSFORMER}.loss', 'mmseg.models.segmentors.encoder_decoder.EncoderDecoder.loss'}
#: Heads of boxes that read maps by their extractors alone.
_ROI_HEADS = {f'{_MMDET}roi_heads.{name}' for name in (
    'standard_roi_head.StandardRoIHead', 'cascade_roi_head.CascadeRoIHead',
    'double_roi_head.DoubleHeadRoIHead', 'dynamic_roi_head.DynamicRoIHead',
    'mask_scoring_roi_head.MaskScoringRoIHead')}


class Several:
    """In the place of a tensor of a batch whose images differ in size: the tensor of each."""

    def __init__(self, images: Sequence[Any]) -> None:
        self.images = list(images)

    def __getitem__(self, index: int) -> Any:
        return self.images[index][0]


def batch_loss(model: Any, loss: Callable[..., Any], alone: list[tuple[Tensor, Any]]
               ) -> dict[str, Any]:
    """A model's own loss of a batch of images that are cut to their cells.

    Images of one size are a batch without padding. Of several sizes, what reads maps goes image by
    image, and what counts goes over all.

    Args:
        model: of mmdet or mmseg.
        loss: its own.
        alone: each image as a batch of one, with its maps noted on it, and its sample.

    Raises:
        ValueError: for a model whose loss has no form for several sizes.
    """
    images, samples = [image for image, _ in alone], [sample for _, sample in alone]
    levels = list(zip(*(image.own_maps for image in images), strict=True))  # type: ignore[attr-defined]
    if _one_size(images):
        batch = torch.cat(images)
        maps: list[Any] = [torch.cat(level) for level in levels]
        if hasattr(levels[0][0], 'head_maps'):
            maps[0].head_maps = {key: _cat([own.head_maps[key] for own in levels[0]])
                                 for key in levels[0][0].head_maps}
        batch.own_maps = tuple(maps)  # type: ignore[attr-defined]
        return loss(batch, samples)  # type: ignore[no-any-return]
    if (reason := why_not(model)) is not None:
        sizes = [sample.img_shape for sample in samples]
        raise ValueError(f'a batch of images of {sizes} pixels: {reason}')
    if _defines(model, 'loss') == f'{_TRANSFORMER}.loss':
        found = _transformed(model, levels, samples)
        return model.bbox_head.loss(**found, batch_data_samples=samples)  # type: ignore[no-any-return]
    several: Any = Several(images)
    several.own_maps = tuple(map(Several, levels))
    return loss(several, samples)  # type: ignore[no-any-return]


def _one_size(images: list[Tensor]) -> bool:
    return len({image.shape for image in images}) == 1


def why_not(model: Any) -> str | None:
    """Why a model's loss has no form for images of several sizes; None if it has one."""
    found = [(model, _defines(model, 'loss') in _MODELS)]
    if _defines(model, 'loss') == f'{_TRANSFORMER}.loss':
        dense = getattr(model, 'as_two_stage', False) and not hasattr(model, 'dn_query_generator')
        found += [(model, not dense and 'ddq' not in type(model).__module__)]
    else:
        found += [(head, _form(head) is not None) for head in _heads(model)]
    if roi_head := getattr(model, 'roi_head', None):
        found += [(roi_head, f'{type(roi_head).__module__}.{type(roi_head).__name__}'
                   in _ROI_HEADS)]
    return next((f'the loss of {type(part).__name__} has no form for images of several sizes; '
                 f'train it on images of one size in each batch'
                 for part, known in found if not known), None)


def put_loss_forms(model: nn.Module) -> None:
    """Put the forms in front of the classes of a model's heads, in place."""
    for module in model.modules():
        form: type | None = None
        if any(module is head for head in _heads(model)):
            form = _form(module)
        elif any(base.__name__ == 'BaseRoIExtractor' for base in type(module).__mro__):
            form = Extractor
        elif type(module).__name__ == 'CdnQueryGenerator':
            form = Denoising
        if form is not None:
            module.__class__ = derived(form, type(module))


def _heads(model: Any) -> list[nn.Module]:
    found = [getattr(model, name, None) for name in HEADS]
    return [head for value in found if isinstance(value, nn.Module)
            for head in (value if isinstance(value, nn.ModuleList) else [value])]


def _defines(module: Any, name: str) -> str:
    """The class that defines a method, ours left out, and the method."""
    for base in type(module).__mro__:
        if name in vars(base) and not base.__module__.startswith(__package__):
            return f'{base.__module__}.{base.__qualname__}.{name}'
    return ''


def _form(head: Any) -> type | None:
    """What goes in front of a head's class, by what its methods do."""
    loss, by_feat = _defines(head, 'loss'), _defines(head, 'loss_by_feat')
    if loss == f'{_MMDET}dense_heads.base_dense_head.BaseDenseHead.loss':
        # It hands on which anchors lie in an image; or scores of points are sigmoids'.
        codes = (vars(base)['loss_by_feat'].__code__ for base in type(head).__mro__
                 if 'loss_by_feat' in vars(base) and not base.__module__.startswith(__package__))
        code = next(each for each in codes if 'super' not in each.co_names)
        known = ('valid_flag_list' in code.co_varnames
                 or by_feat.endswith('.FCOSHead.loss_by_feat')) and not hasattr(head, 'loss_mask')
        return DenseHead if known else None
    if by_feat.rpartition('.')[0] in (f'{_MMDET}dense_heads.maskformer_head.MaskFormerHead',
                                      f'{_MMDET}dense_heads.solov2_head.SOLOV2Head'):
        return MaskHead
    if by_feat.endswith('.decode_head.BaseDecodeHead.loss_by_feat') and head.sampler is None:
        losses = head.loss_decode
        losses = losses if isinstance(losses, nn.ModuleList) else [losses]
        if all(type(each).__name__ == 'CrossEntropyLoss' and each.class_weight is None
               and not each.use_sigmoid and not each.use_mask
               and each.avg_non_ignore == losses[0].avg_non_ignore for each in losses):
            return SegmentHead
    return None


class ByImage:
    """Of a head that reads maps."""

    def forward(self, maps: Any, *args: Any, **kwargs: Any) -> Any:
        """Of maps of several sizes, those of each image by themselves."""
        if not isinstance(maps[0], Several):
            return super().forward(maps, *args, **kwargs)  # type: ignore[misc]
        count = len(maps[0].images)
        own = [self(*_own(i, count, (maps, *args)),  # type: ignore[operator]
                    **{key: _own(i, count, part) for key, part in kwargs.items()})
               for i in range(count)]
        return self.gathered(own)

    def gathered(self, outs: list[Any]) -> Any:
        """Of what the images have, what the head's loss takes."""
        if isinstance(outs[0], tuple):
            return tuple(map(Several, zip(*outs, strict=True)))
        return Several(outs)


class DenseHead(ByImage):
    """Of a detector's head with scores and boxes for every cell: its loss sees maps as large as the
    largest, and leaves out cells that an image does not have."""

    def gathered(self, outs: list[Any]) -> Any:
        """Scores are the first ones."""
        found = tuple(_joined(list(parts), 0.0 if number else NOTHING)
                      for number, parts in enumerate(zip(*outs, strict=True)))
        found[0][0].of_images = outs
        return found

    def predict_by_feat(self, *outs: Any, batch_img_metas: list[Any], **kwargs: Any) -> Any:
        """Proposals of each image by itself."""
        images = getattr(outs[0][0], 'of_images', None)
        own = super().predict_by_feat  # type: ignore[misc]
        if images is None:
            return own(*outs, batch_img_metas=batch_img_metas, **kwargs)
        return [found for image, meta in zip(images, batch_img_metas, strict=True)
                for found in own(*image, batch_img_metas=[meta], **kwargs)]


class MaskHead(ByImage):
    """Of a head of masks, whose loss is a sum over objects: that of each image, over the numbers of
    the batch."""

    loss_cls: nn.Module

    def loss_by_feat(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Sums of the images' own losses over what mmdet divides those of a batch by."""
        own = super().loss_by_feat  # type: ignore[misc]
        if not isinstance(args[0], Several):
            return own(*args, **kwargs)  # type: ignore[no-any-return]
        classes: list[Any] = []  # what its losses would be divided by, call by call
        masks: list[Tensor] = []  # the same where processes average it first

        def as_sum(module: Any, inputs: Any, named: dict[str, Any]) -> Any:
            classes.append(named['avg_factor'])
            return inputs, {**named, 'avg_factor': 1}

        def as_one(number: Tensor) -> Tensor:
            masks.append(number)
            return torch.ones_like(number)
        images = range(len(args[0].images))
        with ExitStack() as stack:
            for cls in type(self).__mro__:
                if hasattr(sys.modules[cls.__module__], 'reduce_mean'):
                    stack.enter_context(mock.patch.object(sys.modules[cls.__module__],
                                                          'reduce_mean', as_one))
            hook = self.loss_cls.register_forward_pre_hook(as_sum, with_kwargs=True)
            stack.callback(hook.remove)
            found = [own(*_own(i, len(images), args),
                         **{key: _own(i, len(images), part) for key, part in kwargs.items()})
                     for i in images]
        names = [name for name in found[0] if name.endswith('loss_cls')]
        # Layers come in their order, the last one first by name.
        calls = dict(zip(names[1:] + names[:1], zip(*(
            classes[i * len(names):(i + 1) * len(names)] for i in images), strict=True),
            strict=True))
        if masks:  # MaskFormer's; as many calls in every process, whatever its images
            numbers, more = [1] * len(images), 0
            from mmdet.utils import reduce_mean
            for call in range(len(names)):
                whole = reduce_mean(torch.stack(masks[call::len(names)]).sum(0))
            whole = whole.clamp(min=1).squeeze()
        else:  # SOLOv2's divides classes by one more
            numbers, more = [number - 1 for number in calls['loss_cls']], 1
            whole = max(sum(numbers), 1)
        return {name: sum(each[name].sum() for each in found)
                / (sum(number - more for number in calls[name]) + more) if name in calls else
                sum(each[name].sum() * number for each, number in zip(found, numbers, strict=True))
                / whole for name in found[0]}


class SegmentHead(ByImage):
    """Of a segmentor's head: the loss is a mean over the pixels of all images."""

    ignore_index: int
    loss_decode: Any

    def loss_by_feat(self, seg_logits: Any, batch_data_samples: list[Any]) -> dict[str, Any]:
        """Means of each image, by its number of pixels."""
        own = super().loss_by_feat  # type: ignore[misc]
        if not isinstance(seg_logits, Several):
            return own(seg_logits, batch_data_samples)  # type: ignore[no-any-return]
        found = []
        for logits, sample in zip(seg_logits.images, batch_data_samples, strict=True):
            labels = sample.gt_sem_seg.data
            valid = (labels != self.ignore_index).sum()
            counts = {True: valid, False: valid.new_tensor(labels.numel())}
            found.append((own(logits, [sample]), counts))
        loss = self.loss_decode[0] if isinstance(self.loss_decode, nn.ModuleList) else (
            self.loss_decode)
        means = {}
        for name in found[0][0]:
            counted = [counts[bool(loss.avg_non_ignore) or not name.startswith('loss')]
                       for _, counts in found]
            means[name] = sum(each[name] * number for (each, _), number in zip(
                found, counted, strict=True)) / sum(counted).clamp(min=1)  # type: ignore[union-attr]
        return means


class Extractor:
    """Of what makes features of boxes."""

    def forward(self, feats: Any, rois: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Those of each image out of its own maps."""
        own = super().forward  # type: ignore[misc]
        if not isinstance(feats[0], Several):
            return own(feats, rois, *args, **kwargs)
        found, places = [], []
        for i in range(len(feats[0].images)):
            place = (rois[:, 0] == i).nonzero()[:, 0]
            boxes = torch.cat([torch.zeros_like(rois[place, :1]), rois[place, 1:]], 1)
            found.append(own(tuple(level.images[i] for level in feats), boxes, *args, **kwargs))
            places.append(place)
        return torch.cat(found)[torch.cat(places).argsort()]


class Denoising:
    """Of what makes queries of noise of a batch's objects."""

    def __call__(self, batch_data_samples: Any) -> Any:
        """Those of one image, where they were made with the batch's."""
        made = getattr(batch_data_samples, 'queries', None)
        return super().__call__(batch_data_samples) if made is None else made  # type: ignore[misc]


class _Alone(list[Any]):
    """The sample of one image, with the queries of noise of its objects."""

    queries: Any = None


def _transformed(model: Any, levels: list[Any], samples: list[Any]) -> dict[str, Any]:
    """What a transformer gives for each image by itself, as its head takes it of a batch."""
    generator = getattr(model, 'dn_query_generator', None)
    made = None if generator is None else generator(samples)
    found = []
    for i, sample in enumerate(samples):
        alone = _Alone([sample])
        if made is not None:
            alone.queries = (*(queries[i:i + 1] for queries in made[:2]), *made[2:])
        found.append(model.forward_transformer(tuple(level[i] for level in levels), alone))
    # Those of each layer of a decoder are (L, B, Q, C).
    return {key: _cat([each[key] for each in found], layers=4) for key in found[0]}


def _cat(values: Sequence[Any], layers: int = 5) -> Any:
    """One batch of batches in nested lists, whose images are along the second dimension of tensors
    with so many dimensions."""
    first = values[0]
    if isinstance(first, Tensor):
        return torch.cat(list(values), int(first.dim() == layers))
    if isinstance(first, (list, tuple)):
        return type(first)(_cat(parts, layers) for parts in zip(*values, strict=True))
    return first


def _joined(values: list[Any], fill: float) -> Any:
    """Maps (1, C, H', W') of images in one (B, C, H, W), in nested lists."""
    if not isinstance(values[0], Tensor):
        return type(values[0])(_joined(list(parts), fill) for parts in zip(*values, strict=True))
    rows, cols = (max(x.shape[axis] for x in values) for axis in (-2, -1))
    return torch.cat([F.pad(x, (0, cols - x.shape[-1], 0, rows - x.shape[-2]), value=fill)
                      for x in values])


def _own(index: int, count: int, value: Any) -> Any:
    """What of an argument is one image's."""
    if isinstance(value, Several):
        return value.images[index]
    if isinstance(value, list) and len(value) == count and not isinstance(value[0], Several):
        return value[index:index + 1]
    if isinstance(value, (list, tuple)):
        return type(value)(_own(index, count, part) for part in value)
    return value
