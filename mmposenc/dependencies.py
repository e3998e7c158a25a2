"""Checks which OpenMMLab packages are installed and whether they work together."""
import re
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from typing import NamedTuple


class Release(NamedTuple):
    """One package under its two distributions: OneDL's fork and OpenMMLab's own."""
    onedl: str
    openmmlab: tuple[str, ...]
    lowest: str


RELEASES = {
    'mmengine': Release('onedl-mmengine', ('mmengine', 'mmengine-lite'), '0.10.0'),
    'mmcv': Release('onedl-mmcv', ('mmcv', 'mmcv-lite', 'mmcv-full'), '2.0.0'),
    'mmdet': Release('onedl-mmdetection', ('mmdet',), '3.1.0'),
    'mmseg': Release('onedl-mmsegmentation', ('mmsegmentation',), '1.1.0'),
    'mmpretrain': Release('onedl-mmpretrain', ('mmpretrain',), '1.0.0'),
}
LOWEST_TORCH = '2.1.0'
# OpenMMLab's own mmdet and mmseg refuse to be imported with this mmcv or a later one.
FIRST_REFUSED_MMCV = '2.2.0'

HOW_TO_INSTALL = (
    'Install one of the two sets, in an environment of its own (docs/install.md):\n'
    "    pip install 'mmposenc[onedl]'        (in a clone: bash tools/setup_env.sh)\n"
    "    pip install 'mmposenc[openmmlab]'    (the releases by OpenMMLab itself)")


def number(release: str) -> tuple[int, ...]:
    """The leading numbers of a version: '2.13.0+cpu' is (2, 13, 0)."""
    match = re.match(r'\d+(\.\d+)*', release)
    return tuple(int(part) for part in match.group().split('.')) if match else ()


def look_up(distribution: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return installed_version(distribution)
    except PackageNotFoundError:
        return None


def how_to_get(package: str, look_up: Callable[[str], str | None] = look_up) -> str:
    """The end of an error message: the command that installs a package from the set in use; empty
    for packages of neither set."""
    if package not in RELEASES:
        return ''
    if any(look_up(release.onedl) for release in RELEASES.values()):
        return f': `pip install {RELEASES[package].onedl}`'
    if any(look_up(name) for release in RELEASES.values() for name in release.openmmlab):
        return f': `pip install {RELEASES[package].openmmlab[0]}`'
    return f'. {HOW_TO_INSTALL}'


def is_importable(module: str) -> bool:
    return find_spec(module) is not None


def check_sets(versions: dict[str, str]) -> None:
    """Raise ImportError if packages of both sets are installed: they write to the same folders."""
    onedl = [release.onedl for release in RELEASES.values() if release.onedl in versions]
    openmmlab = [name for release in RELEASES.values() for name in release.openmmlab
                 if name in versions]
    if onedl and openmmlab:
        first, second = (', '.join(f'{name} {versions[name]}' for name in names)
                         for names in (onedl, openmmlab))
        raise ImportError(
            f'two sets of OpenMMLab packages are installed over each other: {first} and {second}. '
            'They share folders, so both are broken now. Remove all of them with '
            f'`pip uninstall {" ".join(onedl + openmmlab)}`.\n{HOW_TO_INSTALL}')


def check_versions(versions: dict[str, str]) -> None:
    """Raise ImportError if an installed version is known not to work."""
    torch, numpy, mmcv = versions.get('torch'), versions.get('numpy'), versions.get('mmcv')
    if torch is not None and number(torch) < number(LOWEST_TORCH):
        raise ImportError(f'mmposenc needs torch >= {LOWEST_TORCH}, and torch {torch} is '
                          f'installed: `pip install "torch>={LOWEST_TORCH}"`')
    if torch and numpy and number(numpy) >= (2,) and number(torch) < (2, 3):
        raise ImportError(f'torch {torch} was built for NumPy 1 and numpy {numpy} is installed: '
                          '`pip install "numpy<2"`, or a torch of 2.3 or later')
    for module, release in RELEASES.items():
        for name in (release.onedl, *release.openmmlab):
            if name in versions and number(versions[name]) < number(release.lowest):
                raise ImportError(f'mmposenc needs {module} >= {release.lowest}, and {name} '
                                  f'{versions[name]} is installed.\n{HOW_TO_INSTALL}')
    for name in ('mmdet', 'mmsegmentation'):
        if mmcv and name in versions and number(mmcv) >= number(FIRST_REFUSED_MMCV):
            raise ImportError(f'{name} {versions[name]} needs mmcv < {FIRST_REFUSED_MMCV}, and '
                              f'mmcv {mmcv} is installed: '
                              f'`pip install "mmcv<{FIRST_REFUSED_MMCV}"`')


def missing(room: str, libraries: Sequence[str]) -> ImportError:
    """The error for a part of mmposenc without the libraries that it needs."""
    return ImportError(
        f'{room} needs {" and ".join(libraries)} of OpenMMLab, which '
        f'{"is" if len(libraries) == 1 else "are"} not installed. {HOW_TO_INSTALL}')


def require(room: str, libraries: Sequence[str] = ('mmengine', 'mmcv'),
            look_up: Callable[[str], str | None] = look_up,
            is_importable: Callable[[str], bool] = is_importable) -> None:
    """Check that the packages which a part of mmposenc needs are installed and work together.

    Args:
        room: full name of the package or module about to be imported, 'mmposenc.engine'.
        libraries: modules of OpenMMLab that it needs; what is installed of others is checked too.
        look_up: returns the installed version of a distribution, or None.
        is_importable: returns whether a module can be found, installed or not.

    Raises:
        ImportError: it says what to install or remove.
    """
    names = ['torch', 'numpy', *(name for release in RELEASES.values()
                                 for name in (release.onedl, *release.openmmlab))]
    versions = {name: version for name in names if (version := look_up(name)) is not None}
    check_sets(versions)
    absent = [library for library in libraries if not is_importable(library)]
    if absent:
        raise missing(room, absent)
    check_versions(versions)
