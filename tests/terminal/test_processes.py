"""No file of the current folder stands in for a module in a process that is started."""
import subprocess
import sys

import pytest

import mmposenc
from mmposenc.terminal.processes import python_command

FINDS = 'import random, runpy, typing, yaml, neighbour; from mmposenc.commands import main; main()'


@pytest.mark.parametrize('words, files', [
    ('child', ('random', 'runpy', 'typing', 'yaml', 'sitecustomize', 'mmposenc')),
    (('-m', 'mmposenc', 'papers'), ('random', 'yaml', 'argparse', 'torch', 'sitecustomize'))])
def test_the_current_folder_is_not_searched(tmp_path, monkeypatch, words, files):
    (tmp_path / 'lib').mkdir()
    (tmp_path / 'lib' / 'neighbour.py').touch()
    for name in files:
        (tmp_path / f'{name}.py').write_text('raise SystemExit("a file of the folder ran")')
    with monkeypatch.context() as patch:  # as a parent that was started by python -c
        patch.setattr(sys, 'path', ['', *sys.path, str(tmp_path / 'lib')])
        child = python_command(FINDS, '--version')
    run = subprocess.run(child if words == 'child' else [sys.executable, *words], cwd=tmp_path,
                         text=True, capture_output=True)
    assert run.returncode == 0, run.stderr
    assert (mmposenc.__version__ if words == 'child' else 'cpvt/table6') in run.stdout
