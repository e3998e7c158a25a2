"""Makes a config from ``timm:NAME``: a classifier of timm on the user's folder."""
from __future__ import annotations

from pathlib import Path

import torch
from mmengine.config import Config

from mmposenc.catalog.configs import find_config
from mmposenc.checkpoint.hub import is_hub_name
from mmposenc.registry import MODELS
from mmposenc.terminal.messages import error_text

from .nodes import data_sets_with_keys

PREFIX = 'timm:'


def timm_config(name: str, img_size: int | None = None, checkpoint: str | None = None) -> Config:
    """The config that ``timm:NAME`` stands for: ``configs/_base_/timm.py`` with this model.

    Args:
        name: with the prefix.
        img_size: side in pixels; None: timm's for this model.
        checkpoint: weights to begin with, as TimmBackbone takes them; None: random.

    Raises:
        ImportError: timm is not installed.
        ValueError: it has no such model, or one without encodings or for other sizes.
        FileNotFoundError: there is no such checkpoint.
    """
    import mmposenc.integrations.timm  # noqa: F401  (says what to install)

    # isort: split
    from timm.models import get_pretrained_cfg, is_model

    model = name.removeprefix(PREFIX)
    try:
        pretrained = get_pretrained_cfg(model) if is_model(model) else None
    except RuntimeError as error:
        raise ValueError(f'{name}: {error}') from error
    if checkpoint and not is_hub_name(checkpoint) and not Path(checkpoint).is_file():
        raise FileNotFoundError(f'--checkpoint {checkpoint}: there is no such file')
    side = img_size or (pretrained.input_size[-1] if pretrained else 224)
    cfg = Config.fromfile(find_config('mmposenc::_base_/timm.py'))
    cfg.model.backbone.update(name=model, img_size=side)
    if checkpoint:
        cfg.model.backbone.init_cfg = dict(type='Pretrained', checkpoint=checkpoint)
    try:
        with torch.device('meta'), torch.no_grad():
            backbone = MODELS.build(cfg.model.backbone).eval()
            backbone(torch.zeros(1, 3, side, side))
    except (AssertionError, RuntimeError) as error:
        raise ValueError(f'{name}: images of {side}x{side} pixels: {error_text(error)}') from error
    cfg.model.head.in_channels = backbone.out_channels
    if pretrained:
        for key in ('mean', 'std'):
            cfg.data_preprocessor[key] = [round(255 * each, 3) for each in getattr(pretrained, key)]
    for _, dataset in data_sets_with_keys(cfg, 'train', 'val', 'test'):
        for step in dataset.pipeline:
            if step.type == 'RandomResizedCrop':
                step.scale = side
            elif step.type == 'ResizeEdge':
                step.scale = round(side * 256 / 224)
            elif step.type == 'CenterCrop':
                step.crop_size = side
    return Config(cfg._cfg_dict, cfg_text=cfg.text, filename=f'timm_{model}.py')
