"""What a training sends to TensorBoard, Weights & Biases and MLflow: backends of the visualizer.

All of them write below the work directory and connect to nothing, unless the tracker's own
environment variables say otherwise. A resumed training goes on in the run that it began; any other
training is a new one.
"""
from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.visualization import BaseVisBackend

#: Sections of a config whose values are MLflow's parameters; all of it is the artifact config.py.
_SECTIONS = ('auto_scale_lr', 'default_scope', 'model', 'optim_wrapper', 'param_scheduler',
             'randomness', 'train_cfg', 'train_dataloader')
#: MLflow takes so many parameters in a call, and so long ones.
_BATCH, _LONGEST = 100, 500


class _Tracker(BaseVisBackend):
    """What the backends share: a folder a run, opened when something is written.

    Args:
        save_dir: folder of the tracker; runs are ``run_1``, ``run_2`` and on below it.
    """

    def __init__(self, save_dir: str) -> None:
        super().__init__(save_dir)
        self._resumed = False
        self._path: Path | None = None
        self._run: Any = None

    @property
    def experiment(self) -> Any:
        """The tracker's own run."""
        if self._run is None:
            self._init_env()
        return self._run

    def _init_env(self) -> None:
        if self._path is None:
            root = Path(self._save_dir)
            last = max([int(path.name[4:]) for path in root.glob('run_*')
                        if path.name[4:].isdigit()], default=0)
            self._path = root / f'run_{last if last and self._resumed else last + 1}'
            self._path.mkdir(parents=True, exist_ok=True)
        self._run = self._open(self._path)

    def add_config(self, config: Config, **kwargs: Any) -> None:
        """Writes the config; one that resumes goes on in the newest run."""
        self._resumed = bool(config.get('resume'))
        self._write_config(config)

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        """Writes one number."""
        self.add_scalars({name: value}, step)

    def close(self) -> None:
        """Ends the run; what is written later opens it again."""
        if self._run is not None:
            self._end()
        self._run = None

    def _open(self, folder: Path) -> Any:
        raise NotImplementedError

    def _write_config(self, config: Config) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError


class TensorboardVisBackend(_Tracker):
    """Event files for ``tensorboard --logdir WORK_DIR/tensorboard``."""

    def _open(self, folder: Path) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder))

    def _write_config(self, config: Config) -> None:
        self.experiment.add_text('config', f'```\n{config.pretty_text}\n```')

    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        """Writes RGB bytes (H, W, 3)."""
        self.experiment.add_image(name, image, step, dataformats='HWC')

    def add_scalars(self, scalar_dict: Mapping[str, Any], step: int = 0, *args: Any,
                    **kwargs: Any) -> None:
        """Writes numbers."""
        for name, value in _numbers(scalar_dict).items():
            self.experiment.add_scalar(name, value, step)

    def _end(self) -> None:
        self._run.close()


class WandbVisBackend(_Tracker):
    """A run of Weights & Biases, offline unless ``WANDB_MODE`` says otherwise.

    mmengine's counts calls instead of taking the step, and copies the code of the folder it runs
    in. Here everything is logged over ``iteration``.

    Args:
        save_dir: folder of the runs.
        init_kwargs: to ``wandb.init``, such as project and name.
    """

    def __init__(self, save_dir: str, init_kwargs: dict[str, Any] | None = None) -> None:
        super().__init__(save_dir)
        self._init_kwargs = init_kwargs or {}

    def _open(self, folder: Path) -> Any:
        mode = os.environ.get('WANDB_MODE', 'offline')
        if mode == 'offline':  # its reports of errors go to a server too
            os.environ.setdefault('WANDB_ERROR_REPORTING', 'false')
        import wandb

        noted = folder / 'id'
        run = wandb.init(**{'dir': str(folder), 'mode': mode, 'resume': 'allow',
                            'id': noted.read_text() if noted.is_file() else None,
                            'settings': wandb.Settings(silent=True, console='off'),
                            **self._init_kwargs})
        noted.write_text(run.id)
        run.define_metric('iteration')
        run.define_metric('*', step_metric='iteration')
        return run

    def _write_config(self, config: Config) -> None:
        self.experiment.config.update(config.to_dict(), allow_val_change=True)

    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        """Writes RGB bytes (H, W, 3)."""
        import wandb

        self.experiment.log({name: wandb.Image(image), 'iteration': step})

    def add_scalars(self, scalar_dict: Mapping[str, Any], step: int = 0, *args: Any,
                    **kwargs: Any) -> None:
        """Writes numbers."""
        self.experiment.log({**_numbers(scalar_dict), 'iteration': step})

    def _end(self) -> None:
        self._run.finish()


