"""Who carries out the runs of a study: processes of this machine, or jobs of a cluster by submitit.

Only the standard library is imported: a job of a cluster begins here.
"""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmposenc.terminal.messages import in_a_line

from ..study.files import read_json, write_json

if TYPE_CHECKING:
    from ..study.study import Run

#: The signal that ends a process at once. Windows has only SIGTERM.
KILL: int = getattr(signal, 'SIGKILL', signal.SIGTERM)
#: How often a run may reach a job's time limit before it is given up.
MOST_TIME_LIMITS = 100
#: The seconds that a run has to save itself at the time limit; Slurm gives submitit's jobs 90.
SAVING = 60
#: After so many seconds, a job that Slurm does not know counts as lost.
UNKNOWN_FOR = 600


def start_run_process(folder: Path, processes: int = 1, environment: Mapping[str, str] | None = None
                      ) -> subprocess.Popen:
    """Start a run, which ends when the process that called this ends.

    Args:
        folder: of the run; what the run prints is appended to ``log.txt`` in it.
        processes: how many train together, by torchrun.
        environment: variables that are set.
    """
    command = [sys.executable, '-m']
    words = ['mmposenc.lab.compare.running.runs', str(folder), '--tied']
    if processes > 1:
        command += ['torch.distributed.run', '--standalone', '--nproc-per-node', str(processes),
                    '-m']
        words += ['--launcher', 'pytorch']
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / 'log.txt', 'ab') as log:
        # The run gets a session of its own: Ctrl-C then reaches only the command, which asks its
        # runs to stop.
        return subprocess.Popen(
            [*command, *words], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True, env={**os.environ, **(environment or {})})


