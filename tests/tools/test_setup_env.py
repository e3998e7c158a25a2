"""tools/setup_env.sh with a Python whose pip only takes notes: no network, no real environment."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

tomllib = pytest.importorskip('tomllib')
ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(shutil.which('bash') is None, reason='needs bash')]

FAKES = Path(__file__).parent / 'fakes'
# The steps without and with test tools.
MAIN, TESTS = ['onedl', 'torch', 'editable'], ['onedl', 'torch', 'tests', 'editable']


@pytest.fixture
def checkout(tmp_path):
    """What the script reads, in a folder with a blank in its name."""
    root = tmp_path / 'a clone'
    for name in ('requirements', 'tools'):
        shutil.copytree(ROOT / name, root / name)
    for name in ('setup.py', 'pyproject.toml'):
        shutil.copy(ROOT / name, root / name)
    python = tmp_path / 'fake python'
    shutil.copy(FAKES / 'python.sh', python)
    python.chmod(0o755)
    return root


def environment(root, **env):
    python = str(root.parent / 'fake python')
    defaults = dict(MMPOSENC_PYTHON=python, FAKE=python, NOTES=str(root.parent / 'notes'),
                    REAL=sys.executable, MMPOSENC_VENV=str(root / '.venv'),
                    MMPOSENC_INSTALLER='pip', UV=(FAKES / 'uv.sh').read_text())
    return {**os.environ, **defaults, **env}


def run(root, *words, **env):
    """How the script ended, and the steps that reached pip."""
    notes = root.parent / 'notes'
    notes.write_text('')
    result = subprocess.run(['bash', root / 'tools/setup_env.sh', *words], text=True,
                            capture_output=True, cwd=root.parent, env=environment(root, **env))
    return result, steps(notes)


def steps(notes):
    lines = [line.split(' --constraint')[0] for line in notes.read_text().splitlines()]
    return [re.search(r'(\w+)(\.txt| \.)?$', line)[1] for line in lines]


def change_a_lock(root):
    with open(root / 'requirements/onedl.txt', 'a') as lock:
        lock.write('# changed\n')


def test_installs_in_order_and_once_and_keeps_test_tools_in_step(checkout):
    result, done = run(checkout)
    assert result.returncode == 0, result.stderr
    assert done == MAIN and 'is ready' in result.stdout
    said = (checkout.parent / 'notes').read_text().splitlines()
    assert ['--no-deps' in line for line in said] == [True, False, True]
    result, done = run(checkout)
    assert result.returncode == 0 and done == []
    assert result.stdout.strip().endswith('.venv is up to date')
    assert run(checkout, '--tests')[1] == TESTS
    assert run(checkout)[1] == run(checkout, '--tests')[1] == []
    change_a_lock(checkout)
    assert run(checkout, BREAK='torch.txt')[0].returncode != 0
    assert run(checkout)[1] == TESTS  # a failure after a success is not up to date
    result, done = run(checkout, '--test')
    assert result.returncode != 0 and done == []
    assert "unknown arguments '--test'" in result.stderr


def with_uv(checkout):
    folder = checkout.parent / 'bin'
    folder.mkdir()
    shutil.copy(FAKES / 'uv.sh', folder / 'uv')
    (folder / 'uv').chmod(0o755)
    return dict(MMPOSENC_INSTALLER='uv', PATH=f"{folder}:{os.environ['PATH']}")


def seen_by_uv(checkout):
    """The environment of uv, None where uv was not called."""
    path = checkout.parent / 'notes.env'
    return dict(line.partition('=')[::2] for line in path.read_text().splitlines()) \
        if path.exists() else None


def test_uv_is_used_where_there_is_one(checkout):
    env = with_uv(checkout)
    result, done = run(checkout, '--tests', **env)
    assert result.returncode == 0 and done == TESTS, result.stderr
    assert 'uv' in seen_by_uv(checkout)
    change_a_lock(checkout)
    result, done = run(checkout, **env, BREAK='onedl.txt')
    assert 'installing OpenMMLab (the onedl set) failed: ERROR: no disk' in result.stderr
    assert '--reinstall' not in (checkout.parent / 'notes').read_text()
    assert run(checkout, **env)[1] == TESTS  # and what was killed half way is installed anew
    assert (checkout.parent / 'notes').read_text().count('--reinstall') == 4


@pytest.mark.parametrize('there', [True, False])
def test_pip_fetches_uv_or_does_without(checkout, there):
    path = os.pathsep.join(folder for folder in os.environ['PATH'].split(os.pathsep)
                           if not shutil.which('uv', path=folder))
    if not shutil.which('bash', path=path):
        pytest.skip('uv lies beside bash')
    result, done = run(checkout, MMPOSENC_INSTALLER='', PATH=path,
                       **({} if there else {'BREAK': 'uv.txt'}))
    wanted = ['uv', *MAIN]
    assert result.returncode == 0 and done == wanted, result.stderr
    assert (seen_by_uv(checkout) is not None) == there == ('going on with pip' not in result.stdout)


def test_settings_of_pip_hold_for_uv(checkout):
    """By file and environment, where a command's section goes before the general one."""
    config = checkout.parent / 'pip.conf'
    config.write_text('[global]\nindex-url = https://general\ncert = /certs.pem\n'
                      'extra_index_url =\n    https://one\n    https://two\n'
                      'constraint = a.txt\nproxy = http://proxy\ntimeout = 7\n'
                      '[install]\nindex-url = https://special\nfind-links = here there\n'
                      '[download]\nindex-url = https://elsewhere\n')
    env = {**with_uv(checkout), 'PIP_CONFIG_FILE': str(config), 'PIP_CONSTRAINT': 'b.txt',
           'PIP_FIND_LINKS': '', 'PIP_CERT': '/certs.pem', 'PIP_DEFAULT_TIMEOUT': '7',
           'UV_HTTP_TIMEOUT': '9', 'ALL_PROXY': '', 'SSL_CERT_FILE': '/other.pem'}
    assert run(checkout, **env)[0].returncode == 0
    expected = {
        'UV_DEFAULT_INDEX': 'https://special', 'UV_INDEX': 'https://one https://two',
        'UV_FIND_LINKS': 'here,there', 'UV_CONSTRAINT': 'b.txt', 'SSL_CERT_FILE': '/certs.pem',
        'ALL_PROXY': 'http://proxy', 'UV_HTTP_TIMEOUT': '9',
        'UV_INDEX_STRATEGY': 'unsafe-best-match'}
    assert expected.items() <= seen_by_uv(checkout).items()


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
    result, done = run(checkout)
    assert result.returncode == 0 and done == MAIN, result.stderr
    assert precious.read_text() == 'work'
    (checkout / '.venv/pip').unlink()  # and also when it breaks later
    (checkout / '.venv/mmposenc.stamp').unlink()
    result, done = run(checkout, NO_ENSUREPIP='1')
    assert result.returncode != 0 and done == [] and precious.read_text() == 'work'


