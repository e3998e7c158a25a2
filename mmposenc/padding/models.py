"""Detectors and segmentors of mmdet and mmseg whose results do not depend on the batch."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from ..functional.masking import pad_map
from .extents import Extents, KeptOut
from .images import (
    as_alone,
    filled_up,
    image_sizes,
    of_whole_cells,
    own_cells,
    own_sample,
    reached_pixels,
)
from .layers import HEADS, derived, parts, put_forms
from .losses import batch_loss, put_loss_forms
from .masked import all_reached, shrunk
from .trial import what_reads_padding

#: Parts of a model that map a batch of images to maps.
NETWORKS = ('backbone', 'neck')
#: Heads that predict maps of pixels. mmdet's heads enlarge by whole factors, so maps need the
#: padded size of the image alone.
PIXELS = ('mask_head', 'semantic_head')
#: Backbones of this project that replace transformers, for which this module cannot mask padding.
OURS = {'SwinTransformer': 'Swin', 'SwinTransformerV2': 'Swin', 'PyramidVisionTransformer': 'PVT',
        'VisionTransformer': 'ViT', 'BEiT': 'ViT', 'BEiTViT': 'ViT'}
#: Keys of a prediction that depend on its batch.
_OF_BATCH = ('batch_input_shape', 'pad_shape', 'padding_size', 'img_padding_size', 'img_shape')


def keep_padding_out(model: nn.Module) -> nn.Module:
    """Change a model so that each image of a batch has the predictions of the image alone, and a
    batch has the loss without padding.

    Backbone and neck process the whole batch and ignore padding
    (:class:`~mmposenc.padding.KeptOut`). Then the maps of each image, cut to its valid cells, go
    through the head and the post-processing separately. So no anchor, point or query lies in
    padding, and any head of mmdet or mmseg works. The loss is the model's own loss of the batch
    (:mod:`~mmposenc.padding.losses`). BatchNorm in training takes statistics over the valid cells
    of the batch, in heads too. Weights and their names do not change.

    When it is first needed, a trial on noise (:mod:`.trial`) finds whether backbone or neck read
    padding nevertheless. If so, images are predicted one by one, and training on images of several
    sizes raises an error.

    Args:
        model: a detector of mmdet or a segmentor of mmseg, changed in place, or a model that merges
            predictions of one (``DetTTAModel``).

    Returns:
        The model.

    Raises:
        ValueError: the model is neither of them.
    """
    if hasattr(model, 'merge_preds'):
        keep_padding_out(model.module)  # type: ignore[arg-type]
        return model
    if isinstance(model, PaddingFree):
        return model
    needed = ('extract_feat', 'loss', 'predict')
    if not all(callable(getattr(model, name, None)) for name in needed):
        raise ValueError(f'{type(model).__name__} must be a detector of mmdet or a segmentor of '
                         f'mmseg, with {", ".join(needed)}')
    for head in _norm_heads(model):
        note_maps(head)
    put_forms(model)
    put_loss_forms(model)
    for part in parts(model, NETWORKS[:1]):
        if hasattr(part, 'mask_padding'):
            part.__class__ = derived(Backbone, type(part))
    model.tried = {}  # type: ignore[assignment]
    model.__class__ = derived(PaddingFree, type(model))
    return model


class PaddingFree:
    """The mixin that :func:`keep_padding_out` adds to a model's class."""

    #: The compiled networks, by :func:`.compiled.compile_networks`.
    compiled: Any = None
    #: Results of :meth:`reads_padding` in training and in evaluation mode.
    tried: dict[bool, str | None]

    def loss(self, batch_inputs: Tensor, batch_data_samples: list[Any]) -> dict[str, Any]:
        """The model's own loss over the valid cells of the images (:mod:`.losses`)."""
        whole = tuple(batch_inputs.shape[-2:])
        if self.compiled is None and all(
                size == whole for size in image_sizes(batch_inputs, batch_data_samples)):
            return super().loss(batch_inputs, batch_data_samples)  # type: ignore[misc, no-any-return]
        return batch_loss(self, super().loss, list(  # type: ignore[misc]
            self._images(batch_inputs, batch_data_samples, targets=True)))

    def predict(self, batch_inputs: Tensor, batch_data_samples: list[Any], *args: Any,
                **kwargs: Any) -> list[Any]:
        """Predictions of each image alone."""
        images = image_sizes(batch_inputs, batch_data_samples)
        many = len(images) > 1 or images[0] != tuple(batch_inputs.shape[-2:])
        one_by_one = _slides(self) or many and self.reads_padding() is not None
        found = []
        for image, sample in (
                _one_by_one(self, batch_inputs, images, batch_data_samples) if one_by_one else
                self._images(batch_inputs, batch_data_samples, targets=False)):
            found += super().predict(image, [sample], *args, **kwargs)  # type: ignore[misc]
        for result, sample in zip(found, batch_data_samples, strict=True):
            result.set_metainfo({key: value for key, value in sample.metainfo.items()
                                 if key in _OF_BATCH})
        return found

    def extract_feat(self, batch_inputs: Tensor) -> Any:
        """The maps stored on an image, if there are any; otherwise as in the model."""
        noted = getattr(batch_inputs, 'own_maps', None)
        return super().extract_feat(batch_inputs) if noted is None else noted  # type: ignore[misc]

    def _images(self, batch: Tensor, samples: list[Any], *, targets: bool
                ) -> Iterator[tuple[Tensor, Any]]:
        """Each image as a batch of one, on which its maps are stored, and its sample."""
        model: Any = self
        images = image_sizes(batch, samples)
        segments = hasattr(model, 'decode_head')
        padded = any(image != tuple(batch.shape[-2:]) for image in images)
        if targets:
            self.refuse_training()
        kept = None
        if padded or self.compiled is not None:  # the graph is compiled for padded batches
            batch = of_whole_cells(batch)
            kept = KeptOut(images, (batch.shape[-2], batch.shape[-1]))
        maps, heads = self._maps(batch, kept)
        whole = kept if _takes_whole(model) else None
        for i, image in enumerate(images):
            own = batch[i:i + 1, :, :image[0], :image[1]]
            one = as_alone(own, model.data_preprocessor)
            if whole is not None:
                own = one
            elif not segments and one.shape != own.shape:
                own = pad_map(own, reached_pixels(image, batch.shape, tree_leaves(maps)[0]))
            size = (own.shape[-2], own.shape[-1])
            mine = own_cells(maps, i, kept) if whole is None else filled_up(maps, i, whole, size)
            if heads:
                tree_leaves(mine)[0].head_maps = own_cells(heads, i, kept)
            own.own_maps = mine  # type: ignore[attr-defined]
            yield own, own_sample(samples[i], size, targets=targets)

    def reads_padding(self) -> str | None:
        """Why maps of backbone and neck depend on padding, in words; None if they do not. If images
        are therefore predicted one by one, it is logged once."""
        model: Any = self
        if model.training not in self.tried:
            found = self.tried[model.training] = _mistaken(model) or what_reads_padding(
                model, lambda batch, kept: self._maps(batch, kept, compiled=False))
            if found is not None and not model.training:
                from ..backbones.modules import print_log
                print_log(f'{type(model).__name__}: {found}. Images of a batch are predicted one '
                          f'by one', 'current')
        return self.tried[model.training]

    def refuse_training(self) -> None:
        """Raise a ValueError if the networks read padding in training."""
        if (found := self.reads_padding()) is not None:
            name = type(getattr(self, 'backbone', None)).__name__
            instead = (f'; use mmposenc.{OURS[name]} with mask_padding=True instead of {name}'
                       if name in OURS else '')
            raise ValueError(f'{found}: KeepPaddingOut cannot train {type(self).__name__}'
                             f'{instead}')

    def _maps(self, batch: Tensor, kept: KeptOut | None, *, compiled: bool = True
              ) -> tuple[Any, dict[int, Any]]:
        """The outputs of ``extract_feat`` for the batch; and, by the head's id, maps of heads that
        process the whole batch: heads with BatchNorms in training, and compiled heads."""
        model: Any = self
        given = None
        if kept is not None and hasattr(model.backbone, 'mask_padding'):
            given = model.backbone(batch, img_shapes=kept.images)  # masks padding itself
            for level, side in zip(given, model.backbone.strides, strict=True):
                kept.remember(level, all_reached(kept.images, shrunk(side)))
        if compiled and self.compiled is not None and kept is not None:
            return self.compiled(self, batch, batch if given is None else given, kept)
        heads = [head for head in _norm_heads(model)
                 if any(isinstance(m, _BatchNorm) and m.training for m in head.modules())]
        with kept or nullcontext():
            batch = batch[:]
            batch.given = given  # type: ignore[attr-defined]
            maps = self.network_maps(batch)
            return maps, {id(head): head(maps) for head in heads}

    def network_maps(self, inputs: Any) -> Sequence[Tensor]:
        """The outputs of ``extract_feat`` for a batch, or for maps of its backbone."""
        return super().extract_feat(inputs)  # type: ignore[misc, no-any-return]


