"""The loss of mmdet's or mmseg's model over the valid cells of a padded batch.

Images of one size, cut to their valid cells, are a batch without padding. For different sizes,
functions that read maps run on each image, and functions that count objects run once over all: a
head gets :class:`Several` instead of each map, and a mixin passes on what its own loss needs.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from .layers import HEADS, derived, parts

#: Attributes of a model that hold heads with a loss.
LOSS_HEADS = (*HEADS, 'panoptic_head')
#: Score of cells outside of an image: a sigmoid's loss and its gradient are zero there.
NOTHING = -1e4
#: Classes of mmdet and mmseg whose ``loss`` passes maps only to their heads; in the last one a
#: transformer comes between.
MODELS = ('SingleStageDetector', 'RPN', 'TwoStageDetector', 'MaskFormer', 'EncoderDecoder',
          'SingleStageInstanceSegmentor', 'DetectionTransformer')
#: mmdet's box heads that read maps only through their extractors.
ROI_HEADS = ('StandardRoIHead', 'CascadeRoIHead', 'DoubleHeadRoIHead', 'DynamicRoIHead',
             'MaskScoringRoIHead')


class Several:
    """The tensors of images of different sizes, in place of the tensor of a batch."""

    def __init__(self, images: Sequence[Any]) -> None:
        self.images = list(images)

    def __getitem__(self, index: int) -> Any:
        return self.images[index][0]


def batch_loss(model: Any, loss: Callable[..., Any], alone: list[tuple[Tensor, Any]]
               ) -> dict[str, Any]:
    """A model's own loss of a batch of images that are cut to their valid cells.

    Args:
        model: a model of mmdet or mmseg.
        loss: its own loss function.
        alone: each image as a batch of one, with its maps in ``own_maps``, and its sample.

    Raises:
        ValueError: the loss of this model has no form for images of several sizes.
    """
    images, samples = [image for image, _ in alone], [sample for _, sample in alone]
    maps = [image.own_maps for image in images]  # type: ignore[attr-defined]
    if _one_size(images):
        batch = torch.cat(images)
        batch.own_maps = _joined(maps, torch.cat)  # type: ignore[attr-defined]
        if hasattr(maps[0][0], 'head_maps'):
            batch.own_maps[0].head_maps = _joined(  # type: ignore[attr-defined]
                [own[0].head_maps for own in maps], torch.cat)
        return loss(batch, samples)  # type: ignore[no-any-return]
    if (reason := why_not(model)) is not None:
        sizes = [sample.img_shape for sample in samples]
        raise ValueError(f'a batch of images of {sizes} pixels: {reason}')
    if _definer(model, 'loss') == 'DetectionTransformer':
        found = _transformed(model, maps, samples)
        return model.bbox_head.loss(**found, batch_data_samples=samples)  # type: ignore[no-any-return]
    several: Any = Several(images)
    several.own_maps = tuple(map(Several, zip(*maps, strict=True)))
    return loss(several, samples)  # type: ignore[no-any-return]


def _one_size(images: list[Tensor]) -> bool:
    return len({image.shape for image in images}) == 1


def why_not(model: Any) -> str | None:
    """Why a model's loss has no form for images of several sizes; None if it has one."""
    known, heads = _definer(model, 'loss'), parts(model, LOSS_HEADS)
    found = [(model, known in MODELS)]
    if known == 'DetectionTransformer':
        dense = getattr(model, 'as_two_stage', False) and not hasattr(model, 'dn_query_generator')
        found += [(model, not dense and 'ddq' not in type(model).__module__)]
    else:
        found += [(head, _form(head) is not None) for head in heads]
    if roi_head := getattr(model, 'roi_head', None):
        found += [(roi_head, _name(type(roi_head)) in ROI_HEADS)]
    return next((f'the loss of {type(part).__name__} has no form for images of several sizes; '
                 f'train it on images of one size in each batch'
                 for part, has in found if not has), None)


def put_loss_forms(model: nn.Module) -> None:
    """Replace the classes of a model's heads and extractors by classes with these forms."""
    forms = {head: _form(head) for head in parts(model, LOSS_HEADS)}
    for module in model.modules():
        if any(base.__name__ == 'BaseRoIExtractor' for base in type(module).__mro__):
            forms[module] = Extractor
    for module, form in forms.items():
        if form is not None:
            module.__class__ = derived(form, type(module))


def _name(cls: type) -> str:
    """The name of a class of mmdet or mmseg; an empty string for other classes."""
    return cls.__name__ if cls.__module__.partition('.')[0] in ('mmdet', 'mmseg') else ''


