"""Metadata is in pyproject.toml; here is what it can't say.

Configs and tools live at the root of the repository and are shipped as mmposenc/.mim, where
mim and mmengine ('mmposenc::detection/...') look for them: copied into a wheel, linked for an
editable install.
"""
import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SHIPPED = ('configs', 'tools', 'model-index.yml')


def remove(path: Path) -> None:
    """Removes a file, a link or a folder, if it is there."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


def copy(source: Path, target: Path) -> None:
    """Copies a file, or a folder without what Python and editors leave in it."""
    remove(target)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns('__pycache__', '*.py[cod]'))
    else:
        shutil.copyfile(source, target)


def link(source: Path, target: Path) -> None:
    """Links relatively, so that the checkout can be moved; copies where links aren't allowed."""
    remove(target)
    try:
        target.symlink_to(os.path.relpath(source, target.parent))
    except OSError:
        copy(source, target)


class BuildPy(build_py):
    def run(self) -> None:
        super().run()
        package = ROOT if self.editable_mode else Path(self.build_lib)
        folder = package / 'mmposenc' / '.mim'
        folder.mkdir(parents=True, exist_ok=True)
        for name in SHIPPED:
            (link if self.editable_mode else copy)(ROOT / name, folder / name)


# package_dir: an editable install is then a line in a .pth file. What setuptools does otherwise
# comes after sys.path, where any folder named mmposenc, such as a clone, hides the package.
setup(cmdclass={'build_py': BuildPy}, package_dir={'': '.'})
