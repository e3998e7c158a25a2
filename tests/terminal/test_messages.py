"""How the tools speak."""
import argparse
import json
import re
import signal
import warnings
from pathlib import Path

import pytest

from mmposenc.terminal import messages
from mmposenc.terminal.messages import Parser, error_text, reporting_errors

ARGS = argparse.Namespace()


def test_errors_are_short_whatever_they_say() -> None:
    with pytest.raises(SystemExit) as stop, reporting_errors(ARGS):
        raise RuntimeError('x' * 5000 + '\nsecond' * 10)
    lines = str(stop.value).splitlines()
    assert len(lines) == 3 and lines[0].startswith('error: RuntimeError: xxx')
    assert max(map(len, lines)) < 700 and '9 more lines; --traceback shows the full' in lines[2]


def test_the_traceback_is_shown_where_it_is_asked_for(capsys) -> None:
    with pytest.raises(SystemExit), reporting_errors(argparse.Namespace(traceback=True)):
        raise ValueError('wrong')
    assert 'Traceback' in capsys.readouterr().err


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_without_a_traceback(signum, capsys) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stop, reporting_errors(ARGS):
        if signum == signal.SIGINT:  # ignored where the tests run in the background
            raise KeyboardInterrupt
        signal.raise_signal(signum)
    assert stop.value.code == 128 + signum and signal.getsignal(signal.SIGTERM) == before
    assert capsys.readouterr().err == 'stopped\n' * (signum == signal.SIGINT)


def test_one_line_more_is_counted_as_one(tmp_path) -> None:
    log = str(tmp_path / 'run.log')
    said = messages._report_and_message(ValueError('first\nsecond\nthird'), ARGS, log)
    assert said == f'error: first\nsecond\n(1 more line; the full message is in {log})'
    assert 'third' in open(log).read()


@pytest.mark.skipif(not Path('/dev/full').exists(), reason='needs /dev/full')
def test_an_error_is_said_where_the_log_cannot_be_written() -> None:
    said = messages._report_and_message(ValueError('no space'), ARGS, '/dev/full')
    assert said.splitlines()[0] == 'error: no space'


def test_torchrun_has_the_error_for_its_report(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv('TORCHELASTIC_ERROR_FILE', str(tmp_path / 'error.json'))
    monkeypatch.setenv('RANK', '3')
    with pytest.raises(SystemExit, match='^error in process 3: a label of its own$'):
        with reporting_errors(ARGS):
            raise ValueError('a label of its own')
    message = json.loads((tmp_path / 'error.json').read_text())['message']
    assert message['message'] == 'ValueError: a label of its own'
    assert 'test_messages.py' in message['extraInfo']['py_callstack']


@pytest.mark.parametrize('error, text', [
    (ValueError('x=1 must be 2'), 'x=1 must be 2'), (KeyError('a'), 'KeyError: a'),
    (RuntimeError(), 'RuntimeError'), (AssertionError(''), 'AssertionError'),
    (ValueError('class `PVT` in mmposenc/backbones/pvt.py: positions=(9,)'), 'positions=(9,)'),
    (ValueError('Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent'
                ' call last):\n  File "x", line 1\nValueError: broken image a.jpg'),
     'broken image a.jpg'),
    (RuntimeError('Caught it.\nTraceback (most recent call last):\n  File "x"\n'
                  'ValueError: broken image a.jpg'), 'broken image a.jpg')])
def test_what_an_exception_says(error, text) -> None:
    assert error_text(error).startswith(text)


def test_an_error_without_words_says_where_it_was_raised() -> None:
    def library():
        raise AssertionError

    with pytest.raises(SystemExit) as stop, reporting_errors(ARGS):
        library()
    assert re.fullmatch(r'error: AssertionError in .*test_messages\.py, line \d+: '
                        'raise AssertionError', str(stop.value))
    assert error_text(AssertionError()) == 'AssertionError'


def test_hints_of_libraries_are_not_shown(capsys) -> None:
    with reporting_errors(ARGS):
        warnings.warn('For binary segmentation, we suggest using `out_channels = 1`', stacklevel=1)
        warnings.warn('The given NumPy array is not writable, and PyTorch', stacklevel=1)
        warnings.warn('For a mask, use one', stacklevel=1)
    assert capsys.readouterr().err.count('warning: ') == 1


def test_wrong_arguments_take_two_lines(capsys) -> None:
    parser = Parser('what it does')
    parser.add_argument('--number', type=int)
    with pytest.raises(SystemExit, match='2'):
        parser.parse_args(['--number', 'many'])
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and said[0].startswith('error: argument --number: invalid int value')
    assert 'traceback' not in parser.parse_args([])
    assert parser.parse_args(['--traceback']).traceback
