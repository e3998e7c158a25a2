"""Wrong command lines: each ends at once, in at most three lines, with a status other than 0."""
from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scripts import load_tool

BROKEN = {
    'empty.py': '', 'empty.pth': '', 'syntax.py': 'model = dict(\n', 'text.pth': 'no checkpoint',
    'raises.py': 'x = 1 / 0\n', 'no_base.py': "_base_ = 'nowhere.py'\n", 'list.json': '[1, 2]',
    'cut.json': '{"images": [', 'text.jpg': 'no image', 'number.py': 'model = 3\n',
    'bytes.py': '\udcff\udcfe', 'data.csv': 'a,b\n'}

#: Tool, arguments ({config}, {checkpoint}, {dir}: a trained detector and a folder of broken
#: files), and what the message must name. One argument of --cfg-options a line of OVERRIDES.
LINES = [
    # paths
    ('train', 'nowhere.py', 'nowhere.py'),
    ('train', '{dir}', 'no config file'),
    ('train', '{dir}/data.csv', 'data.csv'),
    ('train', 'mmposenc::detection/pvt/retinanet_pvt-x.py', 'did you mean'),
    ('train', 'mmdet::nowhere/nothing.py', 'nothing.py'),
    ('train', 'nopackage::a.py', 'nopackage'),
    ('train', '{config} --work-dir {dir}/data.csv', '--work-dir'),
    ('train', '{config} --work-dir {dir}/data.csv/deeper', '--work-dir'),
    ('train', '{config} --resume nowhere.pth', '--resume'),
    ('train', '{config} --resume {dir}', '--resume'),
    ('test', 'nowhere.py {checkpoint}', 'nowhere.py'),
    ('test', '{config} nowhere.pth', 'nowhere.pth'),
    ('test', '{config} {dir}', 'checkpoint'),
    ('test', '{config} {checkpoint} --out {dir}/out.txt', '--out'),
    ('test', '{config} {checkpoint} --out {dir}/data.csv/out.pkl', '--out'),
    ('test', '{config} {checkpoint} --out {dir}/folder.pkl', '--out'),
    ('test', '{config} {checkpoint} --show-dir {dir}/data.csv', '--show-dir'),
    ('browse_dataset', 'nowhere.py --output-dir {dir}/out', 'nowhere.py'),
    ('browse_dataset', '{config} --output-dir {dir}/data.csv', 'data.csv'),
    ('visualize_encoding', '{config} nowhere.pth --output-dir {dir}/out', 'nowhere.pth'),
    ('visualize_encoding', '{config} --image nowhere.jpg --output-dir {dir}/out', 'nowhere.jpg'),
    ('visualize_encoding', '{config} --output-dir {dir}/data.csv', 'data.csv'),
    ('visualize_encoding', '{config} --figure matrix --out {dir}/data.csv/x.png', '--out'),
    ('visualize_encoding', '{config} --figure kernels --out {dir}/x.jpg', '--out'),
    ('convert_checkpoint', 'deit nowhere.pth {dir}/x.pth', 'nowhere.pth'),
    ('convert_checkpoint', 'deit {checkpoint} {dir}/none/x.pth', 'is no folder'),
    ('convert_checkpoint', 'deit {checkpoint} {dir}/x.txt', 'must end in'),
    ('show_metrics', 'a={dir}', 'holds no metrics'),
    ('show_metrics', 'a=nowhere', 'nowhere'),
    ('prepare_data', 'fashion nowhere --out {dir}/out', 'lacks'),
    ('prepare_data', 'trees --out {dir}', 'holds other files'),
    ('prepare_data', 'coco nowhere', 'nowhere'),
    ('count_model', 'nowhere.py', 'nowhere.py'),
    ('prepare_data', 'ade20k {dir}/data.csv', 'is not a folder'),
    # arguments
    ('train', '', 'config'),
    ('train', '{config} --wrok-dir x', '--wrok-dir'),
    ('train', '{config} --launcher pytroch', 'pytroch'),
    ('train', '{config} --auto-scale-lr --cfg-options auto_scale_lr=None', 'base_batch_size'),
    ('train', '{config} --amp --cfg-options optim_wrapper.type=Foo', 'Foo'),
    ('test', '{config}', 'checkpoint'),
    ('test', '{config} {checkpoint} --cfg-options model', 'model'),
    ('test', '{config} {checkpoint} --tta --cfg-options default_scope=mmfoo', 'mmfoo'),
    ('browse_dataset', '{config}', '--output-dir'),
    ('browse_dataset', '{config} --output-dir {dir}/out --number many', '--number'),
    ('browse_dataset', '{config} --output-dir {dir}/out --phase tset', 'tset'),
    ('visualize_encoding', '{config} --size 0 32 --output-dir {dir}/out', 'size'),
    ('visualize_encoding', '{config} --at 2 0 --output-dir {dir}/out', 'at='),
    ('convert_checkpoint', 'detr {checkpoint} {dir}/x.pth', 'detr'),
    ('show_metrics', 'x', 'NAME=WORK_DIR'),
    ('prepare_data', 'imagenet x', 'imagenet'),
    ('prepare_data', '', 'command'),
    ('model_table', '--chekc', '--chekc'),
    # unreadable and empty files
    ('train', '{dir}/empty.py', 'model'),
    ('train', '{dir}/syntax.py', 'syntax.py'),
    ('train', '{dir}/raises.py', 'ZeroDivisionError'),
    ('train', '{dir}/no_base.py', 'nowhere.py'),
    ('train', '{dir}/number.py', 'model=3'),
    ('train', '{dir}/bytes.py', 'bytes.py'),
    ('train', '{config} --resume {dir}/empty.pth', 'empty.pth'),
    ('test', '{dir}/empty.py {checkpoint}', 'model'),
    ('test', '{config} {dir}/empty.pth', 'empty.pth'),
    ('test', '{config} {dir}/text.pth', 'text.pth'),
    ('visualize_encoding', '{config} {dir}/text.pth --output-dir {dir}/out', 'text.pth'),
    ('visualize_encoding', '{config} --image {dir}/text.jpg --output-dir {dir}/out', 'text.jpg'),
    ('convert_checkpoint', 'deit {dir}/text.pth {dir}/x.pth', 'text.pth'),
    ('convert_checkpoint', 'deit {dir}/weights.pth {dir}/x.pth', 'has no rule'),
]
#: --cfg-options of train.py, and what the message must name.
OVERRIDES = [
    ('optm_wrapper.lr=1', "did you mean 'optim_wrapper'"),
    ('optim_wrapper.optimizer.lrr=1', "did you mean 'lr'"),
    ('optim_wrapper.optimizer.type=Adamm', "did you mean 'Adam"),
    ('optim_wrapper.paramwise_cfg.norm_decay_mul=0', "did you mean 'norm_decay_mult'"),
    ('train_cfg.max_epoch=1', "did you mean 'max_epochs'"),
    ('param_scheduler.0.beginn=1', "did you mean 'begin'"),
    ('default_hooks.checkpoint.intrval=1', "did you mean 'interval'"),
    ('default_hooks.logger.type=LogerHook', "did you mean 'LoggerHook'"),
    ('train_dataloader.batchsize=1', "did you mean 'batch_size'"),
    ('train_dataloader.dataset.an_file=x', "did you mean 'ann_file'"),
    ('train_dataloader.dataset.pipeline.2.probb=1', "did you mean 'prob'"),
    ('train_dataloader.dataset.ann_file={dir}/cut.json', 'cut.json'),
    ('train_dataloader.dataset.ann_file={dir}/list.json', 'list.json'),
    ('train_dataloader.dataset.ann_file=no.json', 'train_dataloader.dataset.ann_file'),
    ('train_dataloader.dataset.data_prefix.img=nowhere', 'data_prefix.img'),
    ('val_evaluator.ann_file=no.json', 'val_evaluator.ann_file'),
    ('val_evaluator.metrik=bbox', "did you mean 'metric'"),
    ('model.backbone.positions=99,', 'positions=(99,)'),
    ('model.backbone.pos_encoding.type=mmposenc.PEGG', 'PEGG'),
    ('model.backbone.num_heads=3,3,3,3', 'num_heads'),
    ('model.backbone.foo=1', 'foo'),
    ('model.bbox_head.num_classes=7', 'model.bbox_head.num_classes: 7'),
    ('load_from=no.pth', "load_from: there is no checkpoint 'no.pth'"),
    ('train_dataloader=None', 'train_dataloader'),
]
ALL = LINES + [('train', f'{{config}} --cfg-options {option}', named)
               for option, named in OVERRIDES]


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp('wrong')
    for name, text in BROKEN.items():
        (root / name).write_bytes(os.fsencode(text))
    (root / 'folder.pkl').mkdir()
    torch.save({'weight': torch.zeros(2)}, root / 'weights.pth')
    return root


