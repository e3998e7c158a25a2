"""Configs: found by file or by ``package::name``, and overridden from the command line."""
from __future__ import annotations

import difflib
import importlib.util
import inspect
from pathlib import Path
from typing import Any

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


def override(cfg: Config, options: dict[str, Any] | None) -> None:
    """Merges ``--cfg-options`` into a config, and refuses an option that would do nothing.

    Args:
        cfg: changed in place.
        options: dotted key to value, as mmengine's DictAction gives them.

    Raises:
        ValueError: a key under a name the config does not have, or a variable of the config file
            that was substituted when the file was read. A new key of a dict that has a ``type``
            passes: it is an argument, and the class refuses one that it does not know.
    """
    for key in options or {}:
        _check_key(cfg, key)
        _open_sections(cfg, key)
    cfg.merge_from_dict(options or {})


def _check_key(cfg: Config, key: str) -> None:
    first, *rest = key.split('.')
    if first not in LIVE_KEYS:
        if first in cfg:
            raise ValueError(
                f"--cfg-options {key}: '{first}' is a variable of the config file and was "
                'substituted when the file was read, so setting it here has no effect; set the '
                'key that uses it (such as train_dataloader.dataset.data_root)')
        known = sorted(LIVE_KEYS | set(cfg))
        raise ValueError(f"--cfg-options {key}: the config has no '{first}'"
                         f'{suggest(first, known)}')
    if first == 'data_preprocessor' and cfg.get('model', {}).get(first):
        raise ValueError(f'--cfg-options {key}: the model has its own data_preprocessor, so '
                         f'this has no effect; set model.{key}')
    node, path = cfg, ''
    for part in key.split('.')[:-1]:
        child = _child(node, part)
        if child is None:
            if path == '' or (isinstance(node, dict) and 'type' in node):
                return  # an argument of a class, or a section that the runner reads
            known = sorted(node) if isinstance(node, dict) else []
            raise ValueError(f"--cfg-options {key}: '{path}' has no '{part}'"
                             f'{suggest(part, known)}')
        node, path = child, f'{path}.{part}'.lstrip('.')


def _open_sections(cfg: Config, key: str) -> None:
    """Turns a None on the way, such as ``init_cfg=None``, into a section: mmengine refuses it."""
    node: Any = cfg
    for part in key.split('.')[:-1]:
        if hasattr(node, 'get') and part in node and node[part] is None:
            node[part] = {}
        node = _child(node, part)


def _child(node: Any, part: str) -> Any:
    if isinstance(node, (list, tuple)):
        return node[int(part)] if part.isdigit() and int(part) < len(node) else None
    return node.get(part) if hasattr(node, 'get') else None


def suggest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3)
    return f'; did you mean {" or ".join(map(repr, close))}?' if close else ''


def set_work_dir(cfg: Config, work_dir: str | None) -> None:
    """Sets ``cfg.work_dir``: the argument, else the config's own, else work_dirs/<config name>."""
    if work_dir is not None:
        cfg.work_dir = work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = str(Path('work_dirs') / Path(cfg.filename).stem)
