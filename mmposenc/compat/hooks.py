"""What is changed in modules of others, right after each was imported. Nothing is imported here."""
import importlib
import os
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

OWN_PATH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def hide_onedl_line(module: ModuleType) -> None:
    """Wraps ``mmengine.logging.print_log`` so that it drops one line of the forks.

    They report the absence of the optional package OneDL at level DEBUG without a logger, which
    print_log prints whatever the level. Every other message goes through unchanged.
    """
    print_log = module.print_log

    @wraps(print_log)
    def filtered(msg: Any, *args: Any, **kwargs: Any) -> None:
        if not (isinstance(msg, str) and msg.startswith('Could not import OneDL')):
            print_log(msg, *args, **kwargs)

    module.__dict__['print_log'] = filtered


def provide_torchvision_operators(module: ModuleType) -> None:
    """Gives torchvision its operators where ``torchvision.extension`` could not load them."""
    if not module._has_ops():
        importlib.import_module('mmposenc.compat.torchvision_ops').provide(module)


def refuse_layers_without_operators(module: ModuleType) -> None:
    """Lets layers of ``mmcv.ops`` that cannot run say so when they are built."""
    importlib.import_module('mmposenc.compat.missing').refuse_layers(module)


def resolve_config_names(module: ModuleType) -> None:
    """Lets ``mmposenc::detection/...`` name a config: mmengine knows a fixed list of packages."""
    module.MODULE2PACKAGE.setdefault('mmposenc', 'mmposenc')


def find_own_package(module: ModuleType) -> None:
    """Tells mmengine where this package is: its releases look beside an editable install."""
    get_installed_path = module.get_installed_path

    @wraps(get_installed_path)
    def own_path_too(package: str) -> str:
        return OWN_PATH if package == 'mmposenc' else get_installed_path(package)

    module.__dict__['get_installed_path'] = own_path_too


def keep_scope_of_configs(module: ModuleType) -> None:
    """Lets a config inherit from ``mmposenc::detection/...`` and still build.

    mmengine marks all of a foreign base with the scope before the ``::``, where 'RetinaNet' would
    be looked for in mmposenc. The configs of mmposenc are written in mmdet's, mmseg's or
    mmpretrain's scope, which they set as default_scope, and name mmposenc's classes in full.
    """
    get_cfg_path = module.Config._get_cfg_path

    def without_scope(cfg_path: str, filename: str) -> tuple[str, str | None]:
        path, scope = get_cfg_path(cfg_path, filename)
        return path, None if scope == 'mmposenc' else scope

    module.Config._get_cfg_path = staticmethod(without_scope)


def prepare_configs(module: ModuleType) -> None:
    """What ``mmengine.config.config`` needs."""
    find_own_package(module)
    keep_scope_of_configs(module)


HOOKS: dict[str, Callable[[ModuleType], None]] = {
    'mmcv.ops': refuse_layers_without_operators,
    'mmengine.config.config': prepare_configs,
    'mmengine.config.utils': resolve_config_names,
    'mmengine.hub.hub': find_own_package,
    'mmengine.logging': hide_onedl_line,
    'torchvision.extension': provide_torchvision_operators,
}
