"""Wrong command lines of compare and of what draws, counts, converts and exports: each ends before
any work, in at most three lines that name what is wrong, with status 1, or 2 for a wrong word."""
from __future__ import annotations

import shlex

import pytest
import torch
from PIL import Image
from tinytasks import classifier_config

from mmposenc import engine
from mmposenc.commands import main
from mmposenc.comparison import schedule
from mmposenc.engine.models import build_model

FILES = {
    'empty.py': '', 'empty.pth': '', 'text.pth': 'no', 'text.jpg': 'no', 'note.txt': 'x',
    'own.py': 'class A: pass\n', 'syntax.py': 'x = (\n', 'bad.yaml': 'a: [', 'list.yaml': '- 1\n',
    'noname.yaml': 'label: x\n', 'key.yaml': 'name: x\npos_encodin: peg\n',
    'twice.yaml': '- {name: a, pos_encoding: peg}\n- {name: a}\n', 'cut/study.json': '{',
    'old/study.json': '{"schema": 99}', 'part/study.json': '{"schema": 1}',
    'list/study.json': '[]'}

#: By the words that they begin with: the rest, and what the message must say.
LINES = {
    'compare': [
        ('', 'give a config, or --out'), ('nowhere.py --encodings none', "'nowhere.py'"),
        ('folder --encodings none', "no config file 'folder'"),
        ('cls.py', '--encodings: name what'),
        ('empty.py --encodings none', 'train_cfg.max_epochs=None'),
        ('cls.py --encodings', 'argument --encodings: expected'),
        ('--out folder', '--out folder holds no study yet'),
        ('--out nowhere', '--out nowhere holds no study yet'),
        ('--out nowhere --report-only', 'nowhere holds no study'),
        ('cls.py --report-only', 'compare_cls holds no study'),
        ('--report-only', 'give a config, or --out'),
        ('--out x --cfg-options a=1', '--cfg-options'),
        ('--out cut', 'cut/study.json is damaged'), ('--out old', 'old/study.json is no study'),
        ('--out part', "part/study.json is no study of this version: 'entries'"),
        ('--out part --report-only', 'part/study.json'), ('--out list', 'list/study.json')],
    'compare cls.py --encodings': [
        ('pegg', "'pegg'; did you mean 'peg'"), ('""', "there is no encoding ''"),
        ('none none', "'none' stands there twice"), ('peg+peg', "--encodings 'peg+peg'"),
        ('none+peg', "--encodings 'none+peg'"), ('peg+', "--encodings 'peg+'"),
        ('own.py', "'own.py' is a file"), ('own.py:B', "own.py has no class 'B'"),
        ('own.py:A', 'A must be a TokenEncoding'), ('nofile.py:A', 'nofile.py'),
        ('syntax.py:A', 'SyntaxError'), ('torch.nn.Linear', 'Linear must be a TokenEncoding'),
        ('nomodule.Foo', 'nomodule'), ('bad.yaml', 'bad.yaml is no yaml file'),
        ('list.yaml', 'list.yaml must hold'), ('noname.yaml', 'noname.yaml: name=None'),
        ('key.yaml', "did you mean 'pos_encoding'"), ('twice.yaml', "'a' stands there twice"),
        ('none.yaml', "no file 'none.yaml'")],
    'compare cls.py --encodings none': [
        ('--seeds 0', "--seeds: '0' must be"), ('--seeds 1.5', "--seeds: '1.5' must be"),
        ('--seeds ²', "--seeds: '²' must be"), ('--seed-list -1', "--seed-list: '-1' must be"),
        ('--seed-list 4294967296', "'4294967296' must be a whole number from 0 to 4294967295"),
        ('--seed-list 1 --seeds 2', '--seeds or --seed-list'), ('--sizes 0', "--sizes: '0' must"),
        ('--sizes nan', "--sizes: 'nan' must"), ('--sizes inf', "--sizes: 'inf' must"),
        ('--sizes 0.01', '(--sizes 0.01): an image of 0x0 is smaller'),
        ('--sizes 0.33', 'at 11x11 pixels (--sizes 0.33): hw_shape=(2, 2) is smaller'),
        ('--budget 0min', "'0min' must be a time above 0"),
        ('--budget "2 hours"', "--budget: '2 hours' is no time"),
        ('--budget 1e3s', "'1e3s' is no time"),
        ('--budget 2h --epochs 3', '--epochs: not allowed with argument --budget'),
        ('--epochs 0', "--epochs: '0' must"), ('--iterations 5', '--iterations 5: the config'),
        ('--jobs 0', "--jobs: '0' must"), ('--jobs two', "--jobs: 'two' must"),
        ('--gpus-per-run 0', "--gpus-per-run: '0' must"), ('--submitit', '--submitit: expected'),
        ('--submitit slrum', '--submitit slrum'), ('--submitit local x', "'x' is not KEY=VALUE"),
        ('--submitit local no_such=1', '--submitit local'),
        ('--submitit local timeout_min=x', '--submitit local'),
        ('--submitit local --jobs 2', '--jobs is for this machine'),
        ('--pictures -1', "--pictures: '-1' must"), ('--out note.txt', '--out note.txt: Not a dir'),
        ('--out note.txt/x', '--out note.txt/x: Not a directory'), ('--wrong', '--wrong'),
        ('--diagnosis=no', '--diagnosis'), ('--cfg-options model', "'model' is not KEY=VALUE"),
        ('--cfg-options model=3', 'model=3 of cls.py must be a dict'),
        ('--cfg-options model.backbone.fo=1', "'fo'"),
        ('--cfg-options default_scope=mmfoo', "default_scope='mmfoo'"),
        ('--cfg-options train_cfg.max_epochs=0', 'train_cfg.max_epochs=0'),
        ('--cfg-options train_cfg.max_epochs=many', "train_cfg.max_epochs='many'"),
        ('--cfg-options test_dataloader=None', 'no test_dataloader'),
        ('--cfg-options test_evaluator.type=Foo', "test_evaluator.type='Foo'"),
        ('--cfg-options test_evaluator.topk=5', 'test_evaluator.topk=5 must be at most 2'),
        ('--cfg-options test_dataloader.dataset.data_root=/no', 'test_dataloader.dataset.data_'),
        ('--cfg-options model.backbone.num_heads=3,3,3,3', 'num_heads=3')],
    'figures': [
        ('', 'config'), ('cls.py', '--output-dir --figure --gallery'),
        ('nowhere.py --output-dir o', 'nowhere.py'), ('cls.py no.pth --output-dir o', "'no.pth'"),
        ('cls.py text.pth --output-dir o', "'text.pth' is no checkpoint"),
        ('cls.py empty.pth --output-dir o', "'empty.pth' is empty"),
        ('cls.py other.pth --output-dir o', 'other.pth does not fit')],
    'figures cls.py': [
        ('--output-dir note.txt', '--output-dir note.txt'),
        ('--gallery note.txt', '--gallery note'),
        ('--output-dir o --gallery g', '--gallery: not allowed'),
        ('--output-dir o --out x.png', '--out does nothing without --figure'),
        ('--output-dir o --block 1', '--block does nothing without --figure'),
        ('--output-dir o --head 1', '--head does nothing without --figure or --gallery'),
        ('--output-dir o --name x', '--name does nothing without --gallery'),
        ('--output-dir o --at 0 0 --at 1 1', 'one place is required'),
        ('--output-dir o --cfg-options model=1', 'model=1 of cls.py must be a dict'),
        ('--gallery g --width 3', '--width does nothing without --figure'),
        ('--gallery g --name ../x', "name='../x'"), ('--gallery g --page x.txt', "page='x.txt'"),
        ('--gallery g --page note.txt/x.md', '--page note.txt'),
        ('--figure kernels', '--figure kernels needs --out'),
        ('--figure kernles --out x.png', "invalid choice: 'kernles'")],
    'figures cls.py --figure kernels --out': [
        ('x.jpg', "--out='x.jpg' must end in"), ('folder', "--out='folder' must end in"),
        ('note.txt/x.png', '--out note.txt'), ('x.png --block 99', 'block=99 must be from 0 to 3'),
        ('x.png --block -1', "--block: '-1' must"), ('x.png --width 0.5', 'width=0.5 must'),
        ('x.png --dpi 0', 'dpi=0.0 must be'), ('x.png --width nan', 'width=nan must be'),
        ('x.png --dpi inf', 'dpi=inf must be'),
        ('x.png --save-arrays x.txt', "--save-arrays='x.txt'"),
        ('x.png --save-arrays note.txt/x.npz', '--save-arrays note.txt'),
        ('x.png --size 0', "--size: '0' must be"), ('x.png --size big', "--size: 'big' must be"),
        ('x.png --size 1 2 3', '--size takes height and width'),
        ('x.png --against cls.py', "figure='kernels' shows one model")],
    'figures cls.py --out x.png --figure': [
        ('matrix --head 7', 'head=7 must be'), ('matrix --head -1', "--head: '-1' must"),
        ('matrix --against', '--against: expected'), ('matrix --against no.py', "'no.py'"),
        ('matrix --against a b c', '--against takes a config and at most one checkpoint'),
        ('references --references 0', "--references: '0' must"), ('rollout', "figure='rollout'"),
        ('rotary', 'has no RotaryEmbedding'), ('pools', 'no ContextPool'), ('cost', 'no IRPE'),
        ('added --channels 999', 'channels=[999] must be'), ('added --channels', '--channels: exp'),
        ('overlay --image no.jpg', "image: there is no file 'no.jpg'"),
        ('overlay --image text.jpg', 'text.jpg can not be read'),
        ('overlay --image folder', "no file 'folder'"),
        ('overlay --image a.jpg --at 1 0.5', 'at=(1.0, 0.5)'),
        ('overlay --image a.jpg --size 30 32', 'size=(30, 32) must be multiples of 32'),
        ('overlay --image a.jpg --at nan 0', 'at=(nan, 0.0)'),
        ('overlay --image a.jpg --at 0.5', '--at: expected 2')],
    'diagnose': [
        ('', 'config'), ('nowhere.py', 'nowhere.py'), ('empty.py', 'default_scope=None'),
        ('cls.py no.pth', "'no.pth'"), ('cls.py text.pth', "'text.pth' is no checkpoint"),
        ('cls.py empty.pth', "'empty.pth' is empty"),
        ('cls.py other.pth', 'other.pth does not fit'),
        ('cls.py folder', "no checkpoint 'folder'"), ('cls.py w.pth extra', 'extra'),
        ('cls.py --image no.jpg', "image: there is no file 'no.jpg'"),
        ('cls.py --image text.jpg', 'text.jpg can not be read'), ('cls.py --image', '--image: exp'),
        ('cls.py --size 0', "--size: '0' must be"), ('cls.py --size -32 32', "--size: '-32' must"),
        ('cls.py --size 33', 'size=(33, 33) must be multiples of 32'),
        ('cls.py --size 1 2 3', '--size 1 2 3: give H W'), ('cls.py --size big', "--size: 'big'"),
        ('cls.py --size 1000000000', "--size: '1000000000' must be a whole number from 1 to 65536"),
        ('cls.py --seed -1', "--seed: '-1' must"), ('cls.py --seed 99999999999', '--seed: '),
        ('cls.py --output-dir note.txt', '--output-dir note.txt'),
        ('cls.py --output-dir note.txt/x', '--output-dir note.txt/x'),
        ('cls.py --format jpg', "invalid choice: 'jpg'"),
        ('cls.py --format svg', '--format does nothing without --output-dir'),
        ('cls.py --cfg-options model.backbone.depth=5', "'depth'"),
        ('cls.py --cfg-options default_scope=mmfoo', "default_scope='mmfoo'")],
    'complexity': [
        ('', 'config, --size'), ('cls.py', '--size'), ('nowhere.py --size 32', 'nowhere.py'),
        ('empty.py --size 32', 'default_scope=None'), ('cls.py --size', '--size: expected'),
        ('cls.py --size 0', "--size: '0' must"), ('cls.py --size -32', "--size: '-32' must"),
        ('cls.py --size 32.5', "--size: '32.5' must"), ('cls.py --size 1 2 3', '--size 1 2 3'),
        ('cls.py --size 1', 'an image of 1x1 is smaller'), ('cls.py --size 99999', '--size: '),
        ('cls.py --size 32 --depth -1', "--depth: '-1' must"),
        ('cls.py --size 32 --time --device gpu', "device='gpu'"),
        ('cls.py --size 32 --device cpu', '--device does nothing without --time'),
        ('cls.py --size 32 --plot x.png', '--plot needs two sizes'),
        ('cls.py --size 32 --size 64 --plot x.txt', "--plot='x.txt'"),
        ('cls.py --size 32 --size 64 --plot note.txt/x.png', '--plot note.txt'),
        ('cls.py --size 32 --cfg-options model=3', 'model=3 of cls.py must be a dict'),
        ('cls.py --size 32 --cfg-options model.backbone.depth=5', "'depth'")],
    'convert': [
        ('', 'source, input, output'), ('auto w.pth', 'output'), ('foo w.pth x.pth', "'foo'"),
        ('auto no.pth x.pth', 'no.pth is no file'), ('auto text.pth x.pth', 'text.pth cannot be'),
        ('auto empty.pth x.pth', 'empty.pth cannot be read'),
        ('auto folder x.pth', 'folder is no f'),
        ('auto other.pth x.pth', 'other.pth is of no source'),
        ('deit other.pth x.pth', "source='deit' has no rule"),
        ('auto a.jpg x.pth', 'a.jpg must end in'), ('auto w.pth x.txt', 'x.txt must end in'),
        ('auto w.pth nofolder/x.pth', 'nofolder is no folder'),
        ('auto w.pth note.txt/x.pth', 'note.txt is no folder'),
        ('auto w.pth w.pth', 'w.pth exists; give --overwrite'),
        ('auto w.pth folder', 'must end in'),
        ('auto other.pth x.pth --to timm', 'none of the models of timm'),
        ('auto w.pth x.pth --to torch', "invalid choice: 'torch'")],
    'export': [
        ('', 'config, checkpoint, out'), ('cls.py', 'checkpoint, out'), ('cls.py w.pth', 'out'),
        ('nowhere.py w.pth x.pt2', 'nowhere.py'), ('empty.py w.pth x.pt2', 'default_scope=None'),
        ('cls.py no.pth x.pt2', "'no.pth'"), ('cls.py text.pth x.pt2', "'text.pth' is no check"),
        ('cls.py empty.pth x.pt2', "'empty.pth' is empty"), ('cls.py folder x.pt2', "'folder'"),
        ('cls.py other.pth x.pt2', 'other.pth does not fit'), ('cls.py w.pth x', 'x must end in'),
        ('cls.py w.pth folder', 'folder must end in'),
        ('cls.py w.pth note.txt/x.pt2', 'note.txt is'),
        ('cls.py w.pth nofolder/x.pt2', 'nofolder is no folder'),
        ('cls.py w.pth x.pt2 --size 0', "--size: '0' must"),
        ('cls.py w.pth x.pt2 --size 31', 'size=(31, 31) must be at least (32, 32)'),
        ('cls.py w.pth x.pt2 --size 1 2 3', '--size 1 2 3'),
        ('cls.py w.pth x.onnx --opset 3', "--opset: '3' must be a whole number from 18 to"),
        ('cls.py w.pth x.onnx --opset 999', "--opset: '999' must"),
        ('cls.py w.pth x.pt2 --opset 18', '--opset does nothing without a file that ends in .onnx'),
        ('cls.py w.pth x.pt2 --cfg-options model.backbone.depth=5', "'depth'")]}
