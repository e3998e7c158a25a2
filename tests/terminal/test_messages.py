"""How the tools speak."""
import argparse
import re
import signal
from pathlib import Path

import pytest

from mmposenc.terminal import messages
from mmposenc.terminal.messages import Ended, Parser, error_text, naming_errors, reporting_errors

ARGS = argparse.Namespace()


def test_errors_are_short_whatever_they_say(capsys) -> None:
    with pytest.raises(SystemExit) as stop, reporting_errors(argparse.Namespace(traceback=True)):
        raise RuntimeError('x' * 5000 + '\nsecond' * 10)
    lines = str(stop.value).splitlines()
    assert len(lines) == 3 and lines[0].startswith('error: RuntimeError: xxx')
    assert max(map(len, lines)) < 700 and '9 more lines; --traceback shows the full' in lines[2]
    assert 'Traceback' in capsys.readouterr().err


def test_code_that_ends_the_program_is_an_error() -> None:
    with pytest.raises(Ended, match=r'^error: sys.exit\(0\) was called in .*; take it out$'):
        with reporting_errors(ARGS):
            raise SystemExit(0)
    with pytest.raises(Ended, match='^3$'), reporting_errors(ARGS), naming_errors('x.py'):
        raise Ended(3)  # It has been reported.


def test_a_missing_package_comes_with_the_cure(monkeypatch) -> None:
    monkeypatch.setattr('mmposenc.dependencies.find_spec', lambda module: None)
    assert error_text(ModuleNotFoundError("No module named 'PIL'")).startswith(
        "No module named 'PIL'. Install one of the two sets")


@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_without_a_traceback(signum, capsys) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stop, reporting_errors(ARGS):
        if signum == signal.SIGINT:  # ignored where the tests run in the background
            raise KeyboardInterrupt
        signal.raise_signal(signum)
    assert stop.value.code == 128 + signum and signal.getsignal(signal.SIGTERM) == before
    assert capsys.readouterr().err == 'stopped\n' * (signum == signal.SIGINT)


def test_the_log_has_the_rest_if_it_can_be_written(tmp_path) -> None:
    log, error = str(tmp_path / 'run.log'), ValueError('first\nsecond\nthird')
    assert messages._log_and_message(error, ARGS, log) == (
        f'error: first\nsecond\n(1 more line; the full message is in {log})')
    assert 'third' in open(log).read()
    if Path('/dev/full').exists():
        assert messages._log_and_message(error, ARGS, '/dev/full').startswith('error: first\n')


def test_a_process_of_several_says_which_it_is(monkeypatch) -> None:
    monkeypatch.setenv('RANK', '3')
    with pytest.raises(SystemExit, match='^error in process 3: a label of its own$'):
        with reporting_errors(ARGS):
            raise ValueError('a label of its own')


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


def test_wrong_arguments_take_two_lines(capsys) -> None:
    parser = Parser('what it does')
    parser.add_argument('--number', type=int)
    with pytest.raises(SystemExit, match='2'):
        parser.parse_args(['--number', 'many'])
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and said[0].startswith('error: argument --number: invalid int value')
    assert 'traceback' not in parser.parse_args([])
    assert parser.parse_args(['--traceback']).traceback
