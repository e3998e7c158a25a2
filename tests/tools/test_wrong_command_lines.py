"""Wrong command lines: each ends before any work, in at most three lines that name what is wrong,
with status 1, or 2 for a wrong word. tools/ runs the same code: test_commands.py."""
import os
import shlex
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope
from PIL import Image
from scripts import load_tool
from tinytasks import classifier_config
from tinyweights import saved

from mmposenc.commands import main
from mmposenc.lab.compare.running import schedule

#: Files that can't be used, by name.
FILES = {
    'empty.py': '', 'empty.pth': '', 'syntax.py': 'model = dict(\n', 'text.pth': 'no checkpoint',
    'raises.py': 'x = 1 / 0\n', 'cut.json': '{"images": [', 'text.jpg': 'no image',
    'data.csv': 'a,b\n', 'there.pt2': '',
    'pictures/a.jpg': '', 'note.txt': 'x', 'own.py': 'class A: pass\n', 'list.yaml': '- 1\n',
    'key.yaml': 'name: x\npos_encodin: peg\n',
    'twice.yaml': '- {name: a, pos_encoding: peg}\n- {name: a}\n', 'cut/study.json': '{',
    'old/study.json': '{"schema": 99}', 'part/study.json': '{"schema": 1}'}
#: Of a trained detector, by command; {config}, {checkpoint}, {images} and {dir}, that of FILES.
DETECTOR = {
    'train': [
        ('nowhere.py', 'nowhere.py'), ('{dir}/data.csv', 'data.csv'),
        ('mmposenc::detection/pvt/retinanet_pvt-x.py', 'did you mean'), ('', 'config'),
        ('{dir}/empty.py', 'model'), ('{dir}/syntax.py', 'syntax.py'),
        ('{dir}/raises.py', 'ZeroDivisionError')],
    'train {config}': [
        ('--resume nowhere.pth', '--resume'), ('--wrok-dir x', '--wrok-dir'),
        ('--auto-scale-lr --cfg-options auto_scale_lr=None', 'base_batch_size'),
        ('--amp --cfg-options optim_wrapper.type=Foo', 'Foo'),
        ('--resume {dir}/empty.pth', 'empty.pth')],
    'train {config} --cfg-options': [
        ('optm_wrapper.lr=1', "'optm_wrapper'; did you mean"),
        ('default_hooks.checkpoint.intrval=1', "did you mean 'interval'"),
        ('optim_wrapper.optimizer.type=Adamm', "did you mean 'Adam"),
        ('optim_wrapper.optimizer.lrr=1', "AdamW.__init__() got an unexpected keyword argument 'l"),
        ('train_dataloader.dataset.ann_file={dir}/cut.json', 'cut.json'),
        ('train_dataloader.dataset.ann_file=no.json', 'train_dataloader.dataset.ann_file'),
        ('model.backbone.positions=99,', 'positions=(99,)'),
        ('model.backbone.pos_encoding.type=mmposenc.PEGG', 'PEGG'), ('model.backbone.foo=1', 'foo'),
        ('model.bbox_head.num_classes=7', 'model.bbox_head.num_classes: 7'),
        ('load_from=no.pth', "load_from: there is no checkpoint 'no.pth'"),
        ('train_dataloader=None', 'train_dataloader'),
        ('custom_hooks=[3]', 'hook should be an instance of Hook or dict, but got 3'),
        ('train_dataloader.dataset.ann_file={dir}/pipe.json', 'pipe.json'),
        ('train_dataloader.batch_size=two', 'batch_size=two'),
        ('train_cfg.max_epochs=0', 'train_cfg.max_epochs=0 must be a number of at least 1')],
    'test': [
        ('{config} nowhere.pth', 'nowhere.pth'), ('{config}', 'checkpoint'),
        ('{config} {dir}/text.pth', 'text.pth')],
    'test {config} {checkpoint}': [
        ('--out {dir}/out.txt', '--out'), ('--out {dir}/folder.pkl', '--out'),
        ('--show-dir {dir}/data.csv', '--show-dir'),
        ('--show-dir {images}', 'would replace files of test_dataloader.dataset'),
        ('--tta --cfg-options default_scope=mmfoo', 'mmfoo')],
    'browse': [
        ('{config} --output-dir {dir}/data.csv', 'data.csv'),
        ('{config} --output-dir {images}', 'would replace files of train_dataloader.dataset')],
    'browse {config} --output-dir out': [
        ('--number 0', 'number=0 must be at least 1'), ('--seed -1', 'seed=-1 must be from 0'),
        ('--phase val --cfg-options val_dataloader=None', "phase='val'")],
    'prepare': [
        ('--from yolo {images} --out {dir}/out --val a', "'a' must be a number between 0 and 1"),
        ('trees --out {dir}', 'holds files that were not prepared'),
        ('mnist5k --out out --cache {dir}/data.csv', 'data.csv is a file; give another folder'),
        ('--from yolo nowhere --out {dir}/out', 'nowhere is not a folder')],
    'predict': [
        ('', 'SOURCE, config, checkpoint, --out'),
        ('{images} {config} {checkpoint} --out {dir}/data.csv/x', 'data.csv is no folder'),
        ('{dir}/pictures {config} {checkpoint} --out {dir}', 'results would replace the files of'),
        ('nowhere {config} {checkpoint} --out out', "source='nowhere'"),
        ('{dir}/folder.pkl {config} {checkpoint} --out out', 'the folder has no picture'),
        ('{dir}/data.csv {config} {checkpoint} --out out', 'must be a folder or a picture'),
        ('{images} {dir}/pipe.py {checkpoint} --out out', 'pipe.py'),
        ('{images} {config} {dir}/pipe.pth --out out', 'pipe.pth'),
        ('{images} {config} {dir}/text.pth --out out', 'is no checkpoint'),
        ('{images} {config} {dir}/other.pth --out out', 'does not fit the model')],
    'predict {images} {config} {checkpoint} --out out': [
        ('--score-thr nan', 'score_thr=nan must be at least 0'),
        ('--batch-size 0', 'batch_size=0 must be at least 1'), ('--device gpu', "device='gpu'"),
        ('--cfg-options model.bbox_head.num_classes=7', 'num_classes: 7'),
        ('--cfg-options test_dataloader.dataset.pipeline.1.type=Foo', 'Foo is not in the')]}
