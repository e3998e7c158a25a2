"""tools/setup_env.sh with a Python whose pip only takes notes: no network, no real environment."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which('bash') is None, reason='needs bash')

# In the place of Python: makes environments that hold itself, and notes what pip is asked for.
FAKE = """#!/usr/bin/env bash
case "$*" in
    '-m venv --clear '*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; touch "$4/pyvenv.cfg" ;;
    '-m pip --version') ;;
    '-m pip '*) shift 2; echo "$*" >> "$NOTES"
                case "$*" in *"${BREAK:-nothing}"*) echo 'ERROR: no disk'; exit 1 ;; esac ;;
    '-m mmposenc.compat.hint --install') echo hint >> "$NOTES" ;;
    '-c import cv2'*) exit 1 ;;
    '-c import mmposenc'*) echo check >> "$NOTES" ;;
    *) exec "$REAL" "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    """What the script reads, in a folder with a blank in its name."""
    root = tmp_path / 'a clone'
    for name in ('requirements', 'tools', 'mmposenc/compat'):
        shutil.copytree(ROOT / name, root / name)
    for name in ('setup.py', 'pyproject.toml'):
        shutil.copy(ROOT / name, root / name)
    python = tmp_path / 'fake python'
    python.write_text(FAKE)
    python.chmod(0o755)
    return root


def run(root, **env):
    notes = root.parent / 'notes'
    notes.write_text('')
    defaults = dict(MMPOSENC_PYTHON=str(root.parent / 'fake python'), NOTES=str(notes),
                    REAL=sys.executable, MMPOSENC_VENV=str(root / '.venv'))
    result = subprocess.run(['bash', root / 'tools/setup_env.sh'], text=True, capture_output=True,
                            cwd=root.parent, env={**os.environ, **defaults, **env})
    return result, notes.read_text().splitlines()


def test_installs_in_order_and_only_once(checkout):
    result, notes = run(checkout)
    assert result.returncode == 0, result.stderr
    files = [note.split('-r ')[-1] for note in notes]
    assert files[:5] == [f'requirements/{name}.txt' for name in
                         ('torch', 'torchvision', 'onedl', 'dev', 'headless')]
    assert notes[5].endswith('--no-deps --no-build-isolation --editable .')
    assert notes[6:] == ['hint', 'check']
    assert all('--constraint requirements/constraints.txt' in note for note in notes[:6])
    assert '--no-deps' in notes[1] and '--no-deps' not in notes[0] + notes[2]
    assert 'is ready' in result.stdout

    result, notes = run(checkout)
    assert result.returncode == 0 and notes == []
    assert result.stdout.strip().endswith('.venv is up to date')

    with open(checkout / 'requirements/dev.txt', 'a') as pins:
        pins.write('# changed\n')
    assert len(run(checkout)[1]) == 8


def test_a_failed_step_is_one_line_and_the_next_run_repairs(checkout):
    result, notes = run(checkout, BREAK='onedl.txt')
    assert result.returncode != 0 and len(notes) == 3
    assert len(result.stderr.splitlines()) == 1
    assert 'installing OpenMMLab (the onedl set) failed: ERROR: no disk' in result.stderr
    result, notes = run(checkout)
    assert result.returncode == 0 and len(notes) == 8


def test_a_half_made_environment_is_made_again(checkout):
    (checkout / '.venv').mkdir()
    (checkout / '.venv/pyvenv.cfg').touch()
    result, notes = run(checkout)
    assert result.returncode == 0 and len(notes) == 8


def test_a_failure_after_success_is_not_up_to_date(checkout):
    run(checkout)
    with open(checkout / 'requirements/dev.txt', 'a') as pins:
        pins.write('# changed\n')
    assert run(checkout, BREAK='dev.txt')[0].returncode != 0
    result, notes = run(checkout)
    assert result.returncode == 0 and len(notes) == 8


def test_a_folder_that_is_no_environment_is_left_alone(checkout):
    (checkout / '.venv').mkdir()
    (checkout / '.venv/thesis.tex').write_text('work')
    result, notes = run(checkout)
    assert result.returncode != 0 and notes == []
    assert 'is no virtual environment' in result.stderr
    assert (checkout / '.venv/thesis.tex').exists()


def test_a_python_out_of_range_is_named(checkout, tmp_path):
    old = tmp_path / 'old'
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1\nexit 1\n')
    old.chmod(0o755)
    result, notes = run(checkout, MMPOSENC_PYTHON=str(old))
    assert result.returncode != 0 and notes == []
    assert len(result.stderr.splitlines()) == 1
    assert 'is not a Python of 3.10 to 3.13 (Python 3.9.1)' in result.stderr


def test_the_other_set_needs_another_place(checkout):
    result, notes = run(checkout, MMPOSENC_SET='openmmlab')
    assert result.returncode == 0 and notes[2].endswith('-r requirements/openmmlab.txt')
    assert run(checkout, MMPOSENC_SET='openmmlab')[1] == []
    result, notes = run(checkout)
    assert result.returncode != 0 and notes == []
    assert 'holds the openmmlab set' in result.stderr and 'MMPOSENC_VENV' in result.stderr
    assert 'got \'both\'' in run(checkout, MMPOSENC_SET='both')[0].stderr


def test_every_pin_is_exact():
    for path in (ROOT / 'requirements').glob('*.txt'):
        for line in path.read_text().splitlines():
            requirement = line.split(';')[0].strip()
            assert not requirement or requirement.startswith('#') or '==' in requirement, line
