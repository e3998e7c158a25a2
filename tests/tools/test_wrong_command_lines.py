"""Wrong command lines: each ends at once, in at most three lines, with a status other than 0."""
from __future__ import annotations

import importlib
import os
import time
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
    'bytes.py': '\udcff\udcfe', 'data.csv': 'a,b\n',
    # The metrics of four tests: cut off, no dict, a word, not UTF-8.
    'm1/1/1.json': '{"a": ', 'm2/1/1.json': '[1]', 'm4/1/1.json': '\udcff',
    'm3/1/1.json': '{"coco/bbox_mAP": "x", "coco/bbox_mAP_50": null}'}

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
    ('prepare_data', 'trees --out {dir}', 'holds files that were not prepared'),
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
    ('custom_hooks=[3]', 'custom_hooks=[3] must be a list of dicts'),
    ('default_hooks=3', 'default_hooks=3 must be a dict'),
    ('train_dataloader.dataset=3', 'train_dataloader.dataset=3 must be a dict'),
    ('train_dataloader.dataset.ann_file={dir}/pipe.json', 'pipe.json'),
    ('train_dataloader.batch_size=two', "train_dataloader.batch_size='two' must be a number"),
    ('train_dataloader.num_workers=-1', 'train_dataloader.num_workers=-1 must be a number'),
    ('train_cfg.max_epochs=0', 'train_cfg.max_epochs=0 must be a number of at least 1'),
    ('train_cfg.max_epochs=two', "train_cfg.max_epochs='two' must be a number of at least 1"),
    ('optim_wrapper.optimizer.lr=fast', "optim_wrapper.optimizer.lr='fast' must be a number"),
    ('randomness.seed=x', "randomness.seed='x' must be a number"),
]
#: Of the commands that have no script in tools/; the last word is what the message must name.
COMMANDS = [tuple(line.rsplit(' | ', 1)) for line in '''
predict | SOURCE, config, checkpoint, --out
predict {images} | config, checkpoint, --out
predict {images} {config} {checkpoint} | --out
predict PREDICT --score-thr many | 'many'
predict PREDICT --score-thr nan | score_thr=nan must be at least 0
predict PREDICT --score-thr inf | score_thr=inf must be at least 0
predict PREDICT --batch-size 0 | batch_size=0 must be at least 1
predict PREDICT --batch-size 1.5 | '1.5'
predict PREDICT --device gpu | device='gpu'
predict PREDICT --device cuda:99 | device='cuda:99'
predict PREDICT --device meta | device='meta'
predict PREDICT --pictures | unrecognized arguments: --pictures
predict PREDICT extra | unrecognized arguments: extra
predict PREDICT --cfg-options model | 'model' is not KEY=VALUE
predict PREDICT --cfg-options foo.bar=1 | has no 'foo'
predict PREDICT --cfg-options model.bbox_head.num_classes=7 | num_classes: 7
predict PREDICT --cfg-options test_dataloader=None | test_dataloader
predict PREDICT --cfg-options test_dataloader.dataset=3 | test_dataloader.dataset=3 must be a dict
predict PREDICT --cfg-options test_dataloader.dataset.pipeline.0.type=Foo | pipeline.0.type='Foo'
predict PREDICT --cfg-options default_scope=mmfoo | default_scope='mmfoo'
predict PREDICT --cfg-options visualizer.type=Foo | visualizer.type='Foo'
predict PREDICT --cfg-options visualizer=3 | visualizer=3 must be a dict
predict {images} {config} {checkpoint} --out {dir}/data.csv | data.csv is no folder
predict {images} {config} {checkpoint} --out {dir}/data.csv/x | data.csv is no folder
predict nowhere {config} {checkpoint} --out out | source='nowhere'
predict {dir}/folder.pkl {config} {checkpoint} --out out | neither a picture nor a video
predict {dir}/data.csv {config} {checkpoint} --out out | must be a folder, a picture
predict {dir}/pipe.jpg {config} {checkpoint} --out out | it is a pipe, not a file
predict {dir}/pipe.mp4 {config} {checkpoint} --out out | it is a pipe, not a file
predict {dir}/text.jpg {config} {checkpoint} --out out | text.jpg
predict {images} nowhere.py {checkpoint} --out out | 'nowhere.py'
predict {images} {dir}/pipe.py {checkpoint} --out out | pipe.py
predict {images} {dir}/empty.py {checkpoint} --out out | default_scope=None
predict {images} {checkpoint} {config} --out out | epoch_2.pth
predict {images} {config} nowhere.pth --out out | 'nowhere.pth'
predict {images} {config} {dir}/pipe.pth --out out | pipe.pth
predict {images} {config} {dir}/text.pth --out out | is no checkpoint
predict {images} {config} {dir}/weights.pth --out out | does not fit the model
predict {images} {config} {dir}/list.pth --out out | holds a list; a dict
prepare trees --out {dir}/data.csv | data.csv is a file; give another folder
prepare trees --out {dir}/data.csv/x --cache cache | data.csv is a file; give another folder
prepare mnist5k --out out --cache {dir}/data.csv | data.csv is a file; give another folder
prepare nuclei --out out --cache {dir}/data.csv/x | data.csv is a file; give another folder
prepare nuclei --out | --out: expected one argument
prepare tree | invalid choice: 'tree'
prepare mnist {dir} --out {dir} | is the folder to read and the folder to write
prepare mnist {dir} --cache x | unrecognized arguments: --cache x
prepare coco | path
cache | config
cache {config} --folder {dir}/data.csv | data.csv is no folder
cache {config} --folder {dir}/data.csv/x | data.csv is no folder
cache {config} --folder out | the backbone trains 92 of its parameters
cache {config} --views 3 | unrecognized arguments: --views 3
cache {config} --work-dir {dir}/data.csv | data.csv is no folder
cache {config} --folder out --cfg-options custom_hooks=abc | custom_hooks='abc' must be a list
cache {config} --folder out --cfg-options train_dataloader=None | train_dataloader
show_metrics | NAME=WORK_DIR
show_metrics a= | 'a=' is not NAME=WORK_DIR
show_metrics a={dir}/m1 | m1/1/1.json does not hold the metrics
show_metrics a={dir}/m2 | m2/1/1.json does not hold the metrics
show_metrics a={dir}/m3 | m3 has no coco/bbox_mAP
show_metrics a={dir}/m4 | m4/1/1.json does not hold the metrics
show_metrics a={dir}/m3 a={dir}/m3 | 2 tests have 1 names
browse {config} --output-dir {dir}/data.csv/x | data.csv is no folder
browse {config} --output-dir out --number 0 | number=0 must be at least 1
browse {config} --output-dir out --number -5 | number=-5 must be at least 1
browse {config} --output-dir out --seed -1 | seed=-1 must be from 0
browse {config} --output-dir out --phase val --cfg-options val_dataloader=None | phase='val'
browse {config} --output-dir out --cfg-options train_dataloader.dataset.type=Foo | type='Foo'
browse {config} --output-dir out --cfg-options train_dataloader.batch_size=many | size='many'
browse {config} --output-dir out --cfg-options model=None | model
'''.replace('PREDICT', '{images} {config} {checkpoint} --out out').strip().splitlines()]
ALL = [*LINES, *[(*line.partition(' ')[::2], named) for line, named in COMMANDS],
       *[('train', f'{{config}} --cfg-options {option}', named) for option, named in OVERRIDES]]


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp('wrong')
    for name, text in BROKEN.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(os.fsencode(text))
    (root / 'folder.pkl').mkdir()
    for suffix in ('pth', 'py', 'jpg', 'mp4', 'json'):
        os.mkfifo(root / f'pipe.{suffix}')
    torch.save([1, 2], root / 'list.pth')
    torch.save({'weight': torch.zeros(2)}, root / 'weights.pth')
    return root


