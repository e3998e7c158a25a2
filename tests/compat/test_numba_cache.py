"""numba where the home of the user cannot be written, as in many containers."""
from __future__ import annotations

import os
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

CODE = """
import os, stat
import mmposenc
from numba.core import config
import imagecorruptions
print(config.CACHE_DIR, oct(stat.S_IMODE(os.stat(config.CACHE_DIR or '.').st_mode)))
"""


@pytest.mark.skipif(find_spec('numba') is None or find_spec('imagecorruptions') is None,
                    reason='needs numba and imagecorruptions')
@pytest.mark.parametrize('home', ['/dev/null', 'writable', 'chosen'])
def test_the_cache_is_where_it_can_be_written(tmp_path, home) -> None:
    env = {**os.environ, 'HOME': str(tmp_path) if home == 'writable' else '/dev/null'}
    env = {name: value for name, value in env.items()
           if name not in ('XDG_CACHE_HOME', 'NUMBA_CACHE_DIR')}
    if home == 'chosen':
        env['NUMBA_CACHE_DIR'] = str(tmp_path)
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', CODE], env=env,
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    *folder, mode = done.stdout.split()
    if home == '/dev/null':
        assert Path(folder[0]).name.startswith('mmposenc-numba-')
        assert mode == oct(stat.S_IRWXU) and not Path(folder[0]).exists()  # it went with it
    else:
        assert folder == ([] if home == 'writable' else [str(tmp_path)])
