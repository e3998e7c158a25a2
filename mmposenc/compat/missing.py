"""Operators that only a compiled mmcv has, and the error that is raised when one is called."""
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn


def build_command_text() -> str:
    """The command that replaces the installed mmcv by the same version with its operators.

    It takes half an hour or more, and needs a C++ compiler; with FORCE_CUDA=1 before it, and nvcc,
    it builds the operators for CUDA too.
    """
    for name in ('onedl-mmcv', 'mmcv', 'mmcv-lite'):
        try:
            release = version(name)
        except PackageNotFoundError:
            continue
        name = name.removesuffix('-lite')
        return ('MMCV_WITH_OPS=1 pip install --no-build-isolation --no-deps --no-cache-dir '
                f'--force-reinstall --no-binary {name} {name}=={release}')
    return 'MMCV_WITH_OPS=1 pip install --no-build-isolation .   (in a clone of mmcv)'


def operator_that_raises(operator: str) -> Callable[..., NoReturn]:
    """Return an operator that can be imported, and when it is called raises a NotImplementedError
    that says in one line what is missing and what would help."""
    def call(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f'this model needs the mmcv operator {operator!r}, which the installed mmcv was built '
            'without and mmposenc does not replace. Install an mmcv with compiled operators; many '
            'run on a GPU alone, for which FORCE_CUDA=1 goes before the command: '
            f'{build_command_text()}')

    call.__name__ = call.__qualname__ = operator
    return call
