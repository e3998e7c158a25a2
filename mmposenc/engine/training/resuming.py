"""Names settings of a config that differ from those of the training that it resumes."""
from __future__ import annotations

from collections.abc import Mapping

from mmengine.config import Config
from torch.utils._pytree import tree_flatten_with_path

#: The sections of a config whose values a checkpoint puts back.
_SECTIONS = ('optim_wrapper', 'param_scheduler', 'train_cfg')


def schedule_settings(cfg: Config) -> dict[str, str]:
    """What a config says of optimizer and schedule, to be saved in a checkpoint.

    Returns:
        the text of each value by its dotted key, such as ``optim_wrapper.optimizer.lr``.
    """
    sections = {name: cfg.to_dict().get(name) for name in _SECTIONS}
    return {'.'.join(str(getattr(part, 'key', getattr(part, 'idx', ''))) for part in path):
            value.__name__ if isinstance(value, type) else repr(value)
            for path, value in tree_flatten_with_path(sections)[0]}


def changed_settings(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The settings that differ, as lines ``KEY: BEFORE -> NOW``."""
    return [f'{key}: {before.get(key, "none")} -> {now.get(key, "none")}'
            for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
