"""Detectors and segmentors of mmdet and mmseg whose predictions do not depend on the batch."""
from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..functional.cells import Extents
from ..functional.masking import pad_map
from ..functional.tracing import uncompiled
from .context import IgnorePadding
from .images import (
    covered_pixels,
    image_sizes,
    maps_of_valid_cells,
    padded_as_alone,
    padded_maps,
    padded_to_multiple,
    sample_of_one,
)
from .layers import hide_padding_from_layers
from .trial import why_padding_is_read

if TYPE_CHECKING:
    from mmengine.structures import BaseDataElement

#: A batch is padded to a multiple of this number of pixels, for networks that enlarge maps by whole
#: factors.
MULTIPLE = 32
#: Keys of a prediction's metainfo that depend on its batch.
_OF_BATCH = ('batch_input_shape', 'pad_shape', 'padding_size', 'img_padding_size', 'img_shape')
#: A model, one of its images as a batch (1, C, H, W), and the sample of the image.
Alone = tuple[nn.Module, Tensor, 'BaseDataElement']


def keep_padding_out(model: nn.Module) -> nn.Module:
    """Change a model so that each image of a batch has the predictions of the image alone. Training
    does not change: the loss is the model's own.

    Backbone and neck process the whole batch and ignore padding
    (:class:`~mmposenc.padding.IgnorePadding`). Then the maps of each image, cut to its valid cells,
    go through the head and the post-processing separately. So no anchor, point or query lies in
    padding, and any head of mmdet or mmseg works. Weights and their names do not change.

    With the first padded batch, a trial on noise (:mod:`.trial`) finds whether backbone or neck
    read padding nevertheless. If so, images are predicted one by one.

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
    needed = ('extract_feat', 'loss', 'predict')
    if not all(callable(getattr(model, name, None)) for name in needed):
        raise ValueError(f'{type(model).__name__} must be a detector of mmdet or a segmentor of '
                         f'mmseg, with {", ".join(needed)}')
    if not isinstance(model.predict, Prediction):
        hide_padding_from_layers(model)
        model.predict = Prediction(model)  # type: ignore[assignment]
    return model


class Prediction:
    """Replaces the method ``predict`` of a model.

    Args:
        model: a detector of mmdet or a segmentor of mmseg.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model

    def __call__(self, batch_inputs: Tensor,
                 batch_data_samples: list[BaseDataElement] | None = None,
                 *args: object, **kwargs: object) -> list[BaseDataElement]:
        """Predictions of each image alone. The arguments are those of the model's own method."""
        model = self.model
        predict = type(model).predict  # The method of the model's class, which this object hides.
        if batch_data_samples is None:  # mmseg's models accept images without samples.
            return predict(model, batch_inputs, None, *args, **kwargs)
        images = image_sizes(batch_inputs, batch_data_samples)
        if all(image == tuple(batch_inputs.shape[-2:]) for image in images):
            return predict(model, batch_inputs, batch_data_samples, *args, **kwargs)
        results = []
        # In training mode a trial would change statistics, and sliding windows belong to one image
        # anyway.
        slides = hasattr(model, 'decode_head') and model.test_cfg.get('mode') == 'slide'
        whole = not model.training and not slides and self.why_one_by_one is None
        for alone, image, sample in (_images_with_maps_of_batch if whole else _images_alone)(
                model, batch_inputs, images, batch_data_samples):
            results += predict(alone, image, [sample], *args, **kwargs)
        for result, sample in zip(results, batch_data_samples, strict=True):
            result.set_metainfo({key: value for key, value in sample.metainfo.items()
                                 if key in _OF_BATCH})
        return results

    @cached_property
    def why_one_by_one(self) -> str | None:
        """Why maps of backbone and neck depend on padding, in words; None if they do not. If images
        are therefore predicted one by one, it is logged."""
        reason = _known_reason(self.model) or why_padding_is_read(self.model, _maps)
        if reason is not None:
            from ..backbones.modules import print_log  # Imported here, because it imports mmengine.
            print_log(f'{type(self.model).__name__}: {reason}. Images of a batch are predicted one '
                      f'by one', 'current')
        return reason


def _maps(model: Any, batch: Tensor, context: IgnorePadding | None) -> Any:
    """The outputs of ``extract_feat`` for a batch, in which compiled layers run uncompiled."""
    with ExitStack() as stack:
        if context is not None:
            stack.enter_context(uncompiled())
            stack.enter_context(context)
        return model.extract_feat(batch)


def _images_with_maps_of_batch(model: Any, batch: Tensor, images: Extents,
                               samples: list[BaseDataElement]) -> Iterator[Alone]:
    """Each image, with a copy of the model that returns the image's part of the maps of the whole
    batch."""
    batch = padded_to_multiple(batch, MULTIPLE)
    context = IgnorePadding(images, (batch.shape[-2], batch.shape[-1]))
    maps = _maps(model, batch, context)
    for i, (rows, cols) in enumerate(images):
        image = batch[i:i + 1, :, :rows, :cols]
        alone = padded_as_alone(image, model.data_preprocessor)
        if _modules_in(model, ('mask_head', 'semantic_head')):
            # These models predict maps of pixels, which mmdet enlarges by whole factors.
            image = alone
            its_maps = padded_maps(maps, i, context, image.shape[-2:])
        else:
            its_maps = maps_of_valid_cells(maps, i, context)
            if not hasattr(model, 'decode_head') and alone.shape != image.shape:
                image = pad_map(image, covered_pixels((rows, cols), batch.shape,
                                                      tree_leaves(maps)[0]))
        size = (image.shape[-2], image.shape[-1])
        yield _model_with_maps(model, image, its_maps), image, sample_of_one(samples[i], size, size)


def _images_alone(model: Any, batch: Tensor, images: Extents, samples: list[BaseDataElement]
                  ) -> Iterator[Alone]:
    """Each image, padded as in a test of this image alone."""
    for i, (rows, cols) in enumerate(images):
        image = padded_as_alone(batch[i:i + 1, :, :rows, :cols], model.data_preprocessor)
        yield model, image, sample_of_one(samples[i], (rows, cols),
                                          (image.shape[-2], image.shape[-1]))


def _model_with_maps(model: Any, image: Tensor, maps: Any) -> nn.Module:
    """A model of the same modules whose ``extract_feat`` returns these maps for this image."""
    alone = copy.copy(model)
    alone.extract_feat = lambda inputs: maps if inputs is image else model.extract_feat(inputs)
    return alone


def _modules_in(model: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    """The modules among these attributes of a model."""
    return [module for name in names
            if isinstance(module := getattr(model, name, None), nn.Module)]


def _known_reason(model: nn.Module) -> str | None:
    """Why the networks read padding, if that is known without a trial; otherwise None."""
    networks = _modules_in(model, ('backbone', 'neck'))
    if not networks:
        return f'{type(model).__name__} has no backbone of its own'
    return next((f'{type(network).__name__} has mask_padding=False; set mask_padding=True'
                 for network in networks if not getattr(network, 'mask_padding', True)), None)
