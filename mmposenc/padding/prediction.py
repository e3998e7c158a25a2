"""Detectors and segmentors of mmdet and mmseg whose predictions do not depend on the batch."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..functional.image_sizes import checked_img_shapes, set_img_shapes
from .single_images import padded_as_alone, sample_of_one

if TYPE_CHECKING:
    from mmengine.structures import BaseDataElement

#: Keys of a prediction's metainfo that depend on its batch.
_OF_BATCH = ('batch_input_shape', 'pad_shape', 'padding_size', 'img_padding_size', 'img_shape')


def keep_padding_out(model: nn.Module) -> nn.Module:
    """Change a model so that each image of a batch has the predictions of the image alone. Training
    does not change: the loss is the model's own.

    The images of a padded batch are predicted one by one, each padded as the data preprocessor pads
    a test batch of it alone. So any network and any head of mmdet or mmseg works. Weights and their
    names do not change.

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
        """Predictions of each image alone. The arguments are those of the model's own method.

        Raises:
            ValueError: the size of an image does not fit the batch.
        """
        model = self.model
        predict = type(model).predict  # The method of the model's class, which this object hides.
        # mmseg's models accept images without samples.
        if batch_data_samples is None or len(batch_inputs) == 1:
            return predict(model, batch_inputs, batch_data_samples, *args, **kwargs)
        # A data preprocessor of this project stores the sizes on the batch.
        stored = getattr(batch_inputs, 'img_shapes', None)
        sizes = checked_img_shapes(batch_inputs, stored or [
            sample.metainfo['img_shape'] for sample in batch_data_samples])
        images = [padded_as_alone(pixels[None, :, :rows, :cols], model.data_preprocessor)
                  for pixels, (rows, cols) in zip(batch_inputs, sizes, strict=True)]
        if all(image.shape[-2:] == batch_inputs.shape[-2:] for image in images):
            return predict(model, batch_inputs, batch_data_samples, *args, **kwargs)
        results = []
        for image, size, sample in zip(images, sizes, batch_data_samples, strict=True):
            if stored is not None:
                set_img_shapes(image, [size])
            alone = sample_of_one(sample, size, (image.shape[-2], image.shape[-1]))
            result, = predict(model, image, [alone], *args, **kwargs)
            result.set_metainfo({key: value for key, value in sample.metainfo.items()
                                 if key in _OF_BATCH})
            results.append(result)
        return results
