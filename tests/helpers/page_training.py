"""A config of a page, made small, and trained for some steps as it says."""
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from mmengine import registry
from mmengine.config import Config
from mmengine.model.utils import revert_sync_batchnorm
from mmengine.registry import DefaultScope
from torch import nn

from helpers.page_blocks import Block
from helpers.param_groups import build_optimizer
from helpers.shrunk_configs import build, collated, samples, shrink
from mmposenc.engine import load_config
from mmposenc.engine.config.checks import check_sections
from mmposenc.engine.config.config import LIVE_KEYS
from mmposenc.engine.config.options import check_silent_arguments
from mmposenc.signatures import accepted_arguments

#: What mmengine takes out of a section, or adds to it, before it builds.
TAKEN = {'type', '_scope_', 'priority', 'by_epoch', 'constructor', 'paramwise_cfg',
         'convert_to_iter_based'}


def load(block: Block, folder: Path) -> Config:
    """As train.py reads it, with all that train.py and test.py ask of a config."""
    path = folder / 'config.py'
    path.write_text(block.code)
    cfg = load_config(str(path))
    check_sections(cfg, ('train', 'val', 'test'))
    check_silent_arguments(cfg)
    registries = [each for each in vars(registry).values() if isinstance(each, registry.Registry)]
    for node in typed({key: value for key, value in cfg.items() if key in LIVE_KEYS - {'model'}}):
        found = None
        for each in registries:
            with each.switch_scope_and_registry(cfg.default_scope) as local:
                found = found or local.get(node['type'])
        accepted = accepted_arguments(found)
        assert accepted is None or set(node) - TAKEN <= accepted, node
    return cfg


def typed(node: Any) -> Iterator[dict]:
    """The parts of a config that are built: hooks, pipelines, data sets, evaluators."""
    if isinstance(node, dict) and isinstance(node.get('type'), str):
        yield node
    if isinstance(node, (dict, list, tuple)):
        for child in node.values() if isinstance(node, dict) else node:
            yield from typed(child)


def train(cfg: Config, steps: int) -> tuple[nn.Module, list[float]]:
    """The model at a few channels, and its loss at each step on one batch: the config's own
    optimizer, rate and clipping, after its warm-up."""
    cfg = shrink(cfg)
    model = revert_sync_batchnorm(build(cfg)).train()
    optimizer, losses = build_optimizer(model, cfg), []
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        batch = collated(samples(cfg, 2))
        for _ in range(steps):
            torch.manual_seed(0)  # the same dropped paths: what changes is what was learned
            data = model.data_preprocessor(copy.deepcopy(batch), training=True)
            loss, _ = model.parse_losses(model(**data, mode='loss'))
            optimizer.update_params(loss)
            losses.append(float(loss.detach()))
    return model, losses
