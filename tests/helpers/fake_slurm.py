"""Slurm's commands for one machine: linked by their names into a folder of PATH.

States of tasks, by their numbers, are files of $FAKE_SLURM; while a file 'hold' is there no task
begins."""
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path


def install(folder: Path, monkeypatch) -> Path:
    """Puts the commands first on PATH; returns the folder of states."""
    states, commands = folder / 'slurm', folder / 'bin'
    for each in states, commands:
        each.mkdir()
    for name in 'sbatch', 'srun', 'sacct', 'scontrol', 'scancel':
        (commands / name).write_text(f'#!{sys.executable}\n{Path(__file__).read_text()}')
        (commands / name).chmod(0o755)
    monkeypatch.setenv('PATH', str(commands), prepend=os.pathsep)
    monkeypatch.setenv('FAKE_SLURM', str(states))
    return states


def sbatch(states: Path, file: str) -> None:
    number = 1 + sum(path.name.endswith('.sh') for path in states.iterdir())
    text = Path(file).read_text()
    Path(states, f'{number}.sh').write_text(text)
    array = re.search(r'--array=0-(\d+)', text)
    for task in range(int(array[1]) + 1 if array else 1):
        job = f'{number}_{task}' if array else str(number)
        Path(states, job).write_text('PENDING')
        own = {'SLURM_ARRAY_JOB_ID': str(number), 'SLURM_ARRAY_TASK_ID': str(task)} if array else {}
        subprocess.Popen([sys.executable, __file__, 'task', job, f'{number}.sh'],
                         env={**os.environ, **own, 'SLURM_JOB_ID': str(number)},
                         start_new_session=True, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    print(f'Submitted batch job {number}')


def task(states: Path, job: str, script: str) -> None:
    state = Path(states, job)
    while state.read_text() in ('PENDING', 'REQUEUED'):
        if Path(states, 'hold').exists():
            time.sleep(0.05)
            continue
        state.write_text('RUNNING')
        status = subprocess.call(['bash', str(states / script)])
        if state.read_text() == 'RUNNING':
            state.write_text('FAILED' if status else 'COMPLETED')


def srun(states: Path, *words: str) -> None:
    job = '_'.join(os.environ[f'SLURM_ARRAY_{name}_ID'] for name in ('JOB', 'TASK')
                   if f'SLURM_ARRAY_{name}_ID' in os.environ) or os.environ['SLURM_JOB_ID']
    Path(states, f'{job}.pid').write_text(str(os.getpid()))
    command = words[words.index(sys.executable):]
    os.execv(command[0], command)


def sacct(states: Path, *words: str) -> None:
    print('JobID|State|NodeList')
    for path in states.iterdir():
        if re.fullmatch(r'\d+(_\d+)?', path.name):
            print(f'{path.name}|{path.read_text()}|here')


def scontrol(states: Path, what: str, job: str) -> None:
    Path(states, job).write_text('REQUEUED')
    with open(states / 'requeued', 'a') as file:
        file.write(json.dumps(job) + '\n')


def scancel(states: Path, job: str, *words: str) -> None:
    Path(states, job).write_text('CANCELLED')


if __name__ == '__main__':
    name, *rest = [Path(sys.argv[0]).name, *sys.argv[1:]]
    if rest[:1] == ['task']:
        name, *rest = rest
    globals()[name](Path(os.environ['FAKE_SLURM']), *rest)
