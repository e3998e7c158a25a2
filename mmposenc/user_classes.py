"""Classes in a user's own files: ``type='encodings/alibi.py:ALiBi'`` in a config.

A config that another process reads from a file names its classes as text. A class of an installed
package has a dotted name; a class of any other file is named by its path.
"""
from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from .terminal.messages import naming_errors, suggestion_text

_MARK = '.py:'


def is_file_class(name: object) -> bool:
    """Whether ``type`` of a config names a class by the path of its file."""
    return isinstance(name, str) and _MARK in name


def class_of_file(name: str) -> type:
    """The class that a name such as ``'folder/file.py:Class'`` stands for; every call returns the
    same object.

    Args:
        name: a path, from the current folder or absolute, a colon, and the name of the class.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file can't be imported, or has no such class.
    """
    path = Path(name.rpartition(':')[0]).resolve()
    if not path.is_file():
        raise FileNotFoundError(f'{name!r}: there is no file {str(path)!r}')
    with naming_errors(f'{name!r}: {path.name} cannot be imported'):
        module = _module(path)
    cls_name = name.rpartition(':')[2]
    cls = getattr(module, cls_name, None)
    if not isinstance(cls, type):
        known = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise ValueError(f'{name!r}: {path.name} has no class {cls_name!r}'
                         f'{suggestion_text(cls_name, known)}')
    return cls


def text_hash(name: str) -> str:
    """A hash of the text of a class of a file, and of its base classes in files of that folder.

    Args:
        name: as for :func:`class_of_file`, which says what it raises.
    """
    folder = Path(name.rpartition(':')[0]).resolve().parent
    texts = []
    for cls in class_of_file(name).__mro__:
        file = getattr(sys.modules[cls.__module__], '__file__', None)
        if file is not None and Path(file).parent == folder:
            texts.append(inspect.getsource(cls))
    return hashlib.sha256(''.join(texts).encode()).hexdigest()


def _module(path: Path) -> ModuleType:
    """Import a file as a module, whose name no other file has. It may import its neighbours."""
    # The file may have been imported before, here or by a dotted name.
    for module in list(sys.modules.values()):
        if str(path) == getattr(module, '__file__', None):
            return module
    name = f'{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}'
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError('it is not a Python file')
    module = importlib.util.module_from_spec(spec)
    # Needed before the module runs: a dataclass looks up its module while it is created.
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module
