"""The model of a config, and a checkpoint in it, without a runner."""
from __future__ import annotations

import copy
from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner.checkpoint import _load_checkpoint_to_model
from torch import nn

from ..checkpoint import load_checkpoint
from .checkpoints import mismatch
from .testing import scope_of


def build_model(cfg: Config) -> nn.Module:
    """The model of a config as a runner builds it: with its data preprocessor, and without the
    weights of its init_cfg.

    Raises:
        ValueError: the config's default_scope is no library's.
    """
    init_default_scope(scope_of(cfg))
    model = copy.deepcopy(cfg.model)  # classes of mmdet write into what they are built from
    if cfg.get('data_preprocessor') is not None:
        model.setdefault('data_preprocessor', copy.deepcopy(cfg.data_preprocessor))
    built: nn.Module = MODELS.build(model)
    return built


def load_weights(model: nn.Module, checkpoint: str) -> dict[str, Any]:
    """Puts all weights of a checkpoint into a model; runs no code of the file.

    Args:
        model: changed in place.
        checkpoint: a file that :func:`.checks.check_checkpoint` has passed.

    Returns:
        What the checkpoint says about itself (``meta``).

    Raises:
        ValueError: it does not fit; lists what does not.
    """
    loaded = load_checkpoint(checkpoint)
    state = loaded.get('state_dict', loaded)
    state = {name.removeprefix('module.'): value for name, value in state.items()}
    if wrong := mismatch(model.state_dict(), state):
        raise ValueError(f'{checkpoint} does not fit the model of the config; use the one that it '
                         f'was trained with:\n{wrong}')
    _load_checkpoint_to_model(model, loaded)
    meta = loaded.get('meta')
    return meta if isinstance(meta, dict) else {}