def _definers(module: Any, name: str) -> list[type]:
    """The classes that define a method, without those of this project."""
    return [base for base in type(module).__mro__
            if name in vars(base) and not base.__module__.startswith(__package__)]


def _definer(module: Any, name: str) -> str:
    return next(map(_name, _definers(module, name)), '')


def _form(head: Any) -> type | None:
    """The mixin for a head's class, chosen by its methods."""
    by_feat = _definer(head, 'loss_by_feat')
    if _definer(head, 'loss') == 'BaseDenseHead':
        # It passes on which anchors lie in an image, or has sigmoid scores of points.
        codes = [vars(base)['loss_by_feat'].__code__ for base in _definers(head, 'loss_by_feat')]
        code = next(each for each in codes if 'super' not in each.co_names)
        known = 'valid_flag_list' in code.co_varnames or by_feat == 'FCOSHead'
        return DenseHead if known and not hasattr(head, 'loss_mask') else None
    if by_feat in ('MaskFormerHead', 'SOLOV2Head'):
        return MaskHead
    if by_feat == 'BaseDecodeHead' and head.sampler is None:
        losses = _losses(head)
        if all(type(each).__name__ == 'CrossEntropyLoss' and each.class_weight is None
               and not each.use_sigmoid and not each.use_mask
               and each.avg_non_ignore == losses[0].avg_non_ignore for each in losses):
            return SegmentHead
    return None


def _losses(head: Any) -> list[Any]:
    found = head.loss_decode
    return list(found) if isinstance(found, nn.ModuleList) else [found]


