"""What needs processes of its own: two workers, a terminal."""
import os
import subprocess
import sys

import pytest
import torch
from helpers.scripts import ROOT

ENV = {**os.environ, 'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1', 'PYTHON': sys.executable,
       'PORT': '29611'}


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason='two processes need two GPUs')
def test_two_processes_on_a_cpu(detector, tmp_path) -> None:
    run = subprocess.run(
        ['bash', ROOT / 'tools' / 'dist_train.sh', detector['config'], '2', '--work-dir', tmp_path,
         '--cfg-options', 'train_dataloader.batch_size=1'],
        env=ENV, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    log = next(tmp_path.glob('*/*.log')).read_text()
    assert 'Epoch(train) [1][2/2]' in log  # four images, one each, in two processes
    assert 'Epoch(val) [1][2/2]' in log
    weights = torch.load(tmp_path / 'epoch_1.pth', weights_only=False)['state_dict']
    assert not any(name.startswith('module.') for name in weights)


SRUN = """#!/usr/bin/env bash
printf '%s\\n' "$@" "OMP_NUM_THREADS=$OMP_NUM_THREADS"
"""


@pytest.mark.parametrize('tool, given, passed', [
    ('train', 'work dir', ['--work-dir=work dir']), ('test', 'last one.pth', ['last one.pth'])])
@pytest.mark.parametrize('gpus, per_node', [('2', '2'), ('64', '8')])
def test_what_slurm_is_asked_for(tmp_path, tool, given, passed, gpus, per_node) -> None:
    """By a stand-in for srun that says what it got: a word a line, none split at its spaces."""
    script = ROOT / 'tools' / f'slurm_{tool}.sh'
    assert subprocess.run(['bash', '-n', script]).returncode == 0
    (tmp_path / 'srun').write_text(SRUN)
    (tmp_path / 'srun').chmod(0o755)
    run = subprocess.run(
        ['bash', script, 'gpu', 'a job', 'my config.py', given, '--cfg-options', 'a=1'],
        env={**ENV, 'PATH': f"{tmp_path}:{os.environ['PATH']}", 'GPUS': gpus,
             'CPUS_PER_TASK': '12', 'SRUN_ARGS': '--time=8:00:00 --exclusive'},
        capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        '-p', 'gpu', '--job-name=a job', f'--gres=gpu:{per_node}', f'--ntasks={gpus}',
        f'--ntasks-per-node={per_node}', '--cpus-per-task=12', '--kill-on-bad-exit=1',
        '--time=8:00:00', '--exclusive', sys.executable, '-u',
        '-m', 'mmposenc', tool, 'my config.py', *passed, '--launcher', 'slurm',
        '--cfg-options', 'a=1', 'OMP_NUM_THREADS=1']
