"""In an environment that has the wheel, and of this checkout nothing."""
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from helpers.tiny_data import tiny_detector
from helpers.tiny_tasks import classifier_config, segmentor_config

from mmposenc.commands import usage_text

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
ENV = {**{key: value for key, value in os.environ.items() if key != 'PYTHONPATH'},
       'OMP_NUM_THREADS': '1'}


class Environment:
    """A virtual environment that sees the packages of this one, without its mmposenc: .pth files
    there are not run, and its own distribution comes first."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, '-m', 'venv', '--without-pip', folder], check=True)
        self.bin, self.site = folder / 'bin', next(folder.glob('lib/python*/site-packages'))
        self.python = self.bin / 'python'

    def pip(self, *words: object) -> None:
        subprocess.run([sys.executable, '-m', 'pip', '--python', self.python, '-q',
                        '--disable-pip-version-check', *map(str, words)], check=True)

    def see_packages(self) -> None:
        places = {sysconfig.get_path(kind) for kind in ('purelib', 'platlib')}
        (self.site / 'seen.pth').write_text('\n'.join(sorted(places)))

    def run(self, *words: object, folder: Path, **env: str) -> str:
        result = subprocess.run([str(word) for word in words], cwd=folder, text=True,
                                capture_output=True, env={**ENV, **env})
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
        return result.stdout


@pytest.fixture(scope='module')
def installed(wheel_file, tmp_path_factory) -> Environment:
    pytest.importorskip('pip')
    environment = Environment(tmp_path_factory.mktemp('environment'))
    environment.pip('install', '--no-deps', '--no-index', wheel_file)
    environment.see_packages()
    return environment


def detector(folder: Path) -> Path:
    """Every box counts: an untrained model is sure of none."""
    config = tiny_detector(folder, images=2)
    config.write_text(config.read_text() + 'model.update(test_cfg=dict(score_thr=0))\n')
    return config


CASES = {
    'mmdet': (detector, 'epoch_1.pth', 'data/images/shape_1.jpg', 1),
    'mmseg': (segmentor_config, 'iter_2.pth', 'data/images/scene_1.jpg', 1),
    'mmpretrain': (classifier_config, 'epoch_1.pth', 'data/classes/dark/image_1.png', 2)}


@pytest.mark.parametrize('package', CASES)
def test_their_own_tools_and_inferencers(installed, tmp_path, package) -> None:
    pytest.importorskip(package)
    write, checkpoint, image, number = CASES[package]
    config = write(tmp_path)
    out = installed.run(installed.bin / 'mmposenc', 'run', HERE / 'upstream_tools.py', package,
                        config, f'work/{checkpoint}', image, number, folder=tmp_path)
    assert out.endswith(f'mmposenc is {installed.site}/mmposenc/__init__.py\n')


def test_a_start_of_python_costs_nothing(installed, tmp_path) -> None:
    """Nothing of it runs in programs that do not import it."""
    code = "import sys; print([f.__name__ for f in sys.meta_path if 'posenc' in f.__module__])"
    assert installed.run(installed.python, '-c', code, folder=tmp_path) == '[]\n'


@pytest.mark.parametrize('kind', ['wheel_file', 'editable_file'])
def test_in_the_folder_of_a_clone_and_uninstalled(kind, request, tmp_path) -> None:
    """A folder of its name in the working directory hides nothing; nothing is left behind."""
    pytest.importorskip('pip')
    (tmp_path / 'mmposenc').mkdir()
    environment = Environment(tmp_path / 'environment')
    before = sorted(environment.site.rglob('*')) + sorted(environment.bin.iterdir())
    environment.pip('install', '--no-deps', '--no-index', request.getfixturevalue(kind))
    for command in ([environment.python, '-m', 'mmposenc'], [environment.bin / 'mmposenc']):
        assert environment.run(*command, '--help', folder=tmp_path) == f'{usage_text()}\n'
    environment.pip('uninstall', '-y', 'mmposenc')
    left = sorted(environment.site.rglob('*')) + sorted(environment.bin.iterdir())
    assert [path for path in left if path not in before and path.name != '__pycache__'] == []
