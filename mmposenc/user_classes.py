"""Classes in a user's own files: ``type='encodings/alibi.py:ALiBi'`` in a config.

A config that another process reads from a file names its classes as text. A class of an installed
package has a dotted name; a class of any other file is named by its path.
"""
from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from .terminal.messages import error_text, suggestion_text

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
    try:
        module = _module(path)
    except Exception as error:  # A user's file may raise anything.
        raise ValueError(f'{name!r}: {path.name} cannot be imported: '
                         f'{error_text(error)}') from error
    return _class_in(module, name, path.name)


def class_by_name(name: str) -> tuple[type, str]:
    """The class of a dotted name, ``'my_package.encodings.ALiBi'``, and a name that works in any
    process.

    The current folder is searched as well. A class found only there is named by its file, since
    another process may run in another folder.

    Raises:
        ValueError: there is no such module or class.
    """
    module_name = name.rpartition('.')[0]
    folder = Path.cwd()
    try:
        with _first_on_path(folder):
            module = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(f'{name!r}: {module_name} cannot be imported: '
                         f'{error_text(error)}') from error
    cls = _class_in(module, name, module_name)
    file = Path(getattr(sys.modules[cls.__module__], '__file__', None) or '/')
    if folder in file.parents and not {'site-packages', 'dist-packages'} & {*file.parts}:
        return cls, f'{file}:{cls.__qualname__}'
    return cls, f'{cls.__module__}.{cls.__qualname__}'


def _class_in(module: ModuleType, name: str, where: str) -> type:
    """The class in a module that the last part of ``name`` names."""
    cls_name = name.replace(':', '.').rpartition('.')[2]
    cls = getattr(module, cls_name, None)
    if not isinstance(cls, type):
        known = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise ValueError(f'{name!r}: {where} has no class {cls_name!r}'
                         f'{suggestion_text(cls_name, known)}')
    return cls


def _module(path: Path) -> ModuleType:
    """Import a file as a module. In a package it has its dotted name, so that relative imports
    work; otherwise it gets a name that no other file has."""
    root, parts = path.parent, [path.stem]
    while (root / '__init__.py').is_file():
        parts.insert(0, root.name)
        root = root.parent
    with _first_on_path(root):
        if len(parts) > 1:
            module = importlib.import_module('.'.join(parts))
            if Path(module.__file__ or '').resolve() != path:
                raise ImportError(f'{".".join(parts)} is already imported from {module.__file__}')
            return module
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
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    """A context in which a file can import its neighbours: its folder comes first on ``sys.path``.
    """
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