@pytest.mark.parametrize('tool, line, named', ALL, ids=[f'{t} {w}' for t, w, _ in ALL])
def test_a_wrong_command_line(detector, folder, tmp_path, monkeypatch, capfd, tool, line, named
                              ) -> None:
    monkeypatch.chdir(tmp_path)
    words = line.format(config=detector['config'], checkpoint=detector['checkpoint'],
                        images=detector['data'] / 'images', dir=folder).split()
    if tool in ('train', 'test') and words and '--work-dir' not in words:
        words[1:1] = ['--work-dir', str(tmp_path / 'work')]
    known = (tool, line, named) not in LINES and tool != 'train'
    main = (importlib.import_module(f'mmposenc.commands.{tool}') if known
            else load_tool(tool)).main
    capfd.readouterr()
    start = time.process_time()
    with pytest.raises(SystemExit) as stop:
        raise SystemExit(main(words))  # what the command line does with it
    assert time.process_time() - start < 10  # before anything is trained, fetched or predicted
    shown = ''.join(capfd.readouterr())
    status = stop.value.code
    if isinstance(status, str):  # Python prints it and ends with 1
        shown, status = f'{shown}{status}\n', 1
    assert status not in (0, None)
    assert named in shown
    assert len(shown.splitlines()) <= 3, shown
    assert 'Traceback' not in shown


def test_how_many() -> None:
    assert len(ALL) == 171


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
