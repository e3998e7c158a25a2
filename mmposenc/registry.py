"""Registries of scope ``mmposenc``: configs of mmdet, mmseg and mmpretrain may say
``type='mmposenc.PVT'`` without ``custom_imports``."""
from typing import Any

from .installed import require

require(__name__)

from mmengine.registry import DATASETS as MMENGINE_DATASETS
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import METRICS as MMENGINE_METRICS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS as MMENGINE_OPTIM_WRAPPER_CONSTRUCTORS
from mmengine.registry import OPTIM_WRAPPERS as MMENGINE_OPTIM_WRAPPERS
from mmengine.registry import RUNNERS as MMENGINE_RUNNERS
from mmengine.registry import STRATEGIES as MMENGINE_STRATEGIES
from mmengine.registry import TRANSFORMS as MMENGINE_TRANSFORMS
from mmengine.registry import VISBACKENDS as MMENGINE_VISBACKENDS
from mmengine.registry import Registry

from . import encodings
from .encodings import build
from .names import CLASSES, load_class
from .own_classes import class_of_file, is_file_class


class LazyRegistry(Registry):
    """A registry that imports a class on first use, also a class of a user's file such as
    ``type='own.py:ALiBi'``, which other libraries' registries cannot look up."""

    def get(self, key: str) -> Any:
        if is_file_class(key):
            return class_of_file(key)
        scope, name = self.split_scope_key(key)
        module = CLASSES[self.name].get(name)
        if module and scope in (None, self.scope) and name not in self.module_dict:
            self.register_module(name, module=load_class(module, name))
        return super().get(key)

    def import_from_location(self) -> None:
        """Do nothing: :meth:`get` imports each class."""


def _registry(parent: Registry) -> LazyRegistry:
    """A child of one of mmengine's registries with the same name; mmengine searches by scope."""
    return LazyRegistry(parent.name, parent=parent, scope='mmposenc')


MODELS = _registry(MMENGINE_MODELS)
DATASETS = _registry(MMENGINE_DATASETS)
TRANSFORMS = _registry(MMENGINE_TRANSFORMS)
HOOKS = _registry(MMENGINE_HOOKS)
METRICS = _registry(MMENGINE_METRICS)
OPTIM_WRAPPERS = _registry(MMENGINE_OPTIM_WRAPPERS)
OPTIM_WRAPPER_CONSTRUCTORS = _registry(MMENGINE_OPTIM_WRAPPER_CONSTRUCTORS)
RUNNERS = _registry(MMENGINE_RUNNERS)
STRATEGIES = _registry(MMENGINE_STRATEGIES)
VISBACKENDS = _registry(MMENGINE_VISBACKENDS)

# encodings/ does not depend on OpenMMLab, so its classes are registered here.
for _name in encodings.ENCODINGS:
    MODELS.register_module(name=_name, module=getattr(encodings, _name))
build.find_class = MODELS.get
