"""A stand-in for a machine that is not Linux, for a process that imports it.

Modules, functions and signals that Windows does not have are gone, nothing below /proc can be
opened, and no folder. It is no Windows: paths, encodings and open files behave as here.
"""
import os
import signal
import sys
from typing import Any

MODULES = ('fcntl', 'grp', 'pwd', 'pty', 'resource', 'syslog', 'termios', 'tty')
FUNCTIONS = ('fork', 'forkpty', 'getpgid', 'killpg', 'mkfifo', 'nice',
             'sched_getaffinity', 'setsid', 'statvfs', 'sysconf')
SIGNALS = ('SIGALRM', 'SIGCHLD', 'SIGHUP', 'SIGKILL', 'SIGPIPE', 'SIGQUIT', 'SIGSTOP', 'SIGUSR1',
           'SIGUSR2', 'alarm', 'pthread_sigmask', 'setitimer', 'sigwait')


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event == 'open' and isinstance(args[0], str):
        if args[0].startswith('/proc'):
            raise FileNotFoundError(2, 'there is no /proc', args[0])
        if args[1] is None and os.path.isdir(args[0]) and _ours(sys._getframe(1)):
            raise PermissionError(13, 'folders cannot be opened', args[0])


def _ours(frame: Any) -> bool:
    return str(frame.f_globals.get('__name__')).startswith('mmposenc')


for module in MODULES:
    sys.modules[module] = None  # type: ignore[assignment]
for owner, names in ((os, FUNCTIONS), (signal, SIGNALS)):
    for name in names:
        if hasattr(owner, name):
            delattr(owner, name)
sys.addaudithook(_refuse)
