"""What happens when mmcv, torchvision or mmengine is imported: import finders, and what is changed
in modules of others right after."""
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # importing importlib.abc takes as long as all the rest; finders need no base class
    Loader = MetaPathFinder = object


def hide_onedl_line(module: ModuleType) -> None:
    """Wraps ``mmengine.logging.print_log`` so that it drops one line of the forks.

    They report the absence of the optional package OneDL at level DEBUG without a logger, which
    print_log prints whatever the level. Every other message goes through unchanged.
    """
    print_log = module.print_log

    @wraps(print_log)
    def filtered(msg: Any, *args: object, **kwargs: object) -> None:
        if not (isinstance(msg, str) and msg.startswith('Could not import OneDL')):
            print_log(msg, *args, **kwargs)

    vars(module).update(print_log=filtered)


def provide_torchvision_operators(module: ModuleType) -> None:
    """Gives torchvision its operators where ``torchvision.extension`` could not load them."""
    if not module._has_ops():
        importlib.import_module('mmposenc.compat.torchvision_ops').provide(module)


def refuse_layers_without_operators(module: ModuleType) -> None:
    """Lets layers of ``mmcv.ops`` that cannot run say so when they are built."""
    importlib.import_module('mmposenc.compat.missing').refuse_layers(module)


def know_this_package(module: ModuleType) -> None:
    """Lets ``type='mmposenc.PVT'`` be found: mmengine knows a fixed list of packages."""
    module.MODULE2PACKAGE.setdefault('mmposenc', 'mmposenc')


def load_without_running_code(module: ModuleType) -> None:
    """``mmengine.runner.checkpoint``: its functions read files by this project's safe one."""
    importlib.import_module('mmposenc.checkpoint.mmengine_loading')


def cache_where_it_can_be_written(module: ModuleType) -> None:
    """``numba.core.config``: a folder for the cache, where the home has none."""
    importlib.import_module('mmposenc.compat.numba_cache').provide_folder(module)


def find_configs(module: ModuleType) -> None:
    """``mmengine.config.config``: ``package::name`` in ``_base_`` and in ``Config.fromfile``.

    mmengine marks all of a foreign base with the scope before the ``::``, where 'RetinaNet' would
    be looked for in mmposenc. The configs of mmposenc are written in mmdet's, mmseg's or
    mmpretrain's scope, which they set as default_scope, and name mmposenc's classes in full.
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


def install_nothing(module: ModuleType) -> None:
    """``mmengine.hub.hub``: ``get_config`` finds packages as configs do, and never runs pip."""
    def split(name: str) -> tuple[str, str]:
        _configs().find_config(name)
        package, _, relative = name.partition('::')
        return package, relative

    vars(module).update(
        _get_package_and_cfg_path=split, install_package=lambda package: None,
        get_installed_path=lambda package: str(_configs().package_folder(package)))


#: What inferencers and tools look for by name in a pipeline, to replace it or keep nothing else.
LOADING = {'mmposenc.LoadImageFromFile': 'LoadImageFromFile',
           'mmposenc.LoadSegAnnotations': 'LoadAnnotations'}


def find_our_loading(owner: Any, name: str) -> None:
    """Lets a function of mmdet, mmseg or mmpretrain, which finds a step of a pipeline by its name,
    find this project's under the name of what it stands for.

    Args:
        owner: the module or class that has it.
        name: of the function; those of its arguments that are lists are pipelines.
    """
    find = getattr(owner, name)

    @wraps(find)
    def find_ours(*args: object) -> Any:
        return find(*([{**step, 'type': LOADING.get(step['type'], step['type'])}
                       if isinstance(step, dict) else step for step in each]
                      if isinstance(each, list) else each for each in args))

    setattr(owner, name, find_ours)


def _configs() -> ModuleType:
    return importlib.import_module('mmposenc.catalog.configs')


HOOKS: dict[str, Callable[[ModuleType], None]] = {
    'mmcv.ops': refuse_layers_without_operators,
    'mmdet.apis.det_inferencer': lambda module: find_our_loading(
        module.DetInferencer, '_get_transform_idx'),
    'mmdet.datasets.utils': lambda module: find_our_loading(module, 'get_loading_pipeline'),
    'mmengine.config.config': find_configs,
    'mmengine.config.utils': know_this_package,
    'mmengine.hub.hub': install_nothing,
    'mmengine.logging': hide_onedl_line,
    'mmengine.runner.checkpoint': load_without_running_code,
    'mmpretrain.datasets.transforms.utils': lambda module: find_our_loading(
        module, 'get_transform_idx'),
    'mmseg.apis.mmseg_inferencer': lambda module: find_our_loading(
        module.MMSegInferencer, '_get_transform_idx'),
    'numba.core.config': cache_where_it_can_be_written,
    'torchvision.extension': provide_torchvision_operators,
}


class FallbackLoader(Loader):
    """Serves ``mmposenc.compat.ext`` under the name ``mmcv._ext``."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        fallback = importlib.import_module('mmposenc.compat.ext')
        module.__doc__ = fallback.__doc__
        vars(module).update(__getattr__=fallback.get_op)


class FallbackFinder(MetaPathFinder):
    """Finds ``mmcv._ext``; last in ``sys.meta_path``, so only when there is no compiled one."""

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != 'mmcv._ext':
            return None
        return ModuleSpec(fullname, FallbackLoader(), origin='mmposenc.compat.ext')


def followed_by(hook: Callable[[ModuleType], None],
                run: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    """A function that runs a module, then the hook on it."""
    def exec_module(module: ModuleType) -> None:
        run(module)
        hook(module)

    return exec_module


class HookFinder(MetaPathFinder):
    """Runs a function of HOOKS right after the module it names has run."""

    def __init__(self) -> None:
        self.asking: set[str] = set()  # what the other finders are asked for: they may ask back

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in HOOKS or fullname in self.asking:
            return None
        self.asking.add(fullname)
        try:
            specs = (finder.find_spec(fullname, path, target) for finder in sys.meta_path)
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            self.asking.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = followed_by(  # type: ignore[method-assign,assignment]
                HOOKS[fullname], spec.loader.exec_module)
        return spec

    def apply_to_imported(self) -> None:
        """Runs the hooks of modules that were imported before mmposenc, those left out whose import
        has begun and led to it: they hold nothing yet."""
        for name, hook in HOOKS.items():
            module = sys.modules.get(name)
            if module is not None and not getattr(module.__spec__, '_initializing', False):
                hook(module)
