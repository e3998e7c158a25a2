"""What makes tests cheaper and none of them weaker."""
import contextlib
import gc
import logging
import sys

import pytest
from helpers import process_state

import mmposenc  # noqa: F401  (before timm and OpenMMLab: it provides operators they may lack)

#: Modules there were when objects were last frozen.
_frozen = 0
#: What ran before the tests, or was already reported.
_running: set[str] = set()


def pytest_addoption(parser):
    parser.addoption('--all', action='store_true', help='run the tests marked slow, too')


def pytest_collection_modifyitems(config, items):
    """Slow tests are left out, unless they are asked for by --all or by their names."""
    if config.getoption('all') or any('::' in argument for argument in config.args):
        return
    slow = [item for item in items if item.get_closest_marker('slow')]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if not item.get_closest_marker('slow')]


def pytest_configure(config):
    """Configs are written as they are: the sum of what mmengine's formatter takes (a second for
    each of the four times a training writes its config) was a third of all trainings."""
    with contextlib.suppress(ImportError):
        from yapf.yapflib import yapf_api
        yapf_api.FormatCode = lambda text, **options: (text, False)


@pytest.fixture
def fresh_compiler():
    """Nothing is compiled before, nor after; its options are as compile_regions sets them, and go
    back."""
    import torch
    import torch.fx.experimental._config as shape_config
    torch._dynamo.reset()
    with torch._dynamo.config.patch(specialize_float=True), shape_config.patch(
            use_duck_shape=False):
        yield
    torch._dynamo.reset()


@pytest.fixture
def said():
    """(level, text) of each line that mmengine's print_log writes."""
    from mmengine.logging import MMLogger
    lines, handler = [], logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.append((record.levelno, record.getMessage()))
    MMLogger.get_instance('said').addHandler(handler)
    return lines


@pytest.fixture
def warnings(said):
    """A function that lists those that are warnings."""
    return lambda: [text for level, text in said if level == logging.WARNING]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Modules are no garbage: OpenMMLab's data sets look for garbage among all objects when they
    are made, and torch.compile after each graph."""
    global _frozen
    if len(sys.modules) > _frozen + 200:
        gc.collect()
        gc.freeze()
        _frozen = len(sys.modules)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test finds the process as the first one did, and leaves it so."""
    with process_state.remember():
        process_state.seed()
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """What a test leaves running is an error of that test."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        found = process_state.running() - _running
        if found:
            _running.update(found)
            pytest.fail(f'left running: {", ".join(sorted(found))}', pytrace=False)
    return result
