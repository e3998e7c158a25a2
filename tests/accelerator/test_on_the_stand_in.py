"""Everything that has a branch for accelerators, on a GPU made of paper (stand_in.py)."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NEEDS_OPENMMLAB = ('models',)


@pytest.mark.parametrize('part', sorted(path.stem.removeprefix('check_')
                                        for path in HERE.glob('check_*.py')))
def test_on_the_stand_in(part):
    """No mixed devices, the CPU's values and gradients, and no more waits than said; in a process
    of its own, whose patches and end no other test would survive."""
    import torch
    if shutil.which('g++') is None:
        pytest.skip('needs g++, which builds the stand-in for a GPU')
    if torch.cuda.is_available():
        pytest.skip('the stand-in is for builds of torch without CUDA')
    if part in NEEDS_OPENMMLAB:
        pytest.importorskip('mmdet')
    done = subprocess.run(
        [sys.executable, '-m', 'pytest', '-q', '-x', '-p', 'no:cacheprovider', '-p', 'no:xdist',
         '-W', 'ignore', f'--rootdir={HERE.parent.parent}', str(HERE / f'check_{part}.py')],
        cwd=HERE.parent.parent, capture_output=True, text=True,
        env={**os.environ, 'MMPOSENC_STAND_IN': '1', 'PYTHONPATH': os.pathsep.join(
            [str(HERE), *filter(None, [os.environ.get('PYTHONPATH')])])})
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