class _LocalRunHandle:
    """A run that this process has started; ``poll`` returns its exit status, None while it runs."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process, self.poll = process, process.poll

    def stop(self, signum: int) -> None:
        with suppress(ProcessLookupError):
            if hasattr(os, 'killpg'):
                os.killpg(self.process.pid, signum)
            else:  # Windows cannot ask a process to end, so it is ended at once.
                self.process.terminate()


class LocalWorkers:
    """Carries out runs in processes of this machine.

    Args:
        jobs: how many runs at once.
        gpus: of this machine, by the names that CUDA_VISIBLE_DEVICES takes; none: the CPU.
        gpus_per_run: each run gets so many for itself; more than one train it by torchrun.

    Raises:
        ValueError: there are not enough GPUs.
    """

    def __init__(self, jobs: int, gpus: Sequence[str] = (), gpus_per_run: int = 1) -> None:
        if gpus and jobs * gpus_per_run > len(gpus):
            raise ValueError(f'--jobs {jobs} with --gpus-per-run {gpus_per_run} needs '
                             f'{jobs * gpus_per_run} GPUs; there are {len(gpus)}')
        if gpus_per_run > 1 and not gpus:
            raise ValueError(f'--gpus-per-run {gpus_per_run}: there is no GPU here')
        self.jobs = jobs
        self.gpus, self.gpus_per_run = tuple(gpus), gpus_per_run
        self.slots: list[_LocalRunHandle | None] = [None] * jobs

    def environment(self, slot: int) -> dict[str, str]:
        """The environment variables of a run in a slot: its own GPUs, and its share of the cores.
        """
        variables = {}
        if self.gpus:
            start = slot * self.gpus_per_run
            variables['CUDA_VISIBLE_DEVICES'] = ','.join(self.gpus[start:start + self.gpus_per_run])
        if 'OMP_NUM_THREADS' not in os.environ:
            variables['OMP_NUM_THREADS'] = str(max(1, num_usable_cores() // self.jobs))
        return variables

    def start(self, runs: Sequence[Run]) -> list[Handle]:
        """Start runs, as many as there are free slots."""
        return [self._start_run(run) for run in runs]

    def _start_run(self, run: Run) -> Handle:
        slot = next(i for i, each in enumerate(self.slots)
                    if each is None or each.poll() is not None)
        handle = _LocalRunHandle(start_run_process(run.folder, self.gpus_per_run,
                                                   self.environment(slot)))
        self.slots[slot] = handle
        return handle


def num_usable_cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def visible_gpu_ids() -> list[str]:
    """The GPUs of this machine, by the names that CUDA_VISIBLE_DEVICES gives them."""
    import torch

    named = os.environ.get('CUDA_VISIBLE_DEVICES')
    count = torch.cuda.device_count()
    names = named.split(',') if named else [str(i) for i in range(count)]
    return names[:count]


class RunInClusterJob:
    """What a job of a cluster does: a run in a process of its own, which ends with the job.

    At the time limit submitit calls :meth:`checkpoint`: the run saves itself, and the job goes back
    into the queue.
    """

    process: subprocess.Popen | None = None

    def __call__(self, folder: str, processes: int) -> int:
        self.process = start_run_process(Path(folder), processes)
        # Not wait(), whose lock would keep checkpoint() out.
        while (status := self.process.poll()) is None:
            time.sleep(0.2)
        return status

    def checkpoint(self, folder: str, processes: int) -> Any:
        """Wait until the run has saved itself, and return the job that is queued in place of this
        one."""
        from submitit.helpers import DelayedSubmission
        if self.process is not None:
            _LocalRunHandle(self.process).stop(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(SAVING)
        return DelayedSubmission(RunInClusterJob(), folder, processes)


class _ClusterJobHandle:
    def __init__(self, job: Any, ends_here: bool) -> None:
        self.job, self.ends_here = job, ends_here

    def poll(self) -> int | None:
        if not self.job.done():
            return None
        try:
            return int(self.job.result())
        except Exception:  # Errors of the cluster: a time limit, or a node that went away.
            return 1

    def stop(self, signum: int) -> None:
        if self.ends_here:
            self.job.cancel()


class SubmittedWorkers:
    """Jobs of a cluster, by the package submitit: an array of all runs that are started at once.
    Jobs of Slurm continue when the command ends; their numbers are in the runs' folders, and the
    same command, given again, waits for those that are queued or running.

    Args:
        folder: for submitit's files; the study's must be on a disk that all machines share.
        cluster: 'slurm', or 'local' for processes of this machine.
        options: of submitit's executor, such as slurm_partition and timeout_min.
        processes: that train a run together, by torchrun; one a GPU.

    Raises:
        ValueError: submitit is not installed, or takes no such option.
    """

    #: The number of runs at a time: all of them.
    jobs = None

    def __init__(self, folder: Path, cluster: str, options: dict[str, object], processes: int = 1
                 ) -> None:
        # Otherwise its import would close the log files of this process.
        os.environ.setdefault('SUBMITIT_LOG_LEVEL', 'NOCONFIG')
        try:
            import submitit
        except ImportError:
            raise ValueError('--submitit needs the package submitit: pip install submitit'
                             ) from None
        try:
            self.executor = submitit.AutoExecutor(
                folder=folder, cluster=cluster, **{f'{cluster}_max_num_timeout': MOST_TIME_LIMITS})
            self.executor.update_parameters(**options)
        except Exception as error:  # It raises errors of any kind, also assertions.
            raise ValueError(f'--submitit {cluster} {options}: {in_a_line(error)}') from error
        self.cluster, self.processes = cluster, processes

    def start(self, runs: Sequence[Run]) -> list[Handle]:
        """Start runs, but not those that an earlier command has queued already."""
        jobs = {run.folder: self._queued_job(run) for run in runs}
        new = [run for run in runs if jobs[run.folder] is None]
        if new:
            with self.executor.batch():
                queued = [self.executor.submit(
                    RunInClusterJob(), str(run.folder.resolve()), self.processes) for run in new]
            for run, job in zip(new, queued, strict=True):
                jobs[run.folder] = job
                if self.cluster == 'slurm':
                    write_json(run.folder / 'job.json', {'id': job.job_id, 'time': time.time()})
        return [_ClusterJobHandle(jobs[run.folder], self.cluster != 'slurm') for run in runs]

    def _queued_job(self, run: Run) -> Any:
        """The job of a run that Slurm still has, or None."""
        stored_job = read_json(run.folder / 'job.json') if self.cluster == 'slurm' else None
        if stored_job is None:
            return None
        from submitit import SlurmJob
        job: Any = SlurmJob(folder=self.executor.folder, job_id=stored_job['id'])
        state = job.get_info(mode='force').get('State')
        # Slurm may not know a job yet that was queued just now.
        known = state is not None or time.time() - stored_job['time'] < UNKNOWN_FOR
        return job if known and not job.done() else None


#: A run that was started, whichever way runs are carried out.
Handle = _LocalRunHandle | _ClusterJobHandle
Workers = LocalWorkers | SubmittedWorkers
