"""Standard streams that break, and work that is silent for long."""
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmposenc.terminal import streams
from mmposenc.terminal.messages import reporting_errors
from mmposenc.terminal.streams import DroppingStream, note_activity, safe_streams

FULL = 'error: the work is done, but the standard output could not be written: ' \
       'No space left on device\n'
full_device = pytest.mark.skipif(not Path('/dev/full').exists(), reason='needs /dev/full')

#: Writes, works on, and shows that it came to its end.
WORK = """
import sys
from argparse import Namespace
from mmposenc.terminal.messages import reporting_errors
with reporting_errors(Namespace()):
    for i in range(20000):
        print('a line of the work')
    sys.stdout.flush()
    open(sys.argv[1], 'w').write('done')
"""


def shell(line: str, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(['bash', '-c', line], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, 'PYTHON': sys.executable}, timeout=300)


@pytest.mark.parametrize('how, status, err', [
    ('| head -n 1; exit ${PIPESTATUS[0]}', 0, ''),
    ('>&-', 0, ''), ('>&- 2>&-', 0, ''),
    pytest.param('> /dev/full', 1, FULL, marks=full_device),
    pytest.param('> /dev/full 2>&1', 1, '', marks=full_device)])
def test_work_goes_on_without_an_output(tmp_path, how, status, err) -> None:
    (tmp_path / 'work.py').write_text(WORK)
    done = shell(f'$PYTHON work.py out.txt {how}', tmp_path)
    assert (done.returncode, done.stderr) == (status, err)
    assert (tmp_path / 'out.txt').read_text() == 'done'


@pytest.mark.parametrize('words', ['--help', 'train --help', '--version', 'papers'])
@pytest.mark.parametrize('how, status, err', [
    ('>&-', 0, ''), pytest.param('> /dev/full', 1, FULL, marks=full_device)])
def test_help_says_that_nobody_gets_it(tmp_path, words, how, status, err) -> None:
    done = shell(f'$PYTHON -m mmposenc {words} {how}', tmp_path)
    assert (done.returncode, done.stderr) == (status, err)


def test_other_errors_and_statuses_stay_what_they_are(capsys) -> None:
    before = sys.stdout, sys.stderr
    with pytest.raises(KeyError), safe_streams():
        raise KeyError
    with pytest.raises(SystemExit, match='^3$'), safe_streams(), safe_streams():
        sys.exit(3)
    with pytest.raises(UnicodeEncodeError), safe_streams():
        DroppingStream(open(os.devnull, 'w', encoding='ascii')).write('ü')
    assert (sys.stdout, sys.stderr) == before and capsys.readouterr() == ('', '')


def test_long_work_is_not_silent(monkeypatch, capsys) -> None:
    monkeypatch.setattr(streams, 'SILENCE', 0.2)
    monkeypatch.delenv('RANK', raising=False)
    with safe_streams():
        for i in range(6):  # lines of its own are enough
            print(i)
            time.sleep(0.02)
        note_activity('validation, image 3 of 8')
        time.sleep(0.5)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert 1 <= len(lines) <= 3 and out.split() == list('012345')
    assert re.fullmatch(r'\d\d:\d\d:\d\d still working: validation, image 3 of 8', lines[-1])
    monkeypatch.setenv('RANK', '1')  # the first process speaks for all
    with safe_streams():
        time.sleep(0.3)
    assert capsys.readouterr() == ('', '')


@full_device
def test_a_log_that_cannot_be_written_is_named_once(tmp_path, capsys) -> None:
    from mmengine.logging import MMLogger

    from mmposenc.engine.console import quieten_console
    (tmp_path / 'run.log').symlink_to('/dev/full')
    logger = quieten_console(MMLogger('full', log_file=str(tmp_path / 'run.log')))
    for i in range(3):
        logger.info(f'line {i} of the work')
    out, err = capsys.readouterr()
    assert [line.rpartition(' line ')[2] for line in out.splitlines()] == [
        f'{i} of the work' for i in range(3)]
    assert re.fullmatch(r'warning: the log \S+/run\.log cannot be written: No space left on '
                        r'device; the work goes on\n', err), err
    for handler in logger.handlers:
        if isinstance(handler, logging.FileHandler):
            handler.stream = None  # what is left in it can't be written


@full_device
def test_an_error_is_told_where_the_log_cannot_be_written(tmp_path, monkeypatch) -> None:
    from argparse import Namespace

    from mmposenc.terminal import messages
    (tmp_path / 'run.log').symlink_to('/dev/full')
    logs = iter([set(), {str(tmp_path / 'run.log')}])
    monkeypatch.setattr(messages, '_log_files', lambda: next(logs))
    with pytest.raises(SystemExit) as stop, reporting_errors(Namespace()):
        raise RuntimeError('one\ntwo\nthree\nfour')
    assert str(stop.value) == ('error: RuntimeError: one\ntwo\n(2 more lines; --traceback shows '
                               'the full message)')


def test_names_of_any_letters_get_into_a_log(tmp_path) -> None:
    """In LANG=C too, where Python does not take UTF-8 by itself."""
    code = ("import sys; sys.path.insert(0, '.')\n"
            'from mmengine.logging import MMLogger\n'
            'from mmposenc.engine.console import quieten_console\n'
            "logger = quieten_console(MMLogger('letters', log_file=sys.argv[1]))\n"
            "logger.info('gr\\u00fcn \\ud800')")
    done = subprocess.run(
        [sys.executable, '-c', code, str(tmp_path / 'run.log')], capture_output=True, text=True,
        env={**os.environ, 'LANG': 'C', 'LC_ALL': 'C', 'PYTHONCOERCECLOCALE': '0',
             'PYTHONUTF8': '0', 'PYTHONPATH': os.getcwd()}, timeout=300)
    assert (done.returncode, done.stderr) == (0, '')
    assert done.stdout.endswith('gr\\xfcn \\ud800\n')
    assert 'grün \\ud800' in (tmp_path / 'run.log').read_text('utf-8')