def thesis(checkout):
    (checkout / '.venv').mkdir()
    (checkout / '.venv/thesis.tex').write_text('work')


@pytest.mark.parametrize('make', [
    lambda checkout: foreign(checkout, pip=False),
    lambda checkout: (checkout / '.venv').write_text('work'), thesis])
def test_a_place_that_can_not_be_used_is_left_alone(checkout, make):
    make(checkout)
    before = {path: path.read_bytes() for path in checkout.rglob('*') if path.is_file()}
    result, done = run(checkout, NO_ENSUREPIP='1')
    assert result.returncode != 0 and done == []
    assert '.venv is there' in result.stderr and 'set MMPOSENC_VENV' in result.stderr
    assert len(result.stderr.splitlines()) == 1 and (checkout / '.venv').exists()
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize('broken', ['venv', 'onedl.txt', 'torch.txt', 'tests.txt', '--editable',
                                    'check'])
def test_every_failed_state_is_repaired_by_the_next_run(checkout, broken):
    result, _ = run(checkout, '--tests', BREAK=broken)
    assert result.returncode != 0 and not (checkout / '.venv/mmposenc.stamp').exists()
    result, done = run(checkout, '--tests')
    assert result.returncode == 0 and done == TESTS, result.stderr
    assert not (checkout / '.venv/half').exists()
    assert run(checkout)[1] == []


