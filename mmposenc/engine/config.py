"""Configs: found by file or by ``package::name``."""
from __future__ import annotations

import difflib
import importlib.util
import inspect
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner

from mmposenc.command_line import describe

#: What mmengine's runner and the tools read from the top level of a config. Everything else at
#: the top level is a variable of the config file, already substituted when the file was read.
LIVE_KEYS = (set(inspect.signature(Runner.__init__).parameters) - {'self', 'cfg'}) | {
    'activation_checkpointing', 'compile', 'custom_imports', 'efficient_conv_bn_eval',
    'find_unused_parameters', 'load_strict', 'model_wrapper_cfg', 'runner_type',
    'save_on_interrupt', 'sync_bn', 'tta_model', 'tta_pipeline'}


def load_config(name: str) -> Config:
    """Reads a config.

    Args:
        name: a file, ``mmposenc::detection/pvt/retinanet_pvt-t_fpn_1x_coco.py`` for one of this
            project's, or ``mmdet::...`` for one of another installed package.

    Raises:
        FileNotFoundError: there is no such config.
    """
    package, _, relative = name.rpartition('::')
    if package:
        roots = _roots(name, package)
        path = next((root / relative for root in roots if (root / relative).is_file()), None)
        if path is None:
            known = [str(file.relative_to(root)) for root in roots for file in root.rglob('*.py')]
            raise FileNotFoundError(f'no config {name!r}{suggest(relative, known)}')
        return _read(path)
    if not Path(name).is_file():
        raise FileNotFoundError(f'no config file {name!r}')
    return _read(Path(name))


def _roots(name: str, package: str) -> list[Path]:
    """Folders of a package's configs. (mmengine's get_config would first install the package by
    whatever pip is on the PATH when it knows it under another name, as it does the forks.)"""
    if package == 'mmposenc':
        here = Path(__file__).resolve().parents[1]
    else:
        found = importlib.util.find_spec(package)
        if found is None or not found.origin:
            raise FileNotFoundError(f'no config {name!r}: there is no package {package!r}')
        here = Path(found.origin).parent
    return [root for root in (here / '.mim' / 'configs', here.parent / 'configs')
            if root.is_dir()]


def _read(path: Path) -> Config:
    try:
        return Config.fromfile(path)
    except Exception as error:  # a config is code: it raises what it likes
        raise ValueError(f'config {path}: {describe(error)}') from error


def suggest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3)
    return f'; did you mean {" or ".join(map(repr, close))}?' if close else ''


def set_work_dir(cfg: Config, work_dir: str | None) -> None:
    """Sets ``cfg.work_dir``: the argument, else the config's own, else work_dirs/<config name>."""
    if work_dir is not None:
        cfg.work_dir = work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = str(Path('work_dirs') / Path(cfg.filename).stem)
