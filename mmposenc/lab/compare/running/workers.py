"""Who carries out the runs of a study: processes of this machine, or jobs of a cluster by submitit.

What torch needs is imported where it is used: a job of a cluster begins here.
"""
from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmposenc.terminal.messages import in_a_line
from mmposenc.terminal.processes import python_command

if TYPE_CHECKING:
    from ..study.study import Run

#: The exit status of a run on which another process works.
TAKEN = 75
#: How often a run may reach a job's time limit before it is given up.
MOST_TIME_LIMITS = 100
#: The seconds that a run has to save itself at the time limit, for which Slurm gives submitit's
#: jobs 90, or after the command was stopped.
SAVING = 60


def start_run_process(folder: Path, **variables: str) -> subprocess.Popen:
    """Start a run, which ends when the process that called this ends. What it prints is appended to
    ``log.txt`` in its folder; ``variables`` are those of its environment."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / 'log.txt', 'ab') as log:
        # The run gets a session of its own: Ctrl-C then reaches only the command, which asks its
        # runs to stop.
        return subprocess.Popen(
            python_command('from mmposenc.lab.compare.running.runs import main; sys.exit(main())',
                           str(folder), '--tied'),
            stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **variables})


class LocalJob:
    """A run in a process of this machine.

    Args:
        run: which.
        gpu: the GPU that it alone sees; None: the CPU.
        threads: its share of the cores; None: as many as the environment says.
    """

    def __init__(self, run: Run, gpu: str | None, threads: int | None) -> None:
        variables = {} if gpu is None else {'CUDA_VISIBLE_DEVICES': gpu}
        if threads is not None:
            variables['OMP_NUM_THREADS'] = str(threads)
        self.gpu, self.process = gpu, start_run_process(run.folder, **variables)

    def done(self) -> bool:
        """Whether the run has ended."""
        return self.process.poll() is not None

    def result(self) -> int:
        """The exit status of a run that has ended."""
        return self.process.wait()


class LocalWorkers:
    """Carries out runs in processes of this machine.

    Args:
        jobs: how many runs at once.
        gpus: those of this machine, by the names that CUDA_VISIBLE_DEVICES takes; none: the CPU.
            Each run gets one for itself.

    Raises:
        ValueError: there are not enough GPUs.
    """

    def __init__(self, jobs: int, gpus: Sequence[str] = ()) -> None:
        if gpus and jobs > len(gpus):
            raise ValueError(f'--jobs {jobs} needs {jobs} GPUs; there are {len(gpus)}')
        self.jobs, self.gpus = jobs, gpus
        self.threads = None if 'OMP_NUM_THREADS' in os.environ else max(
            1, num_usable_cores() // jobs)
        self.running: list[LocalJob] = []

    def start(self, runs: Sequence[Run]) -> list[LocalJob]:
        """Start runs, no more than ``jobs`` with those that have not ended."""
        self.running = [job for job in self.running if not job.done()]
        used = [job.gpu for job in self.running]
        free = [gpu for gpu in self.gpus if gpu not in used] if self.gpus else [None] * len(runs)
        started = [LocalJob(run, gpu, self.threads)
                   for run, gpu in zip(runs, free, strict=False)]
        self.running += started
        return started

    def stop(self) -> None:
        """Ask what runs to save itself and end. A second Ctrl-C, or too long a wait, ends it at
        once."""
        running = [job.process for job in self.running if not job.done()]
        try:
            for process in running:
                process.terminate()
            end = time.monotonic() + SAVING
            for process in running:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, end - time.monotonic()))
        finally:
            for process in running:
                process.kill()


def num_usable_cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def visible_gpu_ids() -> list[str]:
    """The GPUs of this machine, by the names that CUDA_VISIBLE_DEVICES gives them."""
    import torch

    count, named = torch.cuda.device_count(), os.environ.get('CUDA_VISIBLE_DEVICES')
    return named.split(',')[:count] if named else [str(i) for i in range(count)]


class RunInClusterJob:
    """What a job of a cluster does: a run in a process of its own, which ends with the job.

    At the time limit submitit calls :meth:`checkpoint`: the run saves itself, and the job goes back
    into the queue.
    """

    process: subprocess.Popen | None = None

    def __call__(self, folder: str) -> int:
        self.process = start_run_process(Path(folder))
        # Not wait(), whose lock would keep checkpoint() out.
        while (status := self.process.poll()) is None:
            time.sleep(0.2)
        return status

    def checkpoint(self, folder: str) -> Any:
        """Wait until the run has saved itself, and return the job that is queued in place of this
        one."""
        from submitit.helpers import DelayedSubmission
        if self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(SAVING)
        return DelayedSubmission(RunInClusterJob(), folder)


class SubmittedWorkers:
    """Jobs of a cluster, by the package submitit: an array of all runs that are started at once.
    Jobs of Slurm continue when the command ends. The same command, given again, queues what is not
    over again; of two jobs of a run the second ends at once.

    Args:
        folder: for submitit's files; the study's must be on a disk that all machines share.
        cluster: 'slurm', or 'local' for processes of this machine.
        options: options of submitit's executor, such as slurm_partition and timeout_min.

    Raises:
        ValueError: submitit is not installed, or takes no such option.
    """

    #: The number of runs at a time: all of them.
    jobs = None

    def __init__(self, folder: Path, cluster: str, options: dict[str, object]) -> None:
        # Otherwise its import would close the log files of this process.
        os.environ.setdefault('SUBMITIT_LOG_LEVEL', 'NOCONFIG')
        os.environ.setdefault('PYTHONSAFEPATH', '1')  # It starts its controller by ``python -m``.
        try:
            import submitit
        except ImportError:
            raise ValueError('--submitit needs the package submitit: pip install submitit'
                             ) from None
        try:
            # Jobs are started by the words ``PYTHON -u -m MODULE FOLDER``, the last three of which
            # reach the code as arguments.
            python = shlex.join(python_command(
                'import runpy; del sys.argv[1:3]; runpy.run_module(sys.argv.pop(1), '
                'run_name="__main__", alter_sys=True)'))
            self.executor = submitit.AutoExecutor(
                folder=folder, cluster=cluster, **{f'{cluster}_max_num_timeout': MOST_TIME_LIMITS,
                                                   f'{cluster}_python': python})
            self.executor.update_parameters(**options)
        except Exception as error:  # It raises errors of any kind, also assertions.
            raise ValueError(f'--submitit {cluster} {options}: {in_a_line(error)}') from error
        self.cluster, self.started = cluster, list[Any]()

    def start(self, runs: Sequence[Run]) -> list[Any]:
        """Start runs as one array."""
        with self.executor.batch():
            jobs = [self.executor.submit(RunInClusterJob(), str(run.folder.resolve()))
                    for run in runs]
        self.started += jobs
        return jobs

    def stop(self) -> None:
        """End the jobs on this machine; those of Slurm go on."""
        for job in self.started if self.cluster != 'slurm' else ():
            if not job.done():
                job.cancel()


Workers = LocalWorkers | SubmittedWorkers


def workers_from_arguments(args: argparse.Namespace) -> Workers:
    """Who carries out the runs, according to ``--jobs`` and ``--submitit``.

    Raises:
        ValueError: there are not enough GPUs, or submitit is missing or refuses an option.
    """
    if not args.submitit:
        gpus = visible_gpu_ids()
        return LocalWorkers(args.jobs or max(1, len(gpus)), gpus)
    cluster, *words = args.submitit
    options: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition('=')
        if not equals:
            raise ValueError(f'--submitit: {word!r} is not KEY=VALUE')
        options[key] = int(value) if value.isdecimal() else value
    # A folder of its own, as submitit would take results in it for those of its jobs.
    return SubmittedWorkers(args.out / 'submitit' / uuid.uuid4().hex, cluster, options)
