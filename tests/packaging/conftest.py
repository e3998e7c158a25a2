"""What is built of this project, once a session: as an index would get it, and to be edited."""
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from helpers.scripts import ROOT

IGNORED = shutil.ignore_patterns('__pycache__', '.mim', '*.egg-info')
FILES = ('setup.py', 'pyproject.toml', 'MANIFEST.in', 'LICENSE', 'README.md', 'CHANGELOG.md',
         'CITATION.cff', 'model-index.yml')


def build(kind: str, tree: Path, folder: Path) -> Path:
    """Builds a wheel or source archive of a tree with the setuptools of this environment."""
    code = f'import sys, setuptools.build_meta as b; print(b.build_{kind}(sys.argv[1]))'
    result = subprocess.run([sys.executable, '-c', code, str(folder)], cwd=tree, text=True,
                            capture_output=True)
    assert result.returncode == 0, result.stderr
    assert 'SetuptoolsDeprecationWarning' not in result.stderr, result.stderr
    return folder / result.stdout.splitlines()[-1]


@pytest.fixture(scope='session')
def tree(tmp_path_factory) -> Path:
    """A copy of what is built, so that building writes nothing into the checkout."""
    if find_spec('setuptools') is None:
        pytest.skip('setuptools is not installed')
    folder = tmp_path_factory.mktemp('tree')
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    for name in ('mmposenc', 'configs', 'tools', 'requirements', 'tests/golden'):
        shutil.copytree(ROOT / name, folder / name, ignore=IGNORED)
    return folder


@pytest.fixture(scope='session')
def sdist_file(tree, tmp_path_factory) -> Path:
    return build('sdist', tree, tmp_path_factory.mktemp('sdist'))


@pytest.fixture(scope='session')
def wheel_file(sdist_file, tmp_path_factory) -> Path:
    """Of the source archive, which so has all that a wheel needs."""
    folder = tmp_path_factory.mktemp('wheel')
    with tarfile.open(sdist_file) as archive:
        archive.extractall(folder)
    return build('wheel', folder / sdist_file.name.removesuffix('.tar.gz'), folder)


@pytest.fixture(scope='session')
def editable_file(tree, tmp_path_factory) -> Path:
    return build('editable', tree, tmp_path_factory.mktemp('editable'))


@pytest.fixture(scope='session')
def wheel(wheel_file) -> Path:
    """Its content."""
    folder = wheel_file.parent / 'site'
    with zipfile.ZipFile(wheel_file) as archive:
        archive.extractall(folder)
    return folder
