"""What is installed: the wheel, the editable install, and the names of configs in both."""
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
IGNORED = shutil.ignore_patterns('__pycache__', '.mim', '*.egg-info')
FILES = ('setup.py', 'pyproject.toml', 'MANIFEST.in', 'LICENSE', 'README.md', 'model-index.yml')

RESOLVE = """
import site, sys
folder, config = sys.argv[1:]
# This environment may hold an editable mmposenc of its own, under the same name.
for name in [name for name in sys.modules if name.startswith('__editable___mmposenc')]:
    del sys.modules[name]
sys.meta_path = [f for f in sys.meta_path if 'editable' not in getattr(f, '__module__', '')]
sys.path.insert(0, folder)
site.addsitedir(folder)
import mmposenc
from mmengine.config import Config
from mmengine.hub import get_config
cfg = get_config(f'mmposenc::{config}')
based = Config.fromstring(f"_base_ = 'mmposenc::{config}'\\nwork_dir = 'here'\\n", '.py')
assert based.work_dir == 'here'
assert based.model.to_dict() == cfg.model.to_dict()  # and no scope in it
from mmengine.registry import MODELS, DefaultScope
with DefaultScope.overwrite_default_scope(based.default_scope):
    MODELS.build(based.model)
print(cfg.filename)
"""


def build(kind, tree, folder):
    """Builds a wheel of a tree with the setuptools of this environment, and unpacks it."""
    code = f'import sys, setuptools.build_meta as b; print(b.build_{kind}(sys.argv[1]))'
    result = subprocess.run([sys.executable, '-c', code, str(folder)], cwd=tree, text=True,
                            capture_output=True)
    assert result.returncode == 0, result.stderr
    assert 'SetuptoolsDeprecationWarning' not in result.stderr, result.stderr
    wheel = folder / result.stdout.splitlines()[-1]
    unpacked = folder / 'site'
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    return unpacked


@pytest.fixture(scope='module')
def tree(tmp_path_factory):
    """A copy of what is built, so that building writes nothing into the checkout."""
    if find_spec('setuptools') is None:
        pytest.skip('setuptools is not installed')
    folder = tmp_path_factory.mktemp('tree')
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    for name in ('mmposenc', 'configs', 'tools', 'tests/golden'):
        shutil.copytree(ROOT / name, folder / name, ignore=IGNORED)
    return folder


@pytest.fixture(scope='module')
def wheel(tree, tmp_path_factory):
    return build('wheel', tree, tmp_path_factory.mktemp('wheel'))


@pytest.fixture(scope='module')
def editable(tree, tmp_path_factory):
    return build('editable', tree, tmp_path_factory.mktemp('editable'))


def relative_files(folder):
    return {path.relative_to(folder) for path in folder.rglob('*')
            if path.is_file() and '__pycache__' not in path.parts}


def test_wheel_ships_configs_and_tools_and_every_module(wheel):
    shipped = wheel / 'mmposenc' / '.mim'
    for name in ('configs', 'tools'):
        assert relative_files(shipped / name) == relative_files(ROOT / name)
    assert (shipped / 'model-index.yml').read_text() == (ROOT / 'model-index.yml').read_text()
    modules = {path for path in relative_files(ROOT / 'mmposenc')
               if path.suffix == '.py' and '.mim' not in path.parts}
    assert modules <= relative_files(wheel / 'mmposenc')
    # Nothing of tests/ either, whose golden files are 2.4 MB.
    assert {path.name.split('-')[0] for path in wheel.iterdir()} == {'mmposenc'}
    assert not [path for path in wheel.rglob('*.npz')]


def test_model_index_names_configs_that_are_there():
    """Read as mim reads it; every config beside a metafile is in it."""
    load = pytest.importorskip('modelindex.load_model_index').load
    listed = [ROOT / model.config for model in load(str(ROOT / 'model-index.yml')).models]
    metafiles = (ROOT / 'configs').rglob('metafile.yml')
    assert sorted(listed) == sorted(path for file in metafiles for path in file.parent.glob('*.py'))


def test_metadata(wheel):
    metadata = next(wheel.glob('*.dist-info/METADATA')).read_text()
    required = [line for line in metadata.splitlines() if line.startswith('Requires-Dist')]
    hard = sorted(line.split(': ')[1] for line in required if 'extra ==' not in line)
    assert hard == ['numpy', 'safetensors>=0.5', 'torch>=2.1']
    onedl, openmmlab = ([line for line in required if f'extra == "{extra}"' in line]
                        for extra in ('onedl', 'openmmlab'))
    assert sum('onedl-mm' in line for line in onedl) == 5
    assert openmmlab and not any('onedl' in line for line in openmmlab)


def test_editable_install_links(editable, tree):
    shipped = tree / 'mmposenc' / '.mim'
    for name in ('configs', 'tools', 'model-index.yml'):
        assert (shipped / name).is_symlink() and (shipped / name).resolve() == tree / name
    assert not (editable / 'mmposenc').exists()


@pytest.mark.parametrize('kind', ['wheel', 'editable'])
def test_config_names_resolve(kind, request, tree, tmp_path):
    pytest.importorskip('mmdet')
    folder = request.getfixturevalue(kind)
    config = sorted((ROOT / 'configs/detection').glob('*/*.py'))[0].relative_to(ROOT / 'configs')
    result = subprocess.run([sys.executable, '-c', RESOLVE, str(folder), str(config)], text=True,
                            cwd=tmp_path, capture_output=True)
    assert result.returncode == 0, result.stderr
    shipped = (folder if kind == 'wheel' else tree) / 'mmposenc' / '.mim' / 'configs'
    assert Path(result.stdout.splitlines()[-1]).resolve() == (shipped / config).resolve()
