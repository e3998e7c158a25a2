"""tools/setup_env.sh with a Python whose pip only takes notes: no network, no real environment."""
import os
import re
import shutil
import subprocess
import sys

import pytest
from helpers.scripts import ROOT
from packaging.requirements import Requirement

tomllib = pytest.importorskip('tomllib')
pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(shutil.which('bash') is None, reason='needs bash')]

FAKES = ROOT / 'tests' / 'tools' / 'fakes'
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


def run(root, *words, **env):
    """How the script ended, and the steps that reached pip."""
    notes, python = root.parent / 'notes', str(root.parent / 'fake python')
    notes.write_text('')
    defaults = dict(MMPOSENC_PYTHON=python, FAKE=python, NOTES=str(notes), REAL=sys.executable,
                    MMPOSENC_VENV=str(root / '.venv'), MMPOSENC_INSTALLER='pip')
    result = subprocess.run(['bash', root / 'tools/setup_env.sh', *words], text=True,
                            capture_output=True, cwd=root.parent,
                            env={**os.environ, **defaults, **env})
    lines = [line.split(' --constraint')[0] for line in notes.read_text().splitlines()]
    return result, [re.search(r'(\w+)(\.txt| \.)?$', line)[1] for line in lines]


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
    with open(checkout / 'requirements/onedl.txt', 'a') as lock:
        lock.write('# changed\n')
    assert run(checkout, BREAK='torch.txt')[0].returncode != 0
    assert run(checkout)[1] == TESTS  # a failure after a success is not up to date
    result, done = run(checkout, '--test')
    assert result.returncode != 0 and done == []
    assert "unknown arguments '--test'" in result.stderr


def test_settings_of_pip_hold_for_uv(checkout):
    """By file and environment, where a command's section goes before the general one."""
    config = checkout.parent / 'pip.conf'
    config.write_text('[global]\nindex-url = https://general\ncert = /certs.pem\n'
                      'extra_index_url =\n    https://one\n    https://two\n'
                      'constraint = a.txt\nproxy = http://proxy\ntimeout = 7\n'
                      '[install]\nindex-url = https://special\nfind-links = here there\n'
                      '[download]\nindex-url = https://elsewhere\n')
    uv = checkout.parent / 'bin/uv'
    uv.parent.mkdir()
    shutil.copy(FAKES / 'uv.sh', uv)
    uv.chmod(0o755)
    env = {'MMPOSENC_INSTALLER': 'uv', 'PATH': f"{uv.parent}:{os.environ['PATH']}",
           'PIP_CONFIG_FILE': str(config), 'PIP_CONSTRAINT': 'b.txt',
           'PIP_FIND_LINKS': '', 'PIP_CERT': '/certs.pem', 'PIP_DEFAULT_TIMEOUT': '7',
           'UV_HTTP_TIMEOUT': '9', 'ALL_PROXY': '', 'SSL_CERT_FILE': '/other.pem'}
    assert run(checkout, **env)[1] == MAIN
    expected = {
        'UV_DEFAULT_INDEX': 'https://special', 'UV_INDEX': 'https://one https://two',
        'UV_FIND_LINKS': 'here,there', 'UV_CONSTRAINT': 'b.txt', 'SSL_CERT_FILE': '/certs.pem',
        'ALL_PROXY': 'http://proxy', 'UV_HTTP_TIMEOUT': '9',
        'UV_INDEX_STRATEGY': 'unsafe-best-match'}
    seen = (checkout.parent / 'notes.env').read_text().splitlines()
    assert {f'{name}={value}' for name, value in expected.items()} <= set(seen)


@pytest.mark.parametrize('files', [['bin/python', 'pyvenv.cfg'], ['thesis.tex']])
def test_an_environment_of_somebody_else_is_used_if_it_has_pip_and_never_deleted(checkout, files):
    """As uv makes one: without pip."""
    venv = checkout / '.venv'
    for name in files:
        (venv / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(checkout.parent / 'fake python', venv / name)
    result, done = run(checkout, NO_ENSUREPIP='1')
    assert result.returncode != 0 and done == [] and len(result.stderr.splitlines()) == 1
    assert '.venv is there' in result.stderr and 'set MMPOSENC_VENV' in result.stderr
    assert all((venv / name).is_file() for name in files)
    if 'bin/python' in files:
        assert run(checkout)[1] == MAIN and (venv / 'pyvenv.cfg').stat().st_size


@pytest.mark.parametrize('env, said', [
    (dict(OFFLINE='1'), 'OpenMMLab (the onedl set) failed: no connection to the package index'),
    (dict(MMPOSENC_PYTHON='/bin/false'), 'needs Python 3.10 to 3.13, and /bin/false is '),
    (dict(MMPOSENC_SET='both'), "got 'both'")])
def test_what_cannot_be_is_said_in_a_line(checkout, env, said):
    result, _ = run(checkout, **env)
    assert result.returncode != 0 and said in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize('broken', ['venv', 'onedl.txt', '--editable', 'check'])
def test_every_failed_state_is_repaired_by_the_next_run(checkout, broken):
    result, _ = run(checkout, '--tests', BREAK=broken)
    assert result.returncode != 0 and not (checkout / '.venv/mmposenc.stamp').exists()
    result, done = run(checkout, '--tests')
    assert result.returncode == 0 and done == TESTS, result.stderr
    assert not (checkout / '.venv/half').exists()
    assert run(checkout)[1] == []


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
