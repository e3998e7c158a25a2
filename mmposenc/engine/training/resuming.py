"""Names settings of a config that differ from those of the training that it resumes."""
from __future__ import annotations

from collections.abc import Mapping

from mmengine.config import Config
from mmengine.dist import get_world_size

from ..config.nodes import flat_config, value_at

#: The sections of a config whose values a checkpoint puts back.
_SECTIONS = ('optim_wrapper', 'param_scheduler', 'train_cfg')


def schedule_settings(cfg: Config) -> dict[str, str]:
    """What a config says of optimizer and schedule, and how many images a step of all processes
    has, to be saved in a checkpoint.

    Returns:
        the text of each value by its dotted key, such as ``optim_wrapper.optimizer.lr``.
    """
    config = cfg.to_dict()
    images = (value_at(config, 'train_dataloader.batch_size') or 1) * get_world_size()
    settings = flat_config({**{name: config.get(name) for name in _SECTIONS},
                            'images of a step': images})
    return {key: value.__name__ if isinstance(value, type) else repr(value)
            for key, value in settings.items()}


def changed_settings(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The settings that differ, as lines ``KEY: BEFORE -> NOW``."""
    return [f'{key}: {before.get(key, "none")} -> {now.get(key, "none")}'
            for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
