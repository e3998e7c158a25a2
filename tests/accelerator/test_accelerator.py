"""Everything that has a branch for accelerators: on a GPU where there is one, and else on a GPU
made of paper (stand_in.py)."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
NEEDS_OPENMMLAB = ('models', 'operators')
PARTS = sorted(path.stem.removeprefix('check_') for path in HERE.glob('check_*.py'))


@pytest.mark.slow
@pytest.mark.parametrize('part', PARTS)
def test_on_an_accelerator(part):
    """No mixed devices, the CPU's values and gradients, and no more waits than said; in a process
    of its own, whose patches and end no other test would survive."""
    device = 'cuda' if torch.cuda.is_available() else 'stand-in'
    if device == 'stand-in' and shutil.which('g++') is None:
        pytest.skip('needs g++, which builds the stand-in for a GPU')
    if device == 'cuda' and part == 'memory':
        pytest.skip("is the stand-in's count; benchmarks/relative.py forms measures on a GPU")
    if part in NEEDS_OPENMMLAB:
        pytest.importorskip('mmdet')
    # A GPU goes on after a failure, and says all of them: its time is dear.
    done = subprocess.run(
        [sys.executable, '-m', 'pytest', '-q', *(['-x'] if device == 'stand-in' else []),
         '-p', 'no:cacheprovider', '-p', 'no:xdist', '-W', 'ignore',
         f'--rootdir={HERE.parent.parent}', str(HERE / f'check_{part}.py')],
        cwd=HERE.parent.parent, capture_output=True, text=True,
        env={**os.environ, 'MMPOSENC_ACCELERATOR': device,
             'CUBLAS_WORKSPACE_CONFIG': ':4096:8',  # or deterministic products raise
             'PYTHONPATH': os.pathsep.join(
                 [str(HERE), *filter(None, [os.environ.get('PYTHONPATH')])])})
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