ALL = [(f'{begin} {rest}', named) for begin, lines in LINES.items() for rest, named in lines]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A config with its data, weights that fit and some that do not, and broken files."""
    root = tmp_path_factory.mktemp('wrong')
    model = build_model(engine.load_config(str(classifier_config(root))))
    torch.save({'state_dict': model.state_dict()}, root / 'w.pth')
    torch.save({'weight': torch.zeros(2)}, root / 'other.pth')
    Image.new('RGB', (48, 40)).save(root / 'a.jpg')
    (root / 'folder').mkdir()
    for name, text in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


def files(folder):
    """All files but for the locks of studies that are planned."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob('*')
            if path.is_file() and 'planning' not in path.parts}


@pytest.mark.parametrize('line, named', ALL, ids=[line for line, _ in ALL])
def test_a_wrong_line_is_told_before_any_work(folder, monkeypatch, capfd, line, named) -> None:
    def work(*args, **kwargs):
        raise AssertionError('work began')
    monkeypatch.chdir(folder)
    monkeypatch.setattr(schedule, 'carry_out_all', work)
    monkeypatch.setattr(torch.Tensor, 'backward', work)
    monkeypatch.setattr(torch.export, 'export', work)
    before = files(folder)
    capfd.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(line))
    shown, status = ''.join(capfd.readouterr()), stop.value.code
    if isinstance(status, str):  # Python prints it and ends with 1
        shown, status = f'{shown}{status}\n', 1
    assert status in (1, 2) and shown.startswith('error: ') and named in shown, shown
    assert len(shown.splitlines()) <= 3 and 'Traceback' not in shown, shown
    assert files(folder) == before
