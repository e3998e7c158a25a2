"""benchmarks/gpu.sh: what it would run, and how it goes on."""
import os
import shlex
import subprocess
import sys

import pytest
from helpers.scripts import ROOT, load_script


def gpu_sh(*args, **env):
    return subprocess.run(['bash', str(ROOT / 'benchmarks' / 'gpu.sh'), *map(str, args)],
                          capture_output=True, text=True, env={**os.environ, **env})


def listed(part):
    done = gpu_sh('--list', part, 'OUT')
    assert done.returncode == 0, done.stderr
    found = dict(line.split(': ', 1) for line in done.stdout.splitlines())
    assert len(found) == len(done.stdout.splitlines()), 'a name stands for two commands'
    return {name: shlex.split(command) for name, command in found.items()}


@pytest.mark.parametrize('part', 'abc')
def test_every_command_exists_and_takes_its_arguments(part, monkeypatch, capsys):
    """argparse of every benchmark reads them, and every file is there."""
    pytest.importorskip('mmdet')
    modules = {}
    for name, command in listed(part).items():
        for word in command:
            if word.startswith(('benchmarks/', 'tools/', 'tests/', 'configs/')):
                assert (ROOT / word).exists(), (name, word)
        if command[1].startswith('benchmarks/'):
            stem = command[1].removeprefix('benchmarks/').removesuffix('.py')
            if stem not in modules:
                modules[stem] = load_script('benchmarks', stem)
            monkeypatch.setattr(sys, 'argv', [*command[1:], '--help'])
            with pytest.raises(SystemExit) as end:
                modules[stem].main()
            assert not end.value.code, (name, capsys.readouterr().err)
        if part in 'bc':
            assert command[-2:] == ['--device', 'cuda'] and '--dtype' in command, name


@pytest.mark.parametrize('args, expected', [
    (('e', 'OUT'), "needs a part a, b or c, got 'e'"), (('a',), 'needs a folder OUT'),
    (('--fast', 'a', 'OUT'), "unknown option '--fast'")])
def test_wrong_arguments(args, expected):
    done = gpu_sh(*args)
    assert done.returncode == 2 and expected in done.stderr


@pytest.fixture
def fake_python(tmp_path):
    """Prints a table for every command, notes its arguments, and fails for pytest."""
    path = tmp_path / 'python'
    path.write_text('#!/usr/bin/env bash\n'
                    f'echo "$*" >> {tmp_path}/calls\n'
                    'case "$*" in *"-m pytest"*) echo "no kernel"; exit 1 ;; esac\n'
                    'echo "A GPU; torch 2: \\`python benchmarks/x.py\\`"\n'
                    'echo; echo "noise"; echo "| a | b |"\n')
    path.chmod(0o755)
    return path


def test_a_part_writes_tables_and_repeats_what_failed_alone(tmp_path, fake_python):
    def run(part):
        return gpu_sh('--tiny', part, tmp_path / 'out', PYTHON=str(fake_python))

    def calls():
        return (tmp_path / 'calls').read_text().splitlines()
    done = run('a')
    assert done.returncode == 1 and 'a-devices failed (1' in done.stdout
    assert 'no kernel' in done.stdout and '1 commands failed' in done.stdout
    text = (tmp_path / 'out/a.md').read_text()
    assert '## a-environment.md' in text and '| a | b |' in text and 'noise' not in text
    first = len(calls())
    assert 'a-environment is done' in run('a').stdout
    assert len(calls()) == first + 2  # the check for a GPU, and what failed
    for number in (0, len(listed('c'))):
        done = run('c')
        assert done.returncode == 0 and '0 commands failed' in done.stdout
        assert done.stdout.count(' is done') == number
    assert all('--tiny' in line for line in calls() if 'benchmarks/' in line)