class Backbone:
    """The mixin that :func:`keep_padding_out` adds to a backbone that masks padding."""

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """The maps stored on a batch or passed instead of it, if any; otherwise as the backbone."""
        given = getattr(x, 'given', None) if isinstance(x, Tensor) else x
        return super().forward(x, *args, **kwargs) if given is None else given  # type: ignore[misc]


class MapHead:
    """The mixin that :func:`keep_padding_out` adds to a head with BatchNorms."""

    def forward(self, maps: Any, *args: Any, **kwargs: Any) -> Any:
        """The head's maps stored on its input, if any; otherwise as the head."""
        noted = getattr(tree_leaves(maps)[0], 'head_maps', {})
        return noted[id(self)] if id(self) in noted else (
            super().forward(maps, *args, **kwargs))  # type: ignore[misc]


def note_maps(head: nn.Module) -> None:
    """Add the mixin :class:`MapHead` to a head's class, in place."""
    if not isinstance(head, MapHead):
        head.__class__ = derived(MapHead, type(head))


def _norm_heads(model: nn.Module) -> list[nn.Module]:
    """Heads with a BatchNorm, whose statistics in training are those of the batch."""
    return [head for head in parts(model, HEADS)
            if any(isinstance(module, _BatchNorm) for module in head.modules())]


