"""Registries of scope ``mmposenc``: configs of mmdet, mmseg and mmpretrain may say
``type='mmposenc.PVT'`` without ``custom_imports``."""
from typing import Any

from .dependencies import require

require(__name__)

from mmengine import registry as theirs
from mmengine.registry import Registry

from . import encodings
from .class_index import CLASSES, load_own_class
from .encodings import build
from .user_classes import class_of_file, is_file_class


class LazyRegistry(Registry):
    """A registry that imports a class on first use, also a class of a user's file such as
    ``type='own.py:ALiBi'``, which other libraries' registries cannot look up."""

    def get(self, key: str) -> Any:
        if is_file_class(key):
            return class_of_file(key)
        scope, name = self.split_scope_key(key)
        module = CLASSES[self.name].get(name)
        if module and scope in (None, self.scope) and name not in self.module_dict:
            self.register_module(name, module=load_own_class(module, name))
        return super().get(key)

    def import_from_location(self) -> None:
        """Do nothing, because :meth:`get` imports each class."""


def _registry(parent: Registry) -> LazyRegistry:
    """Create a child of one of mmengine's registries with the same name; mmengine searches by
    scope."""
    return LazyRegistry(parent.name, parent=parent, scope='mmposenc')


MODELS = _registry(theirs.MODELS)
DATASETS = _registry(theirs.DATASETS)
TRANSFORMS = _registry(theirs.TRANSFORMS)
HOOKS = _registry(theirs.HOOKS)
METRICS = _registry(theirs.METRICS)
OPTIM_WRAPPERS = _registry(theirs.OPTIM_WRAPPERS)
OPTIM_WRAPPER_CONSTRUCTORS = _registry(theirs.OPTIM_WRAPPER_CONSTRUCTORS)
RUNNERS = _registry(theirs.RUNNERS)

# The classes of encodings/ are registered here, because that package does not depend on OpenMMLab.
for _name, _class in encodings.ENCODINGS.items():
    MODELS.register_module(name=_name, module=_class)
build.find_class = MODELS.get
