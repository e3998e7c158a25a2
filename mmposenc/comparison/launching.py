"""Processes of runs. Only the standard library is imported: a job of a cluster begins here."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def launch(folder: Path, processes: int = 1, environment: Mapping[str, str] | None = None
           ) -> subprocess.Popen:
    """Starts a run; it ends with the process that called this.

    Args:
        folder: of the run; what the run prints is appended to ``log.txt`` in it.
        processes: how many train together, by torchrun.
        environment: variables that are set.
    """
    command = [sys.executable, '-m']
    words = ['mmposenc.comparison.runs', str(folder), '--tied']
    if processes > 1:
        command += ['torch.distributed.run', '--standalone', '--nproc-per-node', str(processes),
                    '-m']
        words += ['--launcher', 'pytorch']
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / 'log.txt', 'ab') as log:
        # A session of its own: Ctrl-C reaches the command, which then asks its runs to stop.
        return subprocess.Popen(
            [*command, *words], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True, env={**os.environ, **(environment or {})})


def submitted(folder: str, processes: int) -> int:
    """What a job of a cluster does: the run in a process of its own, which ends with the job."""
    return launch(Path(folder), processes).wait()
