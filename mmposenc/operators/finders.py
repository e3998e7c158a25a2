"""Import finders: what happens lazily, when mmcv, torchvision or mmengine is imported."""
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

from .hooks import HOOKS

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # importing importlib.abc takes as long as all the rest; finders need no base class
    Loader = MetaPathFinder = object


class FallbackLoader(Loader):
    """Serves ``mmposenc.operators.ext`` under the name ``mmcv._ext``."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        fallback = importlib.import_module('mmposenc.operators.ext')
        module.__doc__ = fallback.__doc__
        module.__dict__['__getattr__'] = fallback.get_op


class FallbackFinder(MetaPathFinder):
    """Finds ``mmcv._ext``; last in ``sys.meta_path``, so only when there is no compiled one."""

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != 'mmcv._ext':
            return None
        return ModuleSpec(fullname, FallbackLoader(), origin='mmposenc.operators.ext')


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
