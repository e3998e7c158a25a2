"""In the process that test_accelerator.py starts: the stand-in, and an end that it survives."""
import os

import pytest
import torch


@pytest.fixture
def deterministic():
    """What ``randomness=dict(deterministic=True)`` sets."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


if os.environ.get('MMPOSENC_ACCELERATOR') == 'stand-in':
    import tempfile
    from pathlib import Path

    def pytest_configure(config):
        from stand_in import install
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            install(Path(folder))

    def pytest_unconfigure(config):
        from stand_in import leave
        leave(config.exit_code)

    def pytest_sessionfinish(session, exitstatus):
        session.config.exit_code = int(exitstatus)
