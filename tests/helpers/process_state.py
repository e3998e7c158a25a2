"""What a process has one of: read before a test, put back after it.

A test that trains, compiles or reads a config changes loggers, flags and registries of the process
that it runs in. Without this, the next test would find them as they were left, and its result would
depend on the order of the tests.
"""
import inspect
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
#: Modules below these stay imported; others, such as a user's file in a temporary folder, do not.
INSTALLED = tuple(str(Path(folder).resolve()) for folder in (ROOT, sys.prefix, sys.base_prefix))
TESTS = str(ROOT / 'tests')


def remember() -> ExitStack:
    """Read the state of this process. The stack puts it back when it is closed."""
    parts = [_interpreter, _loggers, _modules]
    if 'torch' in sys.modules:
        parts.append(_torch)
    if 'torch._dynamo.config' in sys.modules:
        parts.append(_dynamo)
    if 'mmengine' in sys.modules:
        parts += [_instances, _registries]
    if 'mmcv.cnn.bricks.transformer' in sys.modules:
        parts.append(_default_of_mmcv)
    state = ExitStack()
    for part in parts:
        part(state)
    return state


def seed() -> None:
    """Start the random numbers of a test at the same place, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
    if 'torch' in sys.modules:
        sys.modules['torch'].manual_seed(0)


def running() -> set[str]:
    """What cannot be put back: threads that keep a process alive, child processes, a process
    group of torch. Idle threads of a pool, such as torch.compile's, end with the process."""
    found = {f'thread {thread.name}' for thread in threading.enumerate()
             if not thread.daemon and thread is not threading.main_thread()
             and not thread.name.startswith('ThreadPoolExecutor')}
    found |= {f'process {child.name}' for child in multiprocessing.active_children()}
    if 'torch' in sys.modules and sys.modules['torch'].distributed.is_initialized():
        found.add('process group of torch')
    return found


def _interpreter(state: ExitStack) -> None:
    state.enter_context(mock.patch.dict(os.environ))
    state.callback(os.chdir, os.getcwd())
    for name in ('path', 'argv'):
        state.callback(setattr, sys, name, list(getattr(sys, name)))
    state.callback(setattr, sys, 'excepthook', sys.excepthook)
    state.callback(multiprocessing.set_start_method,
                   multiprocessing.get_start_method(allow_none=True), force=True)
    state.callback(random.setstate, random.getstate())
    state.callback(np.random.set_state, np.random.get_state())
    if threading.current_thread() is threading.main_thread():  # In others none may be set.
        for number in (signal.SIGINT, signal.SIGTERM):
            state.callback(signal.signal, number, signal.getsignal(number))


def _all_loggers() -> Iterator[logging.Logger]:
    yield logging.root
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield logger


def _close_files(handlers: Iterable[logging.Handler]) -> None:
    for handler in handlers:
        if isinstance(handler, logging.FileHandler):
            handler.close()


def _loggers(state: ExitStack) -> None:
    before = {logger: (logger.level, logger.propagate, logger.disabled, list(logger.handlers),
                       list(logger.filters)) for logger in _all_loggers()}
    disabled = logging.root.manager.disable

    def restore() -> None:
        logging.disable(disabled)
        for logger in _all_loggers():
            level, propagate, off, handlers, filters = before.get(
                logger, (logging.NOTSET, True, False, [], []))
            _close_files(set(logger.handlers) - set(handlers))
            logger.handlers[:], logger.filters[:] = handlers, filters
            logger.propagate, logger.disabled = propagate, off
            if logger.level != level:
                logger.setLevel(level)
    state.callback(restore)


def _modules(state: ExitStack) -> None:
    state.callback(_forget_users_modules, set(sys.modules))


def _forget_users_modules(before: set[str]) -> None:
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], '__file__', None)
        if file and not str(Path(file).resolve()).startswith(INSTALLED):
            del sys.modules[name]


def _torch(state: ExitStack) -> None:
    import torch
    for put, value in (
            (torch.set_rng_state, torch.get_rng_state()),
            (torch.set_default_dtype, torch.get_default_dtype()),
            (torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode()),
            (torch.set_grad_enabled, torch.is_grad_enabled()),
            (torch.set_num_threads, torch.get_num_threads())):
        state.callback(put, value)
    cudnn, deterministic = torch.backends.cudnn, torch.utils.deterministic
    for owner, name in ((deterministic, 'fill_uninitialized_memory'), (cudnn, 'deterministic'),
                        (cudnn, 'benchmark')):
        state.callback(setattr, owner, name, getattr(owner, name))


def _dynamo(state: ExitStack) -> None:
    from torch._dynamo import config
    before = config.get_config_copy()

    def restore() -> None:
        now = config.get_config_copy()
        for name, value in before.items():
            if now[name] != value:
                setattr(config, name, value)
    state.callback(restore)


def _managers(base: Any) -> Iterator[Any]:
    for kind in base.__subclasses__():
        yield kind
        yield from _managers(kind)


def _instances(state: ExitStack) -> None:
    """Loggers, message hubs, visualizers and default scopes, of which mmengine takes the newest."""
    from mmengine.utils import ManagerMixin
    before = {kind: dict(kind._instance_dict) for kind in _managers(ManagerMixin)}

    def restore() -> None:
        for kind in _managers(ManagerMixin):
            kept = before.get(kind, {})
            for name, instance in kind._instance_dict.items():
                if name not in kept and isinstance(instance, logging.Logger):
                    _close_files(instance.handlers)
            kind._instance_dict.clear()
            kind._instance_dict.update(kept)
    state.callback(restore)


def _default_of_mmcv(state: ExitStack) -> None:
    """mmcv writes the rate of an attention's old argument ``dropout`` into the default of all."""
    from mmcv.cnn.bricks.transformer import MultiheadAttention
    default = inspect.signature(MultiheadAttention).parameters['dropout_layer'].default
    state.callback(default.update, dict(default))


def _all_registries() -> Iterator[Any]:
    import mmengine.registry

    def family(registry: Any) -> Iterator[Any]:
        yield registry
        for child in registry.children.values():
            yield from family(child)
    for value in vars(mmengine.registry).values():
        if isinstance(value, mmengine.registry.Registry) and value.parent is None:
            yield from family(value)


def _is_installed(module: str | None) -> bool:
    """Whether a class comes from a package, whose import would not register it again."""
    file = getattr(sys.modules.get(str(module)), '__file__', None) or sys.prefix
    return str(Path(file).resolve()).startswith(INSTALLED) and not file.startswith(TESTS)


def _registries(state: ExitStack) -> None:
    before = {id(registry): dict(registry.module_dict) for registry in _all_registries()}

    def restore() -> None:
        for registry in _all_registries():
            names, kept = registry.module_dict, before.get(id(registry), {})
            for name, value in list(names.items()):
                if name not in kept and not _is_installed(getattr(value, '__module__', None)):
                    del names[name]
            names.update({name: value for name, value in kept.items()
                          if names.get(name) is not value})
    state.callback(restore)
