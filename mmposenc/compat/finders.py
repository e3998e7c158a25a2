"""Import finders: they act when mmcv, torchvision, mmengine or the compiler of torch is imported.

Most of what is changed in modules of others right after their import is in patches.py.
"""
import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
# Not at run time: importing importlib.abc takes as long as all the rest, and finders need no base
# class.
else:
    Loader = MetaPathFinder = object

#: For the name of a module, the function of this package that changes the module.
PATCHES = {
    'mmdet.apis.det_inferencer': ('compat.patches', 'find_our_loading'),
    'mmdet.datasets.utils': ('compat.patches', 'find_our_loading'),
    'mmengine.config.config': ('compat.patches', 'find_and_write_configs'),
    'mmengine.config.utils': ('compat.patches', 'know_this_package'),
    'mmengine.fileio.handlers.yaml_handler': ('compat.patches', 'read_yaml_as_data'),
    'mmengine.hub.hub': ('compat.patches', 'install_nothing'),
    'mmengine.logging': ('compat.patches', 'hide_onedl_line'),
    'mmengine.runner.checkpoint': ('compat.patches', 'load_without_running_code'),
    'mmpretrain.datasets.transforms.utils': ('compat.patches', 'find_our_loading'),
    'mmpretrain.utils.dependency': ('compat.patches', 'leave_out_multimodal'),
    'mmseg.apis.mmseg_inferencer': ('compat.patches', 'find_our_loading'),
    'torch._dynamo': ('functional.tracing', 'disable_all'),
    'torchvision.extension': ('compat.torchvision_ops', 'declare_operators'),
}


def patch(module: ModuleType) -> None:
    """Change a module of :data:`PATCHES`."""
    room, function = PATCHES[module.__name__]
    getattr(importlib.import_module(f'mmposenc.{room}'), function)(module)


class FallbackLoader(Loader):
    """Loads ``mmposenc.compat.ext`` under the name ``mmcv._ext``."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        fallback = importlib.import_module('mmposenc.compat.ext')
        module.__doc__ = fallback.__doc__
        vars(module).update(__getattr__=fallback.get_op)


class FallbackFinder(MetaPathFinder):
    """Finds ``mmcv._ext``. It is the last finder, so it acts only where there is no compiled one.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != 'mmcv._ext':
            return None
        return ModuleSpec(fullname, FallbackLoader(), origin='mmposenc.compat.ext')


class PatchFinder(MetaPathFinder):
    """Patches a module of :data:`PATCHES` right after it has run."""

    def __init__(self) -> None:
        # The modules that the other finders are being asked for, because they may ask this finder
        # again.
        self.asking: set[str] = set()

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in PATCHES or fullname in self.asking:
            return None
        self.asking.add(fullname)
        try:
            specs = (finder.find_spec(fullname, path, target) for finder in sys.meta_path)
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            self.asking.discard(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_patch(module: ModuleType) -> None:
                run(module)
                patch(module)

            spec.loader.exec_module = run_and_patch  # type: ignore[method-assign]
        return spec

    def apply_to_imported(self) -> None:
        """Patch modules that were imported before mmposenc. A module whose own import is still
        running and led to this one holds nothing yet, and is left out."""
        for name in PATCHES:
            module = sys.modules.get(name)
            if module is not None and not getattr(module.__spec__, '_initializing', False):
                patch(module)