class MLflowVisBackend(_Tracker):
    """A run of MLflow, in a folder unless ``MLFLOW_TRACKING_URI`` names a server or a database.

    mmengine's names every image once, whatever the step, and today's MLflow refuses the folder
    that it writes to. ``experiment`` is a pair of an MlflowClient and the run's id.

    Args:
        save_dir: folder of the runs.
        exp_name: of the experiment; else ``MLFLOW_EXPERIMENT_NAME``, else 'Default'.
    """

    def __init__(self, save_dir: str, exp_name: str | None = None) -> None:
        super().__init__(save_dir)
        self._exp_name = exp_name

    def _open(self, folder: Path) -> Any:
        server = os.environ.get('MLFLOW_TRACKING_URI')
        if not server:
            # MLflow wants to be told that a folder is meant, and no database; and it would report
            # its use to a server.
            os.environ.setdefault('MLFLOW_ALLOW_FILE_STORE', 'true')
            os.environ.setdefault('MLFLOW_DISABLE_TELEMETRY', 'true')
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        client = MlflowClient(server or (Path(self._save_dir).absolute() / 'mlruns').as_uri())
        noted = folder / 'id'
        try:
            if noted.is_file():
                client.update_run(noted.read_text(), 'RUNNING')
                return client, noted.read_text()
        except MlflowException:  # of another server
            pass
        name = self._exp_name or os.environ.get('MLFLOW_EXPERIMENT_NAME') or 'Default'
        found = client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else client.create_experiment(name)
        title = '/'.join([*Path(self._save_dir).absolute().parts[-2:-1], folder.name])
        run = client.create_run(experiment, run_name=title)
        noted.write_text(run.info.run_id)
        return client, run.info.run_id

    def _write_config(self, config: Config) -> None:
        from mlflow.entities import Param

        client, run = self.experiment
        client.log_text(run, config.pretty_text, 'config.py')
        known = client.get_run(run).data.params  # which MLflow never changes
        chosen = {key: value for key, value in config.to_dict().items() if key in _SECTIONS}
        params = [Param(name, value) for name, value in _leaves(chosen)
                  if name not in known and re.fullmatch(r'[\w\-. /:]+', name)
                  and len(name) < 250 and len(value) <= _LONGEST]
        for start in range(0, len(params), _BATCH):
            client.log_batch(run, params=params[start:start + _BATCH])

    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        """Writes RGB bytes (H, W, 3), as the artifact ``<name>/<step>.png``."""
        client, run = self.experiment
        client.log_image(run, image, f'{re.sub(r"[^A-Za-z0-9_./ -]", "_", name)}/{step:07d}.png')

    def add_scalars(self, scalar_dict: Mapping[str, Any], step: int = 0, *args: Any,
                    **kwargs: Any) -> None:
        """Writes numbers."""
        from mlflow.entities import Metric

        client, run = self.experiment
        now = int(time.time() * 1000)
        client.log_batch(run, metrics=[Metric(name, value, now, step)
                                       for name, value in _numbers(scalar_dict).items()])

    def _end(self) -> None:
        client, run = self._run
        client.set_terminated(run)


def _numbers(scalars: Mapping[str, Any]) -> dict[str, float]:
    """What can be drawn over the steps."""
    return {name: float(value) for name, value in scalars.items()
            if not isinstance(value, (str, bytes, dict, list, tuple))}


def _leaves(node: Any, name: str = '') -> Iterator[tuple[str, str]]:
    """The values of a config by their dotted keys."""
    inner = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in inner:
        full = f'{name}.{key}' if name else str(key)
        nested = isinstance(value, dict) or isinstance(value, (list, tuple)) and any(
            isinstance(each, dict) for each in value)
        if nested:
            yield from _leaves(value, full)
        else:
            yield full, str(value)
