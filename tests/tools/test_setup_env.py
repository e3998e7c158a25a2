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
    '-m venv '*) echo venv >> "$NOTES.venv"; mkdir -p "$3/bin"
                 if [ "${BREAK:-}" = venv ]; then touch "$3/pyvenv.cfg" "$3/half"; kill $$; fi
                 cp "$0" "$3/bin/python"; touch "$3/pyvenv.cfg" "$3/pip" ;;
    '-m pip --version') [ -e "$(dirname "$0")/../pip" ] ;;
    '-m ensurepip') [ -z "${NO_ENSUREPIP:-}" ] && touch "$(dirname "$0")/../pip" ;;
    '-m pip check') echo 'timm 1.0.31 requires huggingface-hub, which is not installed.'
                    echo 'twine 7.0.0 requires keyring, which is not installed.'
                    [ "${BREAK:-}" != check ] || echo 'a 1.0 requires b, which is not there'
                    exit 1 ;;
    '-m pip '*) shift 2; echo "$*" >> "$NOTES"
                sleep "${SLOW:-0}"
                if [ -n "${OFFLINE:-}" ]; then
                    echo 'WARNING: Retrying after NewConnectionError: Network is unreachable'
                    echo 'ERROR: No matching distribution found for torch'; exit 1
                fi
                case "$*" in *"${BREAK:-nothing}"*) echo 'ERROR: no disk'; exit 1 ;; esac ;;
    '-c import cv2'*) exit 1 ;;
    '-c import torchvision'*) echo check >> "$NOTES" ;;
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
                         ('torch', 'no_deps', 'onedl', 'dev', 'headless')]
    assert notes[5].endswith('--no-deps --no-build-isolation --editable .')
    assert notes[6:] == ['check']
    assert all('--constraint requirements/constraints.txt' in note for note in notes[:6])
    assert '--no-deps' in notes[1] and '--no-deps' not in notes[0] + notes[2]
    assert 'is ready' in result.stdout

    result, notes = run(checkout)
    assert result.returncode == 0 and notes == []
    assert result.stdout.strip().endswith('.venv is up to date')

    with open(checkout / 'requirements/dev.txt', 'a') as pins:
        pins.write('# changed\n')
    assert len(run(checkout)[1]) == 7


def test_a_failed_step_is_one_line_and_the_next_run_repairs(checkout):
    result, notes = run(checkout, BREAK='onedl.txt')
    assert result.returncode != 0 and len(notes) == 3
    assert len(result.stderr.splitlines()) == 1
    assert 'installing OpenMMLab (the onedl set) failed: ERROR: no disk' in result.stderr
    result, notes = run(checkout)
    assert result.returncode == 0 and len(notes) == 7


def test_a_half_made_environment_is_made_again(checkout):
    (checkout / '.venv').mkdir()
    (checkout / '.venv/pyvenv.cfg').touch()
    result, notes = run(checkout)
    assert result.returncode == 0 and len(notes) == 7


def test_a_failure_after_success_is_not_up_to_date(checkout):
    run(checkout)
    with open(checkout / 'requirements/dev.txt', 'a') as pins:
        pins.write('# changed\n')
    assert run(checkout, BREAK='dev.txt')[0].returncode != 0
    result, notes = run(checkout)
    assert result.returncode == 0 and len(notes) == 7


def foreign(checkout, pip: bool):
    """An environment that somebody else made, as uv does: without pip."""
    venv = checkout / '.venv'
    (venv / 'bin').mkdir(parents=True)
    shutil.copy(checkout.parent / 'fake python', venv / 'bin/python')
    (venv / 'pyvenv.cfg').write_text('uv = 0.5\n')
    (venv / 'precious').write_text('work')
    if pip:
        (venv / 'pip').touch()
    return venv / 'precious'


@pytest.mark.parametrize('pip', [True, False])
def test_an_environment_of_somebody_else_is_used_and_kept(checkout, pip):
    precious = foreign(checkout, pip)
    result, notes = run(checkout)
    assert result.returncode == 0 and len(notes) == 7, result.stderr
    assert precious.read_text() == 'work'
    (checkout / '.venv/pip').unlink()  # and also when it breaks later
    (checkout / '.venv/mmposenc.stamp').unlink()
    result, notes = run(checkout, NO_ENSUREPIP='1')
    assert result.returncode != 0 and notes == [] and precious.read_text() == 'work'


def test_an_environment_that_can_not_be_used_is_refused(checkout):
    precious = foreign(checkout, pip=False)
    result, notes = run(checkout, NO_ENSUREPIP='1')
    assert result.returncode != 0 and notes == [] and precious.exists()
    assert 'that this script did not make, without pip' in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_in_its_place_is_left_alone(checkout):
    (checkout / '.venv').write_text('work')
    result, notes = run(checkout)
    assert result.returncode != 0 and notes == [] and 'is a file' in result.stderr
    assert (checkout / '.venv').read_text() == 'work'


@pytest.mark.parametrize('broken', ['venv', 'torch.txt', 'no_deps.txt', 'onedl.txt', 'dev.txt',
                                    'headless.txt', '--editable', 'check'])
def test_every_failed_state_is_repaired_by_the_next_run(checkout, broken):
    result, _ = run(checkout, BREAK=broken)
    assert result.returncode != 0 and not (checkout / '.venv/mmposenc.stamp').exists()
    result, notes = run(checkout)
    assert result.returncode == 0 and len(notes) == 7, result.stderr
    assert not (checkout / '.venv/half').exists()
    assert run(checkout)[1] == []


def test_offline_says_so(checkout):
    result, notes = run(checkout, OFFLINE='1')
    assert result.returncode != 0 and len(notes) == 1
    assert result.stderr.startswith(
        'setup_env: installing torch failed: no connection to the package index')
    assert len(result.stderr.splitlines()) == 1


def test_two_at_once_are_one(checkout):
    """The second waits for the first, and finds everything done."""
    notes = checkout.parent / 'notes'
    notes.write_text('')
    env = {**os.environ, 'MMPOSENC_PYTHON': str(checkout.parent / 'fake python'), 'SLOW': '0.1',
           'NOTES': str(notes), 'REAL': sys.executable, 'MMPOSENC_VENV': str(checkout / '.venv')}
    several = [subprocess.Popen(['bash', checkout / 'tools/setup_env.sh'], text=True, env=env,
                                cwd=checkout.parent, stdout=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate(timeout=120)[0] for process in several]
    assert [process.returncode for process in several] == [0, 0, 0]
    assert len(notes.read_text().splitlines()) == 7
    assert sum('is ready' in text for text in said) == 1
    assert sum('waiting for it' in text and 'is up to date' in text for text in said) == 2


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