@pytest.mark.parametrize('tool, line, named', ALL, ids=[f'{t} {w}' for t, w, _ in ALL])
def test_a_wrong_command_line(detector, folder, tmp_path, monkeypatch, capfd, tool, line, named
                              ) -> None:
    monkeypatch.chdir(tmp_path)
    words = line.format(config=detector['config'], checkpoint=detector['checkpoint'],
                        dir=folder).split()
    if tool in ('train', 'test') and words and '--work-dir' not in words:
        words[1:1] = ['--work-dir', str(tmp_path / 'work')]
    main = load_tool(tool).main
    capfd.readouterr()
    with pytest.raises(SystemExit) as stop:
        raise SystemExit(main(words))  # what the command line does with it
    shown = ''.join(capfd.readouterr())
    status = stop.value.code
    if isinstance(status, str):  # Python prints it and ends with 1
        shown, status = f'{shown}{status}\n', 1
    assert status not in (0, None)
    assert named in shown
    assert len(shown.splitlines()) <= 3, shown
    assert 'Traceback' not in shown


def test_how_many() -> None:
    assert len(ALL) == 90


def test_the_traceback_is_in_the_log_and_shown_on_request(detector, tmp_path, capfd) -> None:
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
    with pytest.raises(SystemExit, match=r'error: positions=\(99,\) must'):
        main([*words[:3], '--traceback', *words[3:], 'experiment_name=again'])
    assert 'Traceback (most recent call last)' in capfd.readouterr().err


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


def test_random_generators_are_not_touched(detector) -> None:
    """Checking a command line draws nothing."""
    torch.manual_seed(0)
    state = torch.get_rng_state()
    with pytest.raises(SystemExit):
        load_tool('train').main(['nowhere.py'])
    assert torch.equal(state, torch.get_rng_state())
