"""The console command: its table, its help, its errors, and the scripts of tools/ beside it."""
import re
import sys
from argparse import Namespace
from importlib import import_module

import pytest
from helpers.scripts import ROOT, load_tool, run_python

import mmposenc
from mmposenc.commands import COMMANDS, main
from mmposenc.engine.config import options
from mmposenc.engine.config import parsed as config_sizes
from mmposenc.terminal.messages import printable, reporting_errors
from mmposenc.terminal.options import USUAL, make_config_parser

SCRIPTS = {'train': 'train', 'test': 'test', 'convert': 'convert_checkpoint',
           'browse': 'browse_dataset', 'prepare': 'prepare_data'}


def said(capsys, run, words) -> tuple[object, str]:
    """Status, and all that was printed."""
    with pytest.raises(SystemExit) as stop:
        run(words)
    return stop.value.code, ''.join(capsys.readouterr())


@pytest.mark.parametrize('name', SCRIPTS)
def test_the_script_is_the_command(name) -> None:
    assert load_tool(SCRIPTS[name]).main is import_module(f'mmposenc.commands.{name}').main


def test_every_command_is_in_the_table() -> None:
    files = {path.stem for path in (ROOT / 'mmposenc' / 'commands').glob('[a-z]*.py')}
    assert files == set(COMMANDS)


def test_run_finds_a_script_and_hands_its_words_on(tmp_path, capsys, monkeypatch) -> None:
    (tmp_path / 'beside.py').write_text('NAME = "beside"\n')
    script = tmp_path / 'own.py'
    script.write_text('import sys, beside, mmposenc\nprint(__name__, beside.NAME, *sys.argv[1:])\n')
    monkeypatch.setattr(sys, 'argv', sys.argv)
    monkeypatch.setattr(sys, 'path', sys.path[:])
    main(['run', str(script), '--work-dir', 'x', '--help'])
    assert capsys.readouterr().out == '__main__ beside --work-dir x --help\n'
    for name, error in (('none.py', "there is no script 'none.py'"),
                        ('mmposenc::none.py', "there is no script 'none.py' in mmposenc"),
                        ('mmnone::tools/train.py', "there is no package 'mmnone'")):
        assert f'error: {error}' in str(said(capsys, main, ['run', name])[0])


def test_help_lists_all(capsys) -> None:
    status, text = said(capsys, main, ['--help'])
    assert status == 0 and all(f'    {name} ' in text for name in COMMANDS)
    assert said(capsys, main, []) == (2, text)
    main(['--version'])
    assert capsys.readouterr().out == f'{mmposenc.__version__}\n'


def test_an_unknown_command(capsys) -> None:
    status, text = said(capsys, main, ['trian', 'config.py'])
    assert status == 2 and "error: there is no command 'trian'; did you mean 'train'?" in text
    assert f'known are {", ".join(COMMANDS)}' in text and len(text.splitlines()) == 2
    assert "'?x'\n(known" in said(capsys, main, ['?x'])[1]


def test_names_of_files_do_not_reach_the_console_as_commands() -> None:
    assert printable('a\x1b[2J\nb\u202e\udcff ä') == r'a\x1b[2J\nb\u202e\udcff ä'
    for error in (ValueError('broken image a\x1b[2J.jpg'), OSError(2, 'not there', 'a\x1b[2J.jpg')):
        with (pytest.raises(SystemExit, match=r'a\\x1b\[2J\.jpg') as stop,
              reporting_errors(Namespace())):
            raise error
        assert '\x1b' not in str(stop.value)


def test_help_and_wrong_arguments_load_neither_torch_nor_openmmlab() -> None:
    """Loading them takes seconds, and help is there where they are not installed."""
    said = run_python('-c', """
import runpy, sys
sys.argv = ['mmposenc', '--version']
runpy.run_module('mmposenc', run_name='__main__')
assert not {'torch', 'numpy', 'mmengine', 'argparse'} & set(sys.modules)
from mmposenc.commands import COMMANDS, main
for name in COMMANDS:
    for words, status in ((['--help'], 0), (['--no-such-option'], 2)):
        try:
            main([name, *words])
        except SystemExit as stop:
            assert stop.code == status, (name, words)
        loaded = {'torch', 'mmengine', 'mmcv', 'matplotlib'} & set(sys.modules)
        assert not loaded, (name, words, loaded)
""")
    assert said.startswith(f'{mmposenc.__version__}\n')
    assert re.findall('^usage: mmposenc (\\S+)', said, re.M) == list(COMMANDS)


def test_what_help_lists_is_what_the_commands_can_do() -> None:
    """Help can't ask the modules that know: they load torch."""
    side, pixels = config_sizes._SIDE, config_sizes._MOST
    assert f'{side} x {side}' in USUAL and f'{pixels ** .5:.0f} x {pixels ** .5:.0f}' in USUAL


def test_options_of_the_config_have_a_value(tmp_path, capsys) -> None:
    """mmengine reads it, with any further =."""
    (tmp_path / 'config.py').write_text('train_cfg = dict(a=1)\nval_cfg = None\n')
    parser = make_config_parser('what it does', 'a=1')
    args = parser.parse_args([str(tmp_path / 'config.py'), '--cfg-options', 'train_cfg.a=3',
                              '--cfg-options', 'val_cfg.c=p=q', 'val_cfg.d=[1,(2.5,x)]'])
    cfg = options.config_of_arguments(args)
    assert cfg.train_cfg == dict(a=3) and cfg.val_cfg == dict(c='p=q', d=[1, (2.5, 'x')])
    status, text = said(capsys, parser.parse_args, ['config.py', '--cfg-options', 'a'])
    assert status == 2 and "--cfg-options: 'a' is not KEY=VALUE" in text


@pytest.mark.parametrize('word, train_cfg', [
    ("train_cfg={'b': [1, '2']}", dict(a=1, b=[1, '2'])),
    ("train_cfg={'_delete_': True, 'b': {}}", dict(b={})),
    ("train_cfg={'b': {'x.y': 1}}", dict(a=1, b={'x.y': 1}))])
def test_an_option_of_the_config_may_be_a_dict(tmp_path, word: str, train_cfg: dict) -> None:
    """It is merged as its keys would be, or replaces what is there with mmengine's ``_delete_``."""
    (tmp_path / 'config.py').write_text('train_cfg = dict(a=1)\n')
    parser = make_config_parser('what it does', 'a=1')
    words = [str(tmp_path / 'config.py'), '--cfg-options']
    assert options.config_of_arguments(parser.parse_args([*words, word])).train_cfg == train_cfg
    for broken in (word[:-1], 'train_cfg=[1,2', "train_cfg={'a': len([])}"):
        with pytest.raises(ValueError, match='--cfg-options train_cfg: .* must be a number'):
            options.config_of_arguments(parser.parse_args([*words, broken]))
