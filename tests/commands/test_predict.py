"""mmposenc predict: the three tasks, what is equal to a test, files of every kind, and stops."""
import io
import json
import os
import pickle
import signal
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from helpers.scripts import named
from helpers.tiny_data import tiny_detector
from helpers.tiny_tasks import classifier_config, segmentor_config
from helpers.untrained_weights import saved
from PIL import Image

import mmposenc
from mmposenc import engine
from mmposenc.commands.predict import main
from mmposenc.commands.test import main as run_test
from mmposenc.engine.apps.pictures import visualizer_of
from mmposenc.engine.apps.result import Result

TASKS = {'detection': (tiny_detector, 'images', None),
         'segmentation': (segmentor_config, 'images', None),
         'classification': (classifier_config, 'classes', ['bright', 'dark'])}


def made(task: str, root: Path) -> dict[str, Path]:
    write, images, classes = TASKS[task]
    config = write(root)
    return dict(config=config, checkpoint=saved(config, root / 'model.pth', classes),
                images=root / 'data' / images)


@pytest.fixture(scope='module')
def detector(tmp_path_factory) -> dict[str, Path]:
    return made('detection', tmp_path_factory.mktemp('predict'))


def predict(model: dict[str, Path], source: Path, out: Path, *words: str) -> dict:
    main([str(source), str(model['config']), str(model['checkpoint']), '--out', str(out), *words])
    return json.loads((out / 'predictions.json').read_text())


def dumped(model: dict[str, Path], folder: Path, run: str) -> list[dict]:
    """What test.py gives for the same pictures."""
    run_test([str(model['config']), str(model['checkpoint']), '--work-dir', str(folder / 'work'),
              '--out', str(folder / 'out.pkl'), '--cfg-options', *named(run)])
    return pickle.loads((folder / 'out.pkl').read_bytes())


def expected(task: str, sample: dict) -> dict[str, list]:
    """What predictions.json lists of a picture, from what a test gives."""
    if task == 'detection':
        found = {key: value.tolist() for key, value in sample['pred_instances'].items()}
        return dict(labels=found['labels'], scores=found['scores'], boxes=found['bboxes'],
                    names=[('square', 'disc')[label] for label in found['labels']])
    if task == 'segmentation':
        scores, classes = np.bincount(sample['pred_sem_seg']['data'].flatten()), ('ground', 'thing')
        scores = scores / scores.sum()
    else:
        scores, classes = sample['pred_score'].numpy(), ('bright', 'dark')
    labels = [label for label in np.argsort(-scores).tolist() if scores[label] > 0]
    return dict(labels=labels, names=[classes[label] for label in labels],
                scores=pytest.approx(scores[labels].tolist(), abs=1e-6))


@pytest.mark.parametrize('task', TASKS)
def test_the_command_the_python_call_and_a_test_agree(task, detector, tmp_path, capsys) -> None:
    model = detector if task == 'detection' else made(task, tmp_path / 'model')
    words, thr = (['--score-thr', '0'], dict(score_thr=0.0)) if task == 'detection' else ([], {})
    told = predict(model, model['images'], tmp_path / 'out', *words)
    assert told['task'] == task and told['complete'] and told['skipped'] == []
    assert (f'masks: {tmp_path}/out/masks' in capsys.readouterr().out) == (task == 'segmentation')
    results = mmposenc.predict(mmposenc.load(model['config'], model['checkpoint']),
                               model['images'], **thr)
    samples = dumped(model, tmp_path, f'predict_{task}')
    assert len(samples) >= 3
    for sample, record, result in zip(samples, told['images'], results, strict=True):
        assert record['file'] == result.file == sample['img_path']
        assert (record['height'], record['width']) == sample['ori_shape']
        wanted = expected(task, sample)
        assert {key: record[key] for key in wanted} == wanted and len(record['labels']) > 0
        assert {key: record[key] for key in result.record()} == result.record()
        if task == 'segmentation':
            mask = np.asarray(Image.open(tmp_path / 'out' / record['mask']))
            assert mask.dtype == np.uint8 and np.array_equal(result.masks, mask)
            assert np.array_equal(mask, sample['pred_sem_seg']['data'][0].numpy())
            assert 'seg_logits' not in sample  # a float map for every class
        drawn = cv2.imread(str(tmp_path / 'out' / record['picture']))
        if task == 'detection':
            plain = cv2.imread(record['file'])
            assert drawn.shape == plain.shape and np.abs(drawn.astype(int) - plain).max() > 60
        assert np.array_equal(cv2.imread(str(result.save(tmp_path / 'drawn.jpg'))), drawn)
        assert result._repr_png_().startswith(b'\x89PNG') and record['file'] in repr(result)


