"""Builds the model of a config without a runner: its device, its weights, and its inputs."""
from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.model import BaseModel, BaseModule
from mmengine.model.weight_init import PretrainedInit
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from mmposenc.backbones import load_pretrained
from mmposenc.config_types import ConfigType
from mmposenc.functional.image_sizes import set_img_shapes
from mmposenc.openmmlab.datasets.loading import LoadImageFromFile
from mmposenc.openmmlab.logs import quiet_log
from mmposenc.padding import keep_padding_out
from mmposenc.terminal.messages import error_text

from .arguments import check_arguments
from .nodes import find_or_add_custom_hook, listed
from .testing import scope_of

if TYPE_CHECKING:
    from mmdet.structures import DetDataSample


def device_of(name: str | None) -> torch.device:
    """The device of this name, 'cpu' or 'cuda:1'; for None an accelerator if there is one.

    Raises:
        ValueError: there is none of that name here.
    """
    try:
        device = torch.device(name or get_device())
        torch.empty(1, device=device).tolist()  # 'meta' would have no memory for this.
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f'device={name!r} cannot be used here: {error_text(error)}') from error
    return device


def build_model(cfg: Config, *, check: bool = True) -> nn.Module:
    """The model of a config as a runner builds it: with its data preprocessor, and without the
    weights of its init_cfg.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        check: whether to check classes and arguments first; a caller who has done so says False.

    Raises:
        ValueError: the config's default_scope is no library's, or a class or an argument of the
            model is not known.
    """
    init_default_scope(scope_of(cfg))
    if check:
        check_arguments(cfg)
    # A copy, because classes of mmdet write into the config from which they are built.
    model = copy.deepcopy(cfg.model)
    if cfg.get('data_preprocessor') is not None:
        model.setdefault('data_preprocessor', copy.deepcopy(cfg.data_preprocessor))
    return MODELS.build(model)


def build_to_predict(cfg: Config) -> nn.Module:
    """The model of :func:`build_model`, set up to predict as in a test: if ``KeepPaddingOut`` is
    among the config's hooks, padding is kept out of its predictions."""
    model = build_model(cfg)
    if find_or_add_custom_hook(cfg, 'KeepPaddingOut', add=False) is not None:
        keep_padding_out(model)
    return model


def build_bare(cfg: Config, device: str = 'cpu', *, check: bool = True) -> nn.Module:
    """The model of a config for inference, as training from scratch starts with it, and without
    the teacher of a distillation.

    The random weights are the same each time, because they may choose what is computed; the state
    of torch's generator stays.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        device: 'meta' is without numbers.
        check: as in :func:`build_model`.
    """
    cfg = copy.deepcopy(cfg)
    cfg.model.pop('teacher', None)
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(0)
        model = build_model(cfg, check=check).eval()
        if device != 'meta':  # The meta device holds no numbers.
            for module in model.modules():
                if getattr(module, 'init_cfg', None):
                    module.init_cfg = _without_pretrained(module.init_cfg)
            # mmdet's Swin would warn that it has no pretrained weights, which were left out on
            # purpose.
            init_weights_quietly(model, hidden_level=logging.WARNING)
    return model


def init_weights_quietly(model: BaseModule, hidden_level: int = logging.INFO) -> None:
    """Give all parameters the numbers with which training starts. Until then some of mmdet's (a
    level's embedding) hold whatever was in the memory before.

    Args:
        model: of mmdet, mmseg or mmpretrain; changed in place.
        hidden_level: messages of this level and below are not logged.
    """
    with quiet_log(hidden_level):  # mmengine logs every parameter.
        model.init_weights()


def _without_pretrained(init_cfg: ConfigType | list[ConfigType]) -> Any:
    """An init_cfg without its parts of type Pretrained; None if nothing is left."""
    # The PVT of mmdet takes a checkpoint without a type.
    return [cfg for cfg in listed(init_cfg)
            if cfg.get('type', 'Pretrained') not in ('Pretrained', PretrainedInit)] or None


def load_all_weights(model: nn.Module, checkpoint: str) -> dict[str, Any]:
    """Load all weights of a checkpoint into a model, without running code of the file.

    Args:
        model: changed in place.
        checkpoint: its file.

    Returns:
        What the checkpoint says about itself (``meta``).

    Raises:
        ValueError: it does not fit; lists what does not.
    """
    remedy = f'; use the config that it was trained with{hint_to_config_beside(checkpoint)}'
    return load_pretrained(model, checkpoint, same_model=True, remedy=remedy).meta


def hint_to_config_beside(checkpoint: str) -> str:
    """The end of a message: the path of the config that the training of a checkpoint wrote into its
    folder; '' if there is none."""
    configs = list(Path(checkpoint).parent.glob('*.py'))
    return f', {configs[0]}' if len(configs) == 1 else ''


def preprocessor_as_written(cfg: Config) -> ConfigType:
    """The data preprocessor of a config, in its model or at the top level; {} if there is none."""
    return cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor') or {}


def preprocessor_config(cfg: Config) -> ConfigType:
    """The data preprocessor of a config's model, with the library's type if it names none.

    Raises:
        ValueError: the config has none.
    """
    preprocessor = preprocessor_as_written(cfg)
    if not preprocessor:
        raise ValueError('the config has no data_preprocessor, so nothing says how images are '
                         'normalised')
    default = {'mmpretrain': 'ClsDataPreprocessor', 'mmseg': 'SegDataPreProcessor',
               'mmdet': 'DetDataPreprocessor'}[scope_of(cfg)]
    return {'type': default, **preprocessor}


def image_channels(cfg: Config) -> int:
    """The number of channels of the images that a config's model takes; one means grey."""
    return int((cfg.model.get('backbone') or {}).get('in_channels', 3))


def image_metas(images: Tensor) -> list[dict[str, Any]]:
    """What a model is told about images (B, C, H, W) that are not padded, one dict for each."""
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


def read_picture(cfg: Config, path: str) -> np.ndarray:
    """Read a picture: (h, w, 3) in the order blue, green, red, or (h, w) for a model that takes
    grey.

    Raises:
        ValueError: the file is no picture.
    """
    load = LoadImageFromFile(color_type='grayscale' if image_channels(cfg) == 1 else 'color')
    picture: np.ndarray = load.transform({'img_path': path})['img']
    return picture


def picture_as_input(cfg: Config, picture: np.ndarray, size: tuple[int, int]) -> Tensor:
    """Resize a picture, and normalise it as the config says.

    Args:
        cfg: whose data preprocessor.
        picture: as :func:`read_picture` gives it.
        size: (H, W).

    Returns:
        (1, in_channels, H, W); higher and wider where the preprocessor fills images up.
    """
    pixels = mmcv.imresize(np.ascontiguousarray(picture), size[::-1])
    tensor = torch.from_numpy(np.ascontiguousarray(
        pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)))
    preprocessor = MODELS.build(preprocessor_config(cfg))
    batch = preprocessor({'inputs': [tensor], 'data_samples': None}, training=False)['inputs']
    return torch.stack(list(batch)) if isinstance(batch, list | tuple) else batch


def noise_image(cfg: Config, size: tuple[int, int]) -> Tensor:
    """Noise (1, in_channels, H, W), the same in each call."""
    return torch.randn(1, image_channels(cfg), *size, generator=torch.Generator().manual_seed(0))