class ByImage:
    """The form of a head that reads maps."""

    def forward(self, maps: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the head on each image if maps have several sizes."""
        if not isinstance(maps[0], Several):
            return super().forward(maps, *args, **kwargs)  # type: ignore[misc]
        return self.gathered(_each(self, (maps, *args), kwargs))

    def gathered(self, outs: list[Any]) -> Any:
        """Join the outputs of the images to the arguments of the head's loss."""
        if isinstance(outs[0], tuple):
            return tuple(map(Several, zip(*outs, strict=True)))
        return Several(outs)


class DenseHead(ByImage):
    """The form of a detector's head with scores and boxes for every cell: its loss gets maps of the
    largest size and leaves out cells outside of an image."""

    def gathered(self, outs: list[Any]) -> Any:
        """Join the outputs, of which the scores come first."""
        found = tuple(_joined(own, partial(_filled, fill=0.0 if number else NOTHING))
                      for number, own in enumerate(zip(*outs, strict=True)))
        found[0][0].of_images = outs
        return found

    def predict_by_feat(self, *outs: Any, batch_img_metas: list[Any], **kwargs: Any) -> Any:
        """Proposals of each image separately."""
        images = getattr(outs[0][0], 'of_images', None)
        own = super().predict_by_feat  # type: ignore[misc]
        if images is None:
            return own(*outs, batch_img_metas=batch_img_metas, **kwargs)
        return [found for image, meta in zip(images, batch_img_metas, strict=True)
                for found in own(*image, batch_img_metas=[meta], **kwargs)]


class MaskHead(ByImage):
    """The form of a mask head, whose losses are sums over objects divided by their number: the mean
    of the images' losses, weighted by these numbers."""

    loss_cls: nn.Module

    def loss_by_feat(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        own = super().loss_by_feat  # type: ignore[misc]
        if not isinstance(args[0], Several):
            return own(*args, **kwargs)  # type: ignore[no-any-return]
        classes: list[Any] = []  # divisors of the losses, by image and layer
        masks: list[Any] = []  # divisors that are averaged over processes first

        def counted(number: Tensor) -> Tensor:
            masks.append(number)
            return number
        hook = self.loss_cls.register_forward_pre_hook(
            lambda module, inputs, named: classes.append(named['avg_factor']), with_kwargs=True)
        with ExitStack() as stack:
            stack.callback(hook.remove)
            for module in {sys.modules[cls.__module__] for cls in type(self).__mro__}:
                if hasattr(module, 'reduce_mean'):
                    stack.enter_context(mock.patch.object(module, 'reduce_mean', counted))
            found = _each(own, args, kwargs)
        names = [name for name in found[0] if name.endswith('loss_cls')]
        layers = len(names)
        # The calls come in the order of layers; in the names the last layer is first.
        numbers = {name: classes[layer::layers]
                   for layer, name in enumerate([*names[1:], *names[:1]])}
        if masks:  # MaskFormer's; every process makes the same number of calls
            from mmdet.utils import reduce_mean
            whole = [reduce_mean(sum(masks[layer::layers])) for layer in range(layers)][-1]
            whole, more = whole.clamp(min=1).squeeze(), 0
            objects = [number.clamp(min=1).squeeze() for number in masks[::layers]]
        else:  # SOLOv2's divides classes by one more
            objects, more = [number - 1 for number in classes], 1
            whole = max(sum(objects), 1)
        return {name: _mean(name, found, numbers[name],
                            sum(number - more for number in numbers[name]) + more)
                if name in numbers else _mean(name, found, objects, whole) for name in found[0]}


class SegmentHead(ByImage):
    """The form of a segmentor's head: the loss is a mean over the pixels of all images."""

    ignore_index: int

    def loss_by_feat(self, seg_logits: Any, batch_data_samples: list[Any]) -> dict[str, Any]:
        """The mean of the images' losses, weighted by their numbers of pixels."""
        own = super().loss_by_feat  # type: ignore[misc]
        if not isinstance(seg_logits, Several):
            return own(seg_logits, batch_data_samples)  # type: ignore[no-any-return]
        found = _each(own, (seg_logits, batch_data_samples), {})
        labels = [sample.gt_sem_seg.data for sample in batch_data_samples]
        valid = [(each != self.ignore_index).sum() for each in labels]
        every = [count.new_tensor(each.numel()) for each, count in zip(labels, valid, strict=True)]
        means = {}
        for name in found[0]:
            ignores = _losses(self)[0].avg_non_ignore or not name.startswith('loss')
            counts = valid if ignores else every
            means[name] = _mean(name, found, counts, sum(counts).clamp(min=1))  # type: ignore[union-attr]
        return means


class Extractor:
    """The form of an extractor of box features."""

    def forward(self, feats: Any, rois: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Extract the features of each image from its own maps."""
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


def _transformed(model: Any, maps: list[Any], samples: list[Any]) -> dict[str, Any]:
    """The outputs of a transformer for each image, joined to a batch for the head."""
    name, found = 'dn_query_generator', []
    # Denoising queries are drawn once for the batch.
    made = getattr(model, name)(samples) if hasattr(model, name) else None
    for i, (own, sample) in enumerate(zip(maps, samples, strict=True)):
        with ExitStack() as stack:
            if made is not None:
                mine = (*(queries[i:i + 1] for queries in made[:2]), *made[2:])
                stack.enter_context(mock.patch.dict(
                    model._modules, {name: mock.Mock(return_value=mine)}))
            found.append(model.forward_transformer(own, [sample]))
    # Outputs of a decoder's layers are (L, B, Q, C).
    return _joined(found, lambda each: torch.cat(each, int(each[0].dim() == 4)))  # type: ignore[no-any-return]


def _joined(values: Sequence[Any], join: Callable[[Any], Tensor]) -> Any:
    """Join nested lists of tensors of the images; other values are taken from the first image."""
    leaves, forms = zip(*map(tree_flatten, values), strict=True)
    return tree_unflatten([join(each) if isinstance(each[0], Tensor) else each[0]
                           for each in zip(*leaves, strict=True)], forms[0])


def _filled(maps: Sequence[Tensor], fill: float) -> Tensor:
    """Maps (1, C, H', W') of the images as one map (B, C, H, W), filled up with ``fill``."""
    rows, cols = (max(x.shape[axis] for x in maps) for axis in (-2, -1))
    return torch.cat([F.pad(x, (0, cols - x.shape[-1], 0, rows - x.shape[-2]), value=fill)
                      for x in maps])


def _mean(name: str, found: list[Any], numbers: Sequence[Any], whole: Any) -> Any:
    """The sum of the images' losses, each times its number, divided by the total number."""
    return sum(each[name].sum() * number
               for each, number in zip(found, numbers, strict=True)) / whole


def _each(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The results of a function for each image's part of the arguments."""
    first = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
    while not isinstance(first, Several):
        first = first[0]
    count = len(first.images)
    return [function(*_own(i, count, args),
                     **{key: _own(i, count, part) for key, part in kwargs.items()})
            for i in range(count)]


def _own(index: int, count: int, value: Any) -> Any:
    """One image's part of an argument."""
    if isinstance(value, Several):
        return value.images[index]
    if isinstance(value, list) and len(value) == count and not isinstance(value[0], Several):
        return value[index:index + 1]
    if isinstance(value, (list, tuple)):
        return type(value)(_own(index, count, part) for part in value)
    return value