def shot(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def test_pictures_of_every_kind(detector, tmp_path) -> None:
    plain = np.asarray(Image.open(detector['images'] / 'shape_1.jpg'))
    folder = tmp_path / 'of mine'
    shot(folder / 'b' / 'plain one.png', plain)
    shot(folder / 'b' / 'plain one.BMP', plain)
    shot(folder / 'alpha.png', np.dstack([plain, np.full(plain.shape[:2], 7, np.uint8)]))
    shot(folder / 'grey.png', plain[..., 0])
    cv2.imwrite(str(folder / 'deep.png'), plain[..., ::-1].astype(np.uint16) * 257)
    (folder / 'notes.txt').write_text('not a picture')
    (folder / '.hidden.png').write_text('not read')
    shot(folder / '.thumbnails' / 'grey.png', plain)
    predict(detector, folder, folder / 'out', '--score-thr', '0')
    # A second call does not predict what the first has drawn.
    told = predict(detector, folder, folder / 'out', '--score-thr', '0', '--overwrite')
    records = {os.path.relpath(record['file'], folder): record for record in told['images']}
    assert list(records) == sorted(records) and 'out' not in str(list(records))
    assert not any(name.startswith('.') for name in records)
    wanted = records['b/plain one.png']['boxes']
    for other in ('b/plain one.BMP', 'alpha.png', 'deep.png'):
        assert records[other]['boxes'] == wanted
    assert records['grey.png']['boxes'] != wanted
    pictures = {record['picture'] for record in told['images']}
    assert {'pictures/b/plain one.jpg', 'pictures/b/plain one_2.jpg'} < pictures
    on_disk = {str(path.relative_to(folder / 'out')) for path in (folder / 'out').rglob('*.*')}
    assert on_disk == pictures | {'predictions.json'}
    predict(detector, detector['images'], tmp_path / 'plain', '--no-pictures')
    assert os.listdir(tmp_path / 'plain') == ['predictions.json']


def test_one_bad_file_ends_nothing(detector, tmp_path, capfd) -> None:
    buffer = io.BytesIO()
    Image.open(detector['images'] / 'shape_1.jpg').save(buffer, 'PNG')
    good = [os.fsdecode(b'\xff\xfe latin \xe9.png'), 'a' * 251 + '.png', 'new\nline.png',
            '=1+1.png', '[bold].png']
    odd = os.fsdecode(b'empty \xff\x1b[2J\nwarning: forged.jpg')
    bad = {'empty.webp': (b'', 'is empty'), 'text.gif': (b'no picture', 'recognises no picture'),
           'cut.png': (buffer.getvalue()[:-200], 'broken image'), odd: (b'', 'is empty')}
    folder = tmp_path / 'odd'
    folder.mkdir()
    for name in good:
        (folder / name).write_bytes(buffer.getvalue())
    for name, (content, _) in bad.items():
        (folder / name).write_bytes(content)
    (folder / 'nowhere.png').symlink_to(folder / 'none')
    (folder / 'device.png').symlink_to('/dev/zero')  # no picture, which would be read for ever
    with pytest.raises(SystemExit, match='error: 5 files could not be predicted') as stop:
        predict(detector, folder, tmp_path / 'out', '--score-thr', '0')
    assert isinstance(stop.value.code, str)  # status 1
    told = json.loads((tmp_path / 'out' / 'predictions.json').read_text())
    reasons = {os.path.basename(each['file']): each['reason'] for each in told['skipped']}
    assert reasons.keys() == {*bad, 'nowhere.png'} and told['complete']
    assert 'No such file' in reasons['nowhere.png']
    assert all(reason in reasons[name] for name, (_, reason) in bad.items())
    assert {os.path.basename(record['file']) for record in told['images']} == set(good)
    for record in told['images']:
        assert record['boxes'] == told['images'][0]['boxes']
        Image.open(tmp_path / 'out' / record['picture']).load()
    printed = capfd.readouterr().out
    assert f"skipped {folder / 'cut.png'}: " in printed
    assert '\x1b' not in printed and '\nwarning: forged' not in printed


def test_a_picture_that_the_model_can_not_take(detector, tmp_path, monkeypatch) -> None:
    """The others are predicted; and so where its numbers are not finite."""
    model = mmposenc.load(detector['config'], detector['checkpoint'])
    test_step = model.test_step

    def sometimes(data):
        sample, = test_step(data)
        if 'shape_1' in sample.img_path:
            raise RuntimeError('sizes of tensors must match')
        if 'shape_2' in sample.img_path:
            sample.pred_instances.scores[:] = 0.5
            sample.pred_instances.bboxes[0, 0] = torch.nan
        return [sample]
    monkeypatch.setattr(model, 'test_step', sometimes)
    monkeypatch.setattr('mmposenc.engine.apps.predict_files.load', lambda *args: model)
    with pytest.raises(SystemExit, match='error: 2 files could not be predicted'):
        predict(detector, detector['images'], tmp_path)
    with pytest.raises(SystemExit, match='holds predictions.json of another run'):
        predict(detector, detector['images'], tmp_path)
    told = json.loads((tmp_path / 'predictions.json').read_text())
    assert [os.path.basename(each['file']) for each in told['images']] == [
        'shape_0.jpg', 'shape_3.jpg'] and told['complete']
    for each, said in zip(told['skipped'], ('RuntimeError: sizes', 'numbers that are not finite'),
                          strict=True):
        assert each['file'] in each['reason'] and said in each['reason']


def test_what_the_python_call_takes_and_refuses(detector, tmp_path) -> None:
    with pytest.raises(ValueError, match=r"names weights.*load\(CONFIG, 'hf://me/tiny'\)"):
        mmposenc.load('hf://me/tiny')
    model = mmposenc.load(engine.load_config(str(detector['config'])), detector['checkpoint'])
    assert model.dataset_meta['classes'] == ('square', 'disc') and not model.training
    path = shot(tmp_path / 'plain.png', np.asarray(Image.open(detector['images'] / 'shape_1.jpg')))
    pixels = np.asarray(Image.open(path))
    one = mmposenc.predict(model, path, score_thr=0.0)
    for other in mmposenc.predict(model, [str(path), pixels, tmp_path], score_thr=0.0):
        assert np.array_equal(other.picture, pixels)
        assert np.array_equal(other.boxes, one.boxes) and len(one.boxes) > 0
    grey = shot(tmp_path / 'grey.png', pixels[..., 0])
    assert np.array_equal(mmposenc.predict(model, pixels[..., 0], score_thr=0.0).boxes,
                          mmposenc.predict(model, grey, score_thr=0.0).boxes)
    (tmp_path / 'broken.png').write_bytes(b'no picture')
    for source, told in [
            (tmp_path / 'broken.png', 'broken.png: broken image'), (None, r'pictures\[0\]: None'),
            (np.zeros((4, 4, 3)), r'pictures\[0\]: ndarray \(4, 4, 3\) of float64'),
            (np.zeros((0, 4), np.uint8), 'is no picture'),
            ([np.zeros((2, 4, 4, 3), np.uint8)], 'is no picture')]:
        with pytest.raises(ValueError, match=told):
            mmposenc.predict(model, source)
    with pytest.raises(ValueError, match='Linear has no cfg'):
        mmposenc.predict(torch.nn.Linear(1, 1), pixels)
    with pytest.raises(ValueError, match='must end in one of .bmp'):
        one.save(tmp_path / 'drawn.txt')


def test_masks_of_objects_are_those_of_its_boxes() -> None:
    from mmdet.structures import DetDataSample
    from mmengine.structures import InstanceData
    from pycocotools.mask import decode

    masks = torch.rand(3, 6, 8) > 0.5
    sample = DetDataSample(pred_instances=InstanceData(
        bboxes=torch.rand(3, 4), scores=torch.tensor([0.9, 0.2, 0.6]),
        labels=torch.tensor([1, 0, 0]), masks=masks))
    result = Result('one.jpg', np.zeros((6, 8, 3), np.uint8), sample, 'mmdet', 0.3,
                    visualizer_of('mmdet', {'classes': ('square', 'disc')}))
    assert np.array_equal(result.masks, masks[[0, 2]].numpy()) and result.masks.dtype == bool
    assert np.array_equal(decode(result.record()['masks'][1]), result.masks[1])
    assert result.names == ['disc', 'square'] and result.boxes.shape == (2, 4)
    assert repr(result) == 'Result(one.jpg: disc 0.90, square 0.60)'


def test_results_of_others_stay_and_old_ones_go_last(detector, tmp_path, monkeypatch) -> None:
    """Of predict and of a test: their own are replaced, until somebody changes them."""
    out, drawn = tmp_path / 'out', tmp_path / 'drawn'
    predict(detector, detector['images'], out)
    predict(detector, detector['images'], out, '--overwrite')
    old = {path: path.read_bytes() for path in out.rglob('*.*')}
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Result, 'save', lambda result, path: os.kill(os.getpid(), signal.SIGTERM))
        predict(detector, detector['images'], out, '--overwrite')
    assert {path: path.read_bytes() for path in out.rglob('*.*')} == old
    test = [str(detector['config']), str(detector['checkpoint']), '--work-dir', str(tmp_path / 'w'),
            '--show-dir', str(drawn), '--cfg-options']
    for run in ('first', 'second'):
        run_test([*test, *named(run)])
    assert len(os.listdir(drawn)) == 4
    for folder, call in ((out / 'pictures', lambda: predict(
            detector, detector['images'], out, '--overwrite')),
            (drawn, lambda: run_test([*test, *named('third')]))):
        (folder / 'shape_1.jpg').write_text('mine')
        with pytest.raises(SystemExit, match='shape_1.jpg exists; give another folder'):
            call()
        assert (folder / 'shape_1.jpg').read_text() == 'mine'


def test_a_stop_leaves_what_was_done(detector, tmp_path, monkeypatch) -> None:
    out, save = tmp_path / 'out', Result.save

    def save_and_stop(result: Result, path: Path) -> Path:
        if 'shape_1' in result.file:
            os.kill(os.getpid(), signal.SIGTERM)
        return save(result, path)
    monkeypatch.setattr(Result, 'save', save_and_stop)
    with pytest.raises(SystemExit) as stop:
        predict(detector, detector['images'], out)
    assert stop.value.code == 143
    told = json.loads((out / 'predictions.json').read_text())
    assert not told['complete'] and len(told['images']) == 1
    assert sorted(path.name for path in out.rglob('*.*')) == ['predictions.json', 'shape_0.jpg']