def _takes_whole(model: nn.Module) -> bool:
    return bool(parts(model, PIXELS)) and hasattr(model.data_preprocessor, 'pad_size_divisor')


def _slides(model: Any) -> bool:
    """Whether a segmentor predicts sliding windows, which are laid over each image."""
    return hasattr(model, 'decode_head') and model.test_cfg.get('mode') == 'slide'


def _one_by_one(model: Any, batch: Tensor, images: Extents, samples: list[Any]
                ) -> Iterator[tuple[Tensor, Any]]:
    """Each image as a batch of one, and its sample."""
    for i, (height, width) in enumerate(images):
        own = batch[i:i + 1, :, :height, :width]
        if not _slides(model):
            own = as_alone(own, model.data_preprocessor)
        yield own, own_sample(samples[i], (own.shape[-2], own.shape[-1]), targets=False,
                              padding=(0, own.shape[-1] - width, 0, own.shape[-2] - height))


def _mistaken(model: nn.Module) -> str | None:
    """Why the networks read padding if this is known without a trial, or None."""
    if not parts(model, NETWORKS):
        return f'{type(model).__name__} has no backbone of its own'
    return next((f'{type(part).__name__} has mask_padding=False; set mask_padding=True'
                 for part in parts(model, NETWORKS) if not getattr(part, 'mask_padding', True)),
                None)