#: Of a classifier in the folder of FILES, by the words that they begin with.
CLASSIFIER = {
    'compare': [
        ('folder --encodings none', "no config file 'folder'"),
        ('cls.py', '--encodings: name what'),
        ('empty.py --encodings none', 'train_cfg.max_epochs=None'),
        ('--out folder', '--out folder holds no study yet'),
        ('--out x --cfg-options a=1', '--cfg-options'), ('--out cut', 'cut/study.json is damaged'),
        ('--out old', 'old/study.json is no study'),
        ('--out part', "part/study.json is no study of this version: 'entries'")],
    'compare cls.py --encodings': [
        ('none none', "'none' stands there twice"), ('peg+peg', "--encodings 'peg+peg'"),
        ('own.py', "'own.py' is a file"), ('own.py:A', 'A must be a TokenEncoding'),
        ('syntax.py:A', 'SyntaxError'), ('nomodule.Foo', 'nomodule'),
        ('list.yaml', 'list.yaml must hold'), ('key.yaml', "did you mean 'pos_encoding'"),
        ('twice.yaml', "'a' stands there twice")],
    'compare cls.py --encodings none': [
        ('--seed-list 4294967296', "'4294967296' must be a whole number from 0 to 4294967295"),
        ('--seed-list 1 --seeds 2', '--seeds or --seed-list'),
        ('--sizes inf', "--sizes: 'inf' must"),
        ('--sizes 0.01', '(--sizes 0.01): an image of 0x0 is smaller'),
        ('--iterations 5', '--iterations 5: the config'), ('--submitit slrum', '--submitit slrum'),
        ('--submitit local no_such=1', '--submitit local'),
        ('--submitit local --jobs 2', '--jobs is for this machine'),
        ('--out note.txt/x --dry-run', 'error: --out note.txt/x: '),
        ('--cfg-options test_evaluator.type=Foo', "test_evaluator.type='Foo'"),
        ('--cfg-options test_dataloader.dataset.data_root=/no', 'test_dataloader.dataset.data_')],
    'inspect': [
        ('empty.py', 'default_scope=None'), ('cls.py --size 1', 'an image of 1x1 is smaller'),
        ('cls.py --size 1000000000', "--size: '1000000000' must be a whole number from 1 to 65536"),
        ('cls.py --size 1 2 3', '--size 1 2 3: give H W, or one number'),
        ('cls.py --at 0 0', '--at does nothing without --out'),
        ('cls.py no.pth', 'no.pth'), ('cls.py other.pth --out o', 'other.pth does not fit'),
        ('cls.py --out o --at 0 1', 'at=(0.0, 1.0) must be two fractions'),
        ('cls.py --out note.txt/x', '--out note.txt/x'),
        ('cls.py --out o --image no.jpg', "image: there is no file 'no.jpg'"),
        ('cls.py --out o --image text.jpg', 'text.jpg can not be read')],
    'convert': [
        ('auto no.pth x.pth', 'no.pth is no file'), ('auto text.pth x.pth', 'text.pth cannot be'),
        ('auto other.pth x.pth', 'other.pth is of an unknown source'),
        ('deit other.pth x.pth', "source='deit' has no rule"),
        ('auto w.pth x.txt', 'x.txt must end in'),
        ('auto w.pth nofolder/x.pth', 'nofolder is not a folder'),
        ('auto w.pth w.pth', 'w.pth exists; give --overwrite'),
        ('auto other.pth x.pth --to timm', 'none of the models of timm')],
    'export': [
        ('cls.py other.pth x.pt2', 'other.pth does not fit'), ('cls.py w.pth x', 'x must end in'),
        ('cls.py w.pth there.pt2', 'there.pt2 exists; give --overwrite'),
        ('cls.py w.pth x.pt2 --size 31', 'size=(31, 31) must be at least (32, 32)'),
        ('cls.py w.pth x.onnx --opset 3', "--opset: '3' must be a whole number from 18 to"),
        ('cls.py w.pth x.pt2 --opset 18',
         '--opset does nothing without a file that ends in .onnx')]}