def test_offline_says_so(checkout):
    result, done = run(checkout, OFFLINE='1')
    assert result.returncode != 0 and done == ['onedl']
    assert result.stderr.startswith('setup_env: installing OpenMMLab (the onedl set) failed: no '
                                    'connection to the package index')
    assert len(result.stderr.splitlines()) == 1


def test_two_at_once_are_one(checkout):
    """The second waits for the first, and finds everything done."""
    notes = checkout.parent / 'notes'
    notes.write_text('')
    env = environment(checkout, SLOW='0.1')
    several = [subprocess.Popen(['bash', checkout / 'tools/setup_env.sh'], text=True, env=env,
                                cwd=checkout.parent, stdout=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate(timeout=120)[0] for process in several]
    assert [process.returncode for process in several] == [0, 0, 0]
    assert steps(notes) == MAIN
    assert sum('is ready' in text for text in said) == 1
    assert sum('waiting for it' in text and 'is up to date' in text for text in said) == 2


def test_a_python_out_of_range_is_named(checkout, tmp_path):
    old = tmp_path / 'old'
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1\nexit 1\n')
    old.chmod(0o755)
    result, done = run(checkout, MMPOSENC_PYTHON=str(old))
    assert result.returncode != 0 and done == []
    assert len(result.stderr.splitlines()) == 1
    assert f'needs Python 3.10 to 3.13, and {old} is Python 3.9.1' in result.stderr


def test_the_other_set_needs_another_place(checkout):
    result, done = run(checkout, MMPOSENC_SET='openmmlab')
    assert result.returncode == 0 and done[0] == 'openmmlab'
    assert run(checkout, MMPOSENC_SET='openmmlab')[1] == []
    result, done = run(checkout)
    assert result.returncode != 0 and done == []
    assert 'holds the openmmlab set' in result.stderr and 'MMPOSENC_VENV' in result.stderr
    assert 'got \'both\'' in run(checkout, MMPOSENC_SET='both')[0].stderr


def locked(name):
    """What a lock file pins by name and marker: each has hashes, and nothing else is in it, such as
    an option, the address of an index or a path."""
    text = (ROOT / 'requirements' / f'{name}.txt').read_text()
    pin = r"[a-z0-9-]+==[\w.]+(?: ; [\w'<>=!() .]+)?"
    hashes = r'(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n'
    assert re.fullmatch(f'(?:{pin}{hashes})+', text)
    found = map(Requirement, re.findall(f'({pin}){hashes}', text))
    return {(each.name, str(each.marker)): each for each in found}


def test_locks_fit_each_other_and_what_they_are_made_from():
    sets = {name: locked(name) for name in ('onedl', 'openmmlab')}
    tests, left_out = locked('tests'), (ROOT / 'requirements/excludes.in').read_text().split('\n')
    apart = {key for key in sets['onedl'].keys() & sets['openmmlab'].keys()
             if sets['onedl'][key] != sets['openmmlab'][key]}
    assert {name for name, _ in apart} == {'setuptools'}
    for name, held in sets.items():
        shared = held.keys() & tests.keys()
        assert [held[key] for key in shared] == [tests[key] for key in shared]
        installed = [*held.values(), *tests.values()]
        assert not {each.name for each in installed} & set(left_out)
        project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
        extras = project['optional-dependencies']
        for wanted in map(Requirement, project['dependencies'] + extras[name] + extras['dev']):
            versions = [str(each.specifier).removeprefix('==') for each in installed
                        if each.name == wanted.name]
            assert (versions and all(map(wanted.specifier.contains, versions))
                    or wanted.name in left_out), wanted
