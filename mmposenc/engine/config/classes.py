"""Finds the classes that types in the model of a config name."""
from __future__ import annotations

from mmengine.registry import MODELS as ROOT

from mmposenc.class_index import CLASSES
from mmposenc.registry import MODELS
from mmposenc.signatures import accepted_arguments
from mmposenc.user_classes import is_file_class


def model_class(name: str | type | None, scope: str | None) -> type | None:
    """The class that ``type=name`` means in a model of a library, or None."""
    if not isinstance(name, str):
        return name
    if is_file_class(name):
        return MODELS.get(name)
    with ROOT.switch_scope_and_registry(scope) as local:
        cls = local.get(name)
    return MODELS.module_dict.get(name) if cls is None and name not in CLASSES['model'] else cls


def own_backbones(*arguments: str) -> list[str]:
    """The names of this project's backbones that take some arguments."""
    return sorted(name for name, module in CLASSES['model'].items()
                  if module.startswith('backbones.')
                  and {*arguments} <= (accepted_arguments(MODELS.get(name)) or set()))