def cases(table: dict[str, list]) -> list:
    found = [(f'{begin} {rest}', named) for begin, lines in table.items() for rest, named in lines]
    return [pytest.param(line, named, id=line) for line, named in found]


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    """A config with its data, weights that fit and some that do not, and broken files."""
    root = tmp_path_factory.mktemp('wrong')
    saved(classifier_config(root), root / 'w.pth')
    torch.save({'weight': torch.zeros(2)}, root / 'other.pth')
    Image.new('RGB', (48, 40)).save(root / 'a.jpg')
    for name in ('folder', 'folder.pkl'):
        (root / name).mkdir()
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(os.fsencode(text))
    for suffix in ('pth', 'py', 'json'):  # who opens one waits for ever
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


@pytest.mark.parametrize('line, named', cases(DETECTOR))
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


@pytest.mark.parametrize('line, named', cases(CLASSIFIER))
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


def test_an_error_in_training_is_a_line_too(detector, tmp_path, capfd) -> None:
    """An image that breaks when training reaches it, in a worker of the data loader."""
    data = tmp_path / 'data' / 'images'
    data.mkdir(parents=True)
    for path in (detector['data'] / 'images').iterdir():
        Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(data / path.name)
        (data / path.name).write_bytes((data / path.name).read_bytes()[:300])
    with pytest.raises(SystemExit, match=r'^error: broken image .*shape_\d\.jpg: .*\n\(.*\.log'):
        load_tool('train').main([
            str(detector['config']), '--work-dir', str(tmp_path / 'work'), '--cfg-options',
            f'train_dataloader.dataset.data_prefix.img={data}', 'experiment_name=broken',
            'train_dataloader.dataset.check_images=False', 'train_dataloader.num_workers=1',
            'visualizer.name=broken'])
