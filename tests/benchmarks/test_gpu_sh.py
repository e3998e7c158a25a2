"""benchmarks/gpu.sh: what it would run."""
import shlex
import subprocess
import sys

import pytest
from helpers.scripts import ROOT, load_script


def listed(part):
    done = subprocess.run(['bash', ROOT / 'benchmarks' / 'gpu.sh', '--list', part, 'OUT'],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = dict(line.split(': ', 1) for line in done.stdout.splitlines())
    assert len(found) == len(done.stdout.splitlines()), 'a name stands for two commands'
    return {name: shlex.split(command) for name, command in found.items()}


@pytest.mark.parametrize('part', 'qabc')
def test_every_command_exists_and_takes_its_arguments(part, monkeypatch, capsys):
    """argparse of every benchmark reads them, and every file is there."""
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
