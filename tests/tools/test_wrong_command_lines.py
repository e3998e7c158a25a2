"""Wrong command lines: each ends before any work, in at most three lines that name what is wrong,
with status 1, or 2 for a wrong word. tools/ runs the same code: test_commands.py."""
import os
import shlex
import time
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
import yaml
from helpers.scripts import load_tool
from helpers.tiny_tasks import classifier_config
from helpers.untrained_weights import saved
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope
from PIL import Image

from mmposenc.commands import main
from mmposenc.lab.compare.running import schedule

LINES = yaml.safe_load(Path(__file__).with_name('wrong_command_lines.yaml').read_text())
#: Files that can't be used, by name.
FILES = {
    'empty.py': '', 'empty.pth': '', 'syntax.py': 'model = dict(\n', 'text.pth': 'no checkpoint',
    'raises.py': 'x = 1 / 0\n', 'exits.py': 'import sys; sys.exit(0)\n', 'cut.json': '{"images": [',
    'text.jpg': 'no image', 'bomb.ppm': 'P6 60000 60000 255\n',
    'data.csv': 'a,b\n', 'there.onnx': '',
    'pictures/a.jpg': '', 'note.txt': 'x', 'own.py': 'class A: pass\n', 'list.yaml': '- 1\n',
    'key.yaml': 'name: x\npos_encodin: peg\n',
    'tag.yaml': 'a: !!python/object/apply:os.mkdir [ran]\n',
    'laughs.yaml': '\n'.join(f'a{i}: &a{i} [{f"*a{i - 1}, " * 9 * (i > 0)}]' for i in range(9)),
    'twice.yaml': '- {name: a, pos_encoding: peg}\n- {name: a}\n', 'cut/study.json': '{',
    'old/study.json': '{"schema": 99}', 'part/study.json': '{"schema": 1}',
    'hf/a.safetensors': '', 'hf/x.index.json': '{"weight_map": {"w": "a.safetensors"}}'}


def cases(kind: str) -> list:
    return [pytest.param(f'{begin} {rest}', named, id=f'{begin} {rest}')
            for begin, lines in LINES[kind].items() for rest, named in lines.items()]


@pytest.fixture(scope='module')
def folder(tmp_path_factory, detector) -> Path:
    """A config with its data, weights that fit and some that do not, and broken files."""
    root = tmp_path_factory.mktemp('wrong')
    saved(classifier_config(root), root / 'w.pth')
    saved(detector['config'], root / 'swapped.pth', ['disc', 'square'])
    torch.save({'weight': torch.zeros(2)}, root / 'other.pth')
    Image.new('RGB', (48, 40)).save(root / 'a.jpg')
    for name in ('folder', 'folder.pkl'):
        (root / name).mkdir()
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(os.fsencode(text))
    for suffix in ('pth', 'py', 'json', 'jpg'):  # who opens one waits for ever
        os.mkfifo(root / f'pipe.{suffix}')
    return root


@pytest.fixture(autouse=True)
def as_a_new_process(monkeypatch) -> None:
    """No logger of an earlier run, whose stream is closed by now, and no scope of one."""
    for kind in (MMLogger, DefaultScope):
        monkeypatch.setattr(kind, '_instance_dict', OrderedDict())


def told(words: list[str], capfd) -> str:
    """What a command says that ends as it should."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as stop:
        raise SystemExit(main(words))  # what the command line does with it
    shown, status = ''.join(capfd.readouterr()), stop.value.code
    if isinstance(status, str):  # Python prints it and ends with 1
        shown, status = f'{shown}{status}\n', 1
    assert status in (1, 2), shown
    assert len(shown.splitlines()) <= 3 and 'Traceback' not in shown, shown
    return shown


@pytest.mark.parametrize('line, named', cases('detector'))
def test_of_a_detector(detector, folder, tmp_path, monkeypatch, capfd, line, named) -> None:
    monkeypatch.chdir(tmp_path)
    words = line.format(config=detector['config'], checkpoint=detector['checkpoint'],
                        images=detector['data'] / 'images', dir=folder).split()
    if words[0] in ('train', 'test') and words[1:] and '--work-dir' not in words:
        words[2:2] = ['--work-dir', str(tmp_path / 'work')]
    start = time.process_time()
    assert named in told(words, capfd)
    assert time.process_time() - start < 10  # before anything is trained, fetched or predicted


def files(folder: Path) -> dict[Path, int]:
    """All files but for the locks of studies that are planned, and modules that Python compiles."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob('*')
            if path.is_file() and not {'planning', '__pycache__'} & set(path.parts)}


@pytest.mark.parametrize('line, named', cases('classifier'))
def test_of_a_classifier(folder, monkeypatch, capfd, line, named) -> None:
    def work(*args, **kwargs):
        raise AssertionError('work began')
    monkeypatch.chdir(folder)
    monkeypatch.setattr(schedule, 'carry_out_all', work)
    monkeypatch.setattr(torch.Tensor, 'backward', work)
    monkeypatch.setattr(torch.export, 'export', work)
    before = files(folder)
    shown = told(shlex.split(line), capfd)
    assert shown.startswith('error: ') and named in shown, shown
    assert files(folder) == before


def test_the_traceback_is_in_the_log_alone(detector, tmp_path, capfd) -> None:
    main = load_tool('train').main
    words = [str(detector['config']), '--work-dir', str(tmp_path), '--cfg-options',
             'model.backbone.positions=99,']
    with pytest.raises(SystemExit) as stop:  # a name of its own: others run in the same second
        main([*words, 'experiment_name=once'])
    log = next(tmp_path.glob('*/*.log'))
    assert str(log.name) in str(stop.value)
    assert 'Traceback (most recent call last)' in log.read_text()
    assert 'positions=(99,)' in log.read_text()
    assert 'Traceback' not in ''.join(capfd.readouterr())
