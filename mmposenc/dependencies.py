"""Checks which OpenMMLab packages are installed and whether they work together."""
import functools
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from importlib.util import find_spec

#: For each package its distributions: OneDL's fork, and OpenMMLab's own.
DISTRIBUTIONS = {
    'mmengine': ('onedl-mmengine', ('mmengine', 'mmengine-lite')),
    'mmcv': ('onedl-mmcv', ('mmcv', 'mmcv-lite', 'mmcv-full')),
    'mmdet': ('onedl-mmdetection', ('mmdet',)),
    'mmseg': ('onedl-mmsegmentation', ('mmsegmentation',)),
    'mmpretrain': ('onedl-mmpretrain', ('mmpretrain',)),
}

HOW_TO_INSTALL = (
    'Install one of the two sets, in an environment of its own (docs/install.md):\n'
    "    pip install 'mmposenc[onedl]'        (in a clone: bash tools/setup_env.sh)\n"
    "    pip install 'mmposenc[openmmlab]'    (the releases by OpenMMLab itself)")


@functools.cache  # Each part of the package asks for all of them, a fifth of a second in all.
def look_up(distribution: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return installed_version(distribution)
    except PackageNotFoundError:
        return None


def how_to_get(package: str) -> str:
    """The end of an error message: how to install a package; empty for others than OpenMMLab's."""
    return f'. {HOW_TO_INSTALL}' if package in DISTRIBUTIONS else ''


def is_importable(module: str) -> bool:
    return find_spec(module) is not None


def check_sets(look_up: Callable[[str], str | None] = look_up) -> None:
    """Raise ImportError if packages of both sets are installed: they write to the same folders."""
    versions = [{name: version for name in names if (version := look_up(name)) is not None}
                for names in ([onedl for onedl, _ in DISTRIBUTIONS.values()],
                              [name for _, names in DISTRIBUTIONS.values() for name in names])]
    if all(versions):
        first, second = (', '.join(f'{name} {version}' for name, version in of_set.items())
                         for of_set in versions)
        raise ImportError(
            f'two sets of OpenMMLab packages are installed over each other: {first} and {second}. '
            'They share folders, so both are broken now. Remove all of them with '
            f'`pip uninstall {" ".join([*versions[0], *versions[1]])}`.\n{HOW_TO_INSTALL}')


def missing(room: str, libraries: Sequence[str]) -> ImportError:
    """The error for a part of mmposenc without the libraries that it needs."""
    return ImportError(
        f'{room} needs {" and ".join(libraries)} of OpenMMLab, which '
        f'{"is" if len(libraries) == 1 else "are"} not installed. {HOW_TO_INSTALL}')


def require(room: str, libraries: Sequence[str] = ('mmengine', 'mmcv'),
            look_up: Callable[[str], str | None] = look_up,
            is_importable: Callable[[str], bool] = is_importable) -> None:
    """Check that the packages which a part of mmposenc needs are installed, and of one set.

    Args:
        room: full name of the package or module about to be imported, 'mmposenc.engine'.
        libraries: modules of OpenMMLab that it needs.
        look_up: returns the installed version of a distribution, or None.
        is_importable: returns whether a module can be found, installed or not.

    Raises:
        ImportError: it says what to install or remove.
    """
    check_sets(look_up)
    absent = [library for library in libraries if not is_importable(library)]
    if absent:
        raise missing(room, absent)
