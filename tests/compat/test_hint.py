import subprocess
import sys
from pathlib import Path

import pytest

from mmposenc.compat import hint

ROOT = Path(__file__).parents[2]


def run_after_hint(folder, code):
    """Runs code in an interpreter that starts with the hint of a folder, twice over."""
    start = 'import site, sys; [site.addsitedir(sys.argv[1]) for _ in range(2)]\n'
    return subprocess.run([sys.executable, '-c', start + code, str(folder)], cwd=ROOT, text=True,
                          capture_output=True, timeout=300)


@pytest.fixture
def folder(tmp_path):
    hint.install(tmp_path)
    return tmp_path


def test_install_and_uninstall(tmp_path):
    command = [sys.executable, '-m', 'mmposenc.compat.hint', '--folder', str(tmp_path)]
    for _ in range(2):
        subprocess.run([*command, '--install'], cwd=ROOT, check=True)
        assert sorted(path.name for path in tmp_path.iterdir()) == [hint.MODULE, hint.PTH]
    for _ in range(2):
        subprocess.run([*command, '--uninstall'], cwd=ROOT, check=True)
        assert not list(tmp_path.iterdir())


def test_starts_without_importing_anything(folder):
    result = run_after_hint(folder, """
assert sum(type(finder).__name__ == 'HintFinder' for finder in sys.meta_path) == 1
assert not {'mmposenc', 'torch', 'mmcv', 'numpy', 'argparse'} & set(sys.modules)
import json, email.message
""")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize('module', ['mmcv.ops', 'torchvision'])
def test_names_the_cure_and_the_cure_works(folder, module):
    pytest.importorskip(module)
    result = run_after_hint(folder, f"""
try:
    import {module}
except ImportError as error:
    message = str(error)
    assert '`import mmposenc` before mmdet' in message, message
    assert error.__cause__ is not None
else:
    sys.exit(77)
import mmposenc
import {module}
""")
    if result.returncode == 77:
        pytest.skip(f'{module} has its compiled operators')
    assert result.returncode == 0, result.stderr


def test_other_errors_pass_through():
    def run(module):
        raise ImportError('no disk')

    with pytest.raises(ImportError, match='^no disk$'):
        hint.explain('mmcv.ops', run)(None)


def test_absent_packages_stay_absent(folder):
    result = run_after_hint(folder, """
import importlib.util, sys
sys.path = []
sys.path_importer_cache.clear()
sys.meta_path = [f for f in sys.meta_path if type(f).__name__ == 'HintFinder']
assert importlib.util.find_spec('torchvision') is None
""")
    assert result.returncode == 0, result.stderr
