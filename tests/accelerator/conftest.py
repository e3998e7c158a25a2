"""In the process that test_accelerator.py starts: the stand-in, and an end that it survives."""
import os

if os.environ.get('MMPOSENC_ACCELERATOR') == 'stand-in':
    import tempfile
    from pathlib import Path

    import torch

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
