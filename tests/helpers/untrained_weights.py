"""Weights of a config's model that nobody trained, in a file as training writes it."""
from collections.abc import Sequence
from pathlib import Path

import torch

from mmposenc.engine import load_config
from mmposenc.engine.config.models import build_model


def saved(config: Path, path: Path, classes: Sequence[str] | None = None) -> Path:
    """Random weights of a config, in ``path``; with the names of classes of its data set."""
    torch.manual_seed(0)
    model = build_model(load_config(str(config)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith('weight') and parameter.ndim > 1:
                # So that pictures differ in what is predicted, and boxes from their picture.
                parameter.mul_(0.01 if 'retina_reg' in name else 3)
    meta = {} if classes is None else {'dataset_meta': {'classes': list(classes)}}
    torch.save({'state_dict': model.state_dict(), 'meta': meta}, path)
    return path
