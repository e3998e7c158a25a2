"""Finds configs by file or by ``package::name``, and reads them."""
from __future__ import annotations

import inspect
import re
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner

from mmposenc.catalog.configs import find_config
from mmposenc.catalog.papers import changed_config_or_none
from mmposenc.terminal.messages import naming_errors

from .variables import refuse_unused_variables

#: The keys at the top level of a config that mmengine's runner and the tools read. Everything else
#: there is a variable of the config file, already substituted when the file was read.
LIVE_KEYS = (set(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg'}) | {
    'activation_checkpointing', 'compile', 'custom_imports', 'efficient_conv_bn_eval',
    'find_unused_parameters', 'load_strict', 'model_wrapper_cfg', 'runner_type',
    'sync_bn', 'tta_model', 'tta_pipeline'}


def load_config(name: str) -> Config:
    """Reads a config.

    Args:
        name: a file, ``mmposenc::detection/pvt/retinanet_pvt-t_fpn_1x_coco.py`` for one of this
            project's, ``mmdet::...`` for one of another installed package, or
            ``paper::cpvt/table6/3`` for a row of a paper's table (``mmposenc papers``).

    Raises:
        FileNotFoundError: there is no such config.
        ValueError: it cannot be read, or sets a variable of its base without effect.
    """
    if '::' in name:
        return _read_file(find_config(name))
    if not Path(name).is_file():
        changed = changed_config_or_none(name)
        if changed is not None:
            return _read_file(changed)
        raise FileNotFoundError(f'no config file {name!r}')
    cfg = _read_file(Path(name))
    refuse_unused_variables(Path(name), LIVE_KEYS)
    return cfg


def _read_file(path: Path) -> Config:
    with naming_errors(f'config {path}'):  # A config is code, so it may raise anything.
        return Config.fromfile(path)


def set_work_dir(cfg: Config, work_dir: str | None, encoding: str | None = None) -> None:
    """Set ``cfg.work_dir``: the argument, otherwise the config's own, otherwise work_dirs/<config
    name>, with _<encoding> behind it if ``--encoding`` names one."""
    if work_dir is not None:
        cfg.work_dir = work_dir
    elif cfg.get('work_dir') is None:
        suffix = '' if encoding is None else '_' + re.sub(r'[^\w.+-]+', '-', encoding)
        cfg.work_dir = str(Path('work_dirs', Path(cfg.filename).stem + suffix))
