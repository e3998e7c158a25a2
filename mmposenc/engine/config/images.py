"""Makes the inputs of a config's model: pictures, noise, and what a model reads about them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mmcv
import numpy as np
import torch
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor

from mmposenc.config_types import ConfigType
from mmposenc.functional.image_sizes import set_img_shapes
from mmposenc.openmmlab.datasets.loading import LoadImageFromFile

from .image_sizes import Size
from .parsed import ParsedConfig

if TYPE_CHECKING:
    from mmdet.structures import DetDataSample


def preprocessor_config(parsed: ParsedConfig) -> ConfigType:
    """The data preprocessor of a config's model, with the library's type if it names none.

    Raises:
        ValueError: the config has none.
    """
    if not parsed.preprocessor:
        raise ValueError('the config has no data_preprocessor, so nothing says how images are '
                         'normalised')
    default = {'mmpretrain': 'ClsDataPreprocessor', 'mmseg': 'SegDataPreProcessor',
               'mmdet': 'DetDataPreprocessor'}[parsed.library]
    return {'type': default, **parsed.preprocessor}


def image_metas(images: Tensor) -> list[dict[str, Any]]:
    """What a model reads about images (B, C, H, W) that are not padded, one dict for each."""
    size = (images.shape[-2], images.shape[-1])
    return [dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size,
                 scale_factor=(1.0, 1.0), img_id=number) for number in range(len(images))]


def image_samples(images: Tensor) -> list[DetDataSample]:
    """What :func:`image_metas` returns, as samples of mmdet, without which a DETR cannot run."""
    from mmdet.structures import DetDataSample

    return [DetDataSample(metainfo=meta) for meta in image_metas(images)]


def run_network(scope: str, model: BaseModel, image: Tensor) -> None:
    """Run the network of a model of library ``scope`` on one image (1, C, H, W), without
    post-processing."""
    set_img_shapes(image, [image.shape[-2:]])
    if scope == 'mmdet':
        model(image, image_samples(image), mode='tensor')
    elif scope == 'mmseg' and hasattr(model, 'encode_decode'):
        model.encode_decode(image, image_metas(image))
    else:
        model(image, mode='tensor')


def read_picture(parsed: ParsedConfig, path: str) -> np.ndarray:
    """Read a picture: (h, w, 3) in the order blue, green, red, or (h, w) for a model that takes
    grey.

    Raises:
        ValueError: the file is no picture.
    """
    load = LoadImageFromFile(color_type='grayscale' if parsed.channels == 1 else 'color')
    picture: np.ndarray = load.transform({'img_path': path})['img']
    return picture


def picture_as_input(parsed: ParsedConfig, picture: np.ndarray, size: Size) -> Tensor:
    """Resize a picture, and normalise it as the config says.

    Args:
        parsed: the config whose data preprocessor does it.
        picture: as :func:`read_picture` gives it.
        size: (H, W).

    Returns:
        (1, in_channels, H, W); higher and wider where the preprocessor fills images up.
    """
    pixels = mmcv.imresize(np.ascontiguousarray(picture), size[::-1])
    tensor = torch.from_numpy(np.ascontiguousarray(
        pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)))
    preprocessor = MODELS.build(preprocessor_config(parsed))
    batch = preprocessor({'inputs': [tensor], 'data_samples': None}, training=False)['inputs']
    return torch.stack(list(batch)) if isinstance(batch, list | tuple) else batch


def noise_image(parsed: ParsedConfig, size: Size) -> Tensor:
    """Noise (1, in_channels, H, W), the same in each call."""
    return torch.randn(1, parsed.channels, *size, generator=torch.Generator().manual_seed(0))
