"""mmengine's backends for TensorBoard, Weights & Biases and MLflow, with a folder for each run.

All of them write below the work directory and connect to nothing, unless the tracker's own
environment variables say otherwise. A resumed training continues the run that it began; any other
training is a new run.
"""
from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from mmengine import visualization
from mmengine.config import Config, ConfigDict

from ..config.nodes import custom_hook, listed
from ..config.testing import VISUALIZERS_OF, scope_of

#: Sections of a config whose values are MLflow's parameters; all of it is the artifact config.py.
_SECTIONS = ('auto_scale_lr', 'default_scope', 'model', 'optim_wrapper', 'param_scheduler',
             'randomness', 'train_cfg', 'train_dataloader')


class _Runs(visualization.BaseVisBackend):
    """Folders ``run_1``, ``run_2`` and on below ``save_dir``."""

    _resumed = False

    @cached_property
    def _folder(self) -> Path:
        """The folder of this run: the newest when a training resumes, else a new one."""
        root = Path(self._save_dir).absolute()
        last = max([int(path.name[4:]) for path in root.glob('run_*')
                    if path.name[4:].isdigit()], default=0)
        folder = root / f'run_{last if last and self._resumed else last + 1}'
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def _noted(self) -> str | None:
        """The tracker's own id of this run."""
        return path.read_text() if (path := self._folder / 'id').is_file() else None

    def add_config(self, config: Config, **kwargs: Any) -> None:
        """Writes the config; a resumed training continues the newest run."""
        self._resumed = bool(config.get('resume'))
        self._write_config(config)

    def _write_config(self, config: Config) -> None:
        super().add_config(config)

    def close(self) -> None:
        """Ends the run; what is written later opens it again."""
        if self._env_initialized:
            self._end()
        self._env_initialized = False

    def _end(self) -> None:
        super().close()


class TensorboardVisBackend(_Runs, visualization.TensorboardVisBackend):
    """Event files for ``tensorboard --logdir WORK_DIR/tensorboard``."""

    def _init_env(self) -> None:
        self._save_dir = str(self._folder)
        super()._init_env()


class WandbVisBackend(_Runs, visualization.WandbVisBackend):
    """A run of Weights & Biases, offline unless ``WANDB_MODE`` says otherwise.

    mmengine's takes no step and copies the code of the folder it runs in. Here everything is
    logged over ``iteration``.
    """

    def _init_env(self) -> None:
        mode = os.environ.get('WANDB_MODE', 'offline')
        if mode == 'offline':  # its reports of errors go to a server too
            os.environ.setdefault('WANDB_ERROR_REPORTING', 'false')
        self._init_kwargs = {'dir': str(self._folder), 'mode': mode, 'resume': 'allow',
                             'settings': dict(silent=True, console='off'),
                             **({'id': self._noted} if self._noted else {}),
                             **(self._init_kwargs or {})}
        super()._init_env()
        (self._folder / 'id').write_text(self._wandb.run.id)
        self._wandb.define_metric('iteration')
        self._wandb.define_metric('*', step_metric='iteration')

    def _write_config(self, config: Config) -> None:
        self.experiment.config.update(config.to_dict(), allow_val_change=True)

    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        """Writes RGB bytes (H, W, 3)."""
        self.add_scalars({name: self.experiment.Image(image)}, step)

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        """Writes one number."""
        self.add_scalars({name: value}, step)

    def add_scalars(self, scalar_dict: dict[str, Any], step: int = 0, *args: Any,
                    **kwargs: Any) -> None:
        """Writes numbers."""
        super().add_scalars({**scalar_dict, 'iteration': step})


class MLflowVisBackend(_Runs, visualization.MLflowVisBackend):
    """A run of MLflow, in a folder unless ``MLFLOW_TRACKING_URI`` names a server or a database.

    mmengine's names every image once, whatever the step, begins a run in every resume and copies
    all logs and configs of the work directory, its own files among them; and today's MLflow
    refuses the folder that it writes to.

    Args:
        save_dir: folder of the runs.
        exp_name: of the experiment; else ``MLFLOW_EXPERIMENT_NAME``, else 'Default'.
    """

    def __init__(self, save_dir: str, exp_name: str | None = None) -> None:
        super().__init__(save_dir, exp_name=exp_name)

    def _init_env(self) -> None:
        root, server = self._folder.parent, os.environ.get('MLFLOW_TRACKING_URI')
        if not server:
            # MLflow must know that a folder is meant, not a database; and it would report
            # its use to a server.
            os.environ.setdefault('MLFLOW_ALLOW_FILE_STORE', 'true')
            os.environ.setdefault('MLFLOW_DISABLE_TELEMETRY', 'true')
        import mlflow

        self._mlflow = mlflow
        mlflow.set_tracking_uri(server or (root / 'mlruns').as_uri())
        if not server:  # MLflow sets it, and the next training would take it for the user's
            os.environ.pop('MLFLOW_TRACKING_URI', None)
        mlflow.set_experiment(
            self._exp_name or os.environ.get('MLFLOW_EXPERIMENT_NAME') or 'Default')
        known = None
        with suppress(mlflow.MlflowException):  # of another server
            known = self._noted and mlflow.get_run(self._noted).info.run_id
        run = mlflow.start_run(known, run_name=f'{root.parent.name}/{self._folder.name}')
        (self._folder / 'id').write_text(run.info.run_id)

    def _write_config(self, config: Config) -> None:
        mlflow = self.experiment
        mlflow.log_text(config.pretty_text, 'config.py')
        known = mlflow.active_run().data.params  # which MLflow never changes
        chosen = {key: value for key, value in config.to_dict().items() if key in _SECTIONS}
        mlflow.log_params({name: value for name, value in self._flatten(chosen).items()
                           if name not in known and re.fullmatch(r'[\w\-. /:]{1,249}', name)})

    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        """Writes RGB bytes (H, W, 3), as the artifact ``<name>/<step>.png``."""
        super().add_image(f'{re.sub(r"[^A-Za-z0-9_./ -]", "_", name)}/{step:07d}.png', image)

    def _end(self) -> None:
        self._mlflow.end_run()

    def _flatten(self, d: Any, parent_key: str = '', sep: str = '.') -> dict[str, Any]:
        """mmengine's, also of a list with both dicts and others."""
        return super()._flatten(d, parent_key, sep) if isinstance(d, dict) else {parent_key: d}


#: By name of a tracker, which is that of its package: its backend here.
TRACKERS = {'tensorboard': 'TensorboardVisBackend', 'wandb': 'WandbVisBackend',
            'mlflow': 'MLflowVisBackend'}


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
        if find_spec(name) is None:
            raise ValueError(f'tracker={name!r} needs a package that is not installed: '
                             f'pip install {name}')
        backends.append(dict(type=f'mmposenc.{TRACKERS[name]}',
                             save_dir=str(Path(cfg.work_dir).absolute() / name)))
    cfg.visualizer = {'type': VISUALIZERS_OF[scope_of(cfg)], **(cfg.get('visualizer') or {})}
    before = cfg.visualizer.get('vis_backends') or dict(type='LocalVisBackend')
    cfg.visualizer.vis_backends = [*listed(before), *backends]
    hooks = cfg.setdefault('default_hooks', ConfigDict())
    if hooks.get('logger', {}) is not None:
        hooks.logger = {'type': 'LoggerHook', 'log_metric_by_epoch': False,
                        **(hooks.get('logger') or {})}
    custom_hook(cfg, 'mmposenc.TrackerHook')
