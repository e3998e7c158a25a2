"""Outputs that are closed, full, or pipes that nobody reads: the work ends well, in one line."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORK = """
import logging, sys
from argparse import Namespace
from pathlib import Path
from mmposenc.terminal.messages import reporting_errors
from mmposenc.terminal.streams import lasting_streams
with lasting_streams(), reporting_errors(Namespace(), only_prints='prints' in sys.argv):
    log = logging.getLogger('run')
    log.addHandler(logging.StreamHandler(sys.stdout))
    for number in range(2000):
        print('a line', number, flush=number % 2 == 0)
        log.error('another')
        if number % 100 == 0:
            print('a word', file=sys.stderr)
    with open('result', 'w') as file:
        assert file.fileno() > 2
        file.write('whole')
"""


@pytest.mark.skipif(not Path('/dev/full').exists(), reason='this system has no /dev/full')
@pytest.mark.parametrize('to, prints, status, lines', [
    ('>&-', '', 0, 20), ('>/dev/full', '', 0, 21), ('| true', '', 0, 20), ('2>&-', '', 0, 0),
    ('2>/dev/full', '', 0, 0), ('>&- 2>&-', '', 0, 0), ('>&-', 'prints', 0, 20),
    ('>/dev/full', 'prints', 1, 21), ('| true', 'prints', 141, 20)])
def test_the_work_is_finished(to, prints, status, lines, tmp_path) -> None:
    (tmp_path / 'work.py').write_text(WORK)
    done = subprocess.run(
        ['bash', '-c', f'"$0" work.py {prints} {to}; exit ${{PIPESTATUS[0]}}', sys.executable],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, 'PYTHONPATH': str(Path(__file__).parents[2])})
    assert done.returncode == status, done.stderr
    assert (tmp_path / 'result').read_text() == 'whole'
    assert len(done.stderr.splitlines()) == lines and 'Traceback' not in done.stderr
    assert ('standard output cannot be written (No space' in done.stderr) == (lines == 21)
