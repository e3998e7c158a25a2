"""The changes to modules of mmengine and to tools of OpenMMLab, made right after their import."""
from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from .config_text import config_text


def _configs() -> ModuleType:
    """Import the package of configs when a config is asked for; it stands beside this one."""
    return importlib.import_module('mmposenc.catalog.configs')


def hide_onedl_line(module: ModuleType) -> None:
    """Wrap ``mmengine.logging.print_log`` so that it drops one line of the forks.

    They report the absence of the optional package OneDL at level DEBUG without a logger, which
    print_log prints whatever the level. Every other message goes through unchanged.
    """
    print_log = module.print_log

    @wraps(print_log)
    def print_log_unless_onedl(msg: Any, *args: object, **kwargs: object) -> None:
        if not (isinstance(msg, str) and msg.startswith('Could not import OneDL')):
            print_log(msg, *args, **kwargs)

    vars(module).update(print_log=print_log_unless_onedl)


def know_this_package(module: ModuleType) -> None:
    """Change ``mmengine.config.utils``: besides a fixed list of packages it finds
    ``type='mmposenc.PVT'``."""
    module.MODULE2PACKAGE.setdefault('mmposenc', 'mmposenc')


def load_without_running_code(module: ModuleType) -> None:
    """Change ``mmengine.runner.checkpoint``: its functions read files by this project's function,
    which runs no code."""
    importlib.import_module('mmposenc.checkpoint.mmengine_loading')


def read_yaml_as_data(module: ModuleType) -> None:
    """Change ``mmengine.fileio.handlers.yaml_handler``: a YAML file, such as a config, runs no code
    when it is read."""
    vars(module).update(Loader=importlib.import_module('mmposenc.plain_yaml').PlainLoader)


def leave_out_multimodal(module: ModuleType) -> None:
    """Change ``mmpretrain.utils.dependency``: beside transformers 5, which lacks names that
    mmpretrain's models of pictures and text import, they are left out as without transformers.
    Otherwise nothing of mmpretrain could be imported."""
    if module.satisfy_requirement('transformers>=5'):
        vars(module).update(WITH_MULTIMODAL=False)


def find_and_write_configs(module: ModuleType) -> None:
    """Change ``mmengine.config.config``: ``package::name`` works in ``_base_`` and in
    ``Config.fromfile``, and what is written reads back as it was.

    mmengine marks all of a foreign base with the scope before the ``::``, where 'RetinaNet' would
    be looked for in mmposenc. The configs of mmposenc are written in mmdet's, mmseg's or
    mmpretrain's scope, which they set as default_scope, and name mmposenc's classes in full.

    mmengine's ``pretty_text``, by which every config is written, formats with yapf for about a
    second, makes a SyntaxError of a signal that comes meanwhile, and writes numbers that are not
    finite as names that nothing defines.
    """
    get_cfg_path, fromfile = module.Config._get_cfg_path, module.Config.fromfile

    def by_package(cfg_path: str, filename: str) -> tuple[str, str | None]:
        if '::' not in cfg_path:
            return get_cfg_path(cfg_path, filename)
        package = cfg_path.partition('::')[0]
        return str(_configs().find_config(cfg_path)), None if package == 'mmposenc' else package

    @wraps(fromfile)
    def from_name(filename: Any, *args: object, **kwargs: object) -> Any:
        if isinstance(filename, str) and '::' in filename and not os.path.exists(filename):
            filename = str(_configs().find_config(filename))
        return fromfile(filename, *args, **kwargs)

    module.Config._get_cfg_path = staticmethod(by_package)
    module.Config.fromfile = staticmethod(from_name)
    module.Config.pretty_text = property(lambda cfg: config_text(cfg.to_dict()))


def install_nothing(module: ModuleType) -> None:
    """Change ``mmengine.hub.hub``: ``get_config`` finds packages as configs do, and never runs pip.
    """
    def split(name: str) -> tuple[str, str]:
        _configs().find_config(name)
        package, _, relative = name.partition('::')
        return package, relative

    vars(module).update(
        _get_package_and_cfg_path=split, install_package=lambda package: None,
        get_installed_path=lambda package: str(_configs().package_folder(package)))


#: Names of loading steps that inferencers and tools look for in a pipeline, to replace the step or
#: to leave out the others.
LOADING = {'mmposenc.LoadImageFromFile': 'LoadImageFromFile',
           'mmposenc.LoadSegAnnotations': 'LoadAnnotations'}
#: Names of the functions that look for them; lists among their arguments are pipelines.
_LOOKING = {'_get_transform_idx', 'get_loading_pipeline', 'get_transform_idx'}


def find_our_loading(module: ModuleType) -> None:
    """Change functions of mmdet, mmseg and mmpretrain that find a step of a pipeline by its name:
    they find this project's step under the name of the one that it replaces."""
    owners = [each for each in vars(module).values()
              if isinstance(each, type) and each.__module__ == module.__name__]
    for owner in (module, *owners):
        for name in _LOOKING & vars(owner).keys():
            setattr(owner, name, _with_upstream_step_names(getattr(owner, name)))


def _with_upstream_step_names(find: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(find)
    def find_ours(*args: object) -> Any:
        return find(*([{**step, 'type': LOADING.get(step['type'], step['type'])}
                       if isinstance(step, dict) else step for step in each]
                      if isinstance(each, list) else each for each in args))

    return find_ours
