"""What ``--tracker`` puts into the config of a training; see tracker_backends.py."""
from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from mmengine.config import Config, ConfigDict

from .testing import VISUALIZERS_OF, scope_of

#: By name of a tracker: its backend here, its module and what `pip install` takes.
TRACKERS = {'tensorboard': ('TensorboardVisBackend', 'tensorboard', 'tensorboard'),
            'wandb': ('WandbVisBackend', 'wandb', 'wandb'),
            'mlflow': ('MLflowVisBackend', 'mlflow', 'mlflow')}


def add_trackers(cfg: Config, names: Sequence[str]) -> None:
    """Makes a training write to trackers, as ``--tracker`` does.

    Scalars of validation are then given the iteration, as those of training are, unless the
    config's LoggerHook says otherwise.

    Args:
        cfg: with a work_dir; changed in place.
        names: of 'tensorboard', 'wandb' and 'mlflow'.

    Raises:
        ValueError: another name, or a package that is not installed.
    """
    if not names:
        return
    backends = []
    for name in dict.fromkeys(names):
        if name not in TRACKERS:
            raise ValueError(f'tracker={name!r} must be one of {", ".join(TRACKERS)}')
        kind, module, package = TRACKERS[name]
        if find_spec(module) is None:
            raise ValueError(f'tracker={name!r} needs a package that is not installed: '
                             f'pip install {package}')
        backends.append(dict(type=f'mmposenc.{kind}',
                             save_dir=str(Path(cfg.work_dir).absolute() / name)))
    cfg.visualizer = {'type': VISUALIZERS_OF[scope_of(cfg)], **(cfg.get('visualizer') or {})}
    before = cfg.visualizer.get('vis_backends') or [dict(type='LocalVisBackend')]
    cfg.visualizer.vis_backends = [*(before if isinstance(before, list) else [before]), *backends]
    hooks = cfg.setdefault('default_hooks', ConfigDict())
    if hooks.get('logger', {}) is not None:
        hooks.logger = {'type': 'LoggerHook', 'log_metric_by_epoch': False,
                        **(hooks.get('logger') or {})}
    kept = cfg.get('custom_hooks') or []
    if not any(hook.get('type') == 'mmposenc.TrackerHook' for hook in kept):
        cfg.custom_hooks = [*kept, dict(type='mmposenc.TrackerHook')]
