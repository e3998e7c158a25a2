"""Builds the model of a config without a runner, on a device, with its weights."""
from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.model import BaseModule
from mmengine.model.weight_init import PretrainedInit
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from mmposenc.backbones import load_pretrained
from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.openmmlab.logs import quiet_log
from mmposenc.padding import keep_padding_out
from mmposenc.terminal.messages import error_text

from .arguments import check_arguments
from .nodes import find_or_add_custom_hook, listed
from .parsed import ParsedConfig


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
    parsed = ParsedConfig(cfg)
    init_default_scope(parsed.library)
    if check:
        check_arguments(parsed)
    # A copy, because classes of mmdet write into the config from which they are built.
    model = copy.deepcopy(cfg.model)
    if cfg.get('data_preprocessor') is not None:
        model.setdefault('data_preprocessor', copy.deepcopy(cfg.data_preprocessor))
    return MODELS.build(model)


def build_backbone(scope: str, backbone: ReadOnlyConfig, device: str = 'meta') -> nn.Module:
    """Build a backbone for inference; on 'meta' it has no numbers and can only be asked for its
    sizes."""
    init_default_scope(scope)
    with torch.device(device):
        built: nn.Module = MODELS.build(copy.deepcopy(backbone)).eval()
    return built


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
        model: a model of mmdet, mmseg or mmpretrain; changed in place.
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
