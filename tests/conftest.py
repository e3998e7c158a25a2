"""What makes tests cheaper and none of them weaker."""
import contextlib
import gc
import sys

import pytest

#: Modules there were when objects were last frozen.
_frozen = 0


def pytest_configure(config):
    """Configs are written as they are: the sum of what mmengine's formatter takes (a second for
    each of the four times a training writes its config) was a third of all trainings."""
    with contextlib.suppress(ImportError):
        from yapf.yapflib import yapf_api
        yapf_api.FormatCode = lambda text, **options: (text, False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Modules are no garbage: OpenMMLab's data sets look for garbage among all objects when they
    are made, and torch.compile after each graph."""
    global _frozen
    if len(sys.modules) > _frozen + 200:
        gc.collect()
        gc.freeze()
        _frozen = len(sys.modules)
