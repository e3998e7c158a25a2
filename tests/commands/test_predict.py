"""mmposenc predict: the three tasks, what is equal to a test, files of every kind, and stops."""
import contextlib
import errno
import io
import json
import os
import pickle
import signal
import socket
from pathlib import Path
from types import SimpleNamespace

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
from mmposenc.engine.apps.pictures import write_picture
from mmposenc.engine.apps.results import Result

TASKS = {'detection': (tiny_detector, 'images', None),
         'segmentation': (segmentor_config, 'images', None),
         'classification': (classifier_config, 'classes', ['bright', 'dark'])}


def made(task: str, root: Path) -> dict[str, Path]:
    write, images, classes = TASKS[task]
    config = write(root)
    return dict(config=config, checkpoint=saved(config, root / 'model.pth', classes),
                images=root / 'data' / images)


@pytest.mark.parametrize('suffix, dtype, shape', [
    ('.png', 'uint8', (4, 5, 3)), ('.png', 'uint8', (4, 5)), ('.png', 'uint16', (4, 5)),
    ('.bmp', 'uint8', (4, 5, 3))])
def test_written_pictures_have_the_colours_that_were_given(suffix, dtype, shape, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    write_picture(tmp_path / f'a{suffix}', pixels)
    assert np.array_equal(np.asarray(Image.open(tmp_path / f'a{suffix}')), pixels)


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


def expected(task: str, sample: dict) -> list[dict]:
    """What predictions.json lists of a picture, from what a test gives."""
    if task == 'detection':
        found = sample['pred_instances']
        return [dict(label=label, name=('square', 'disc')[label], score=score,
                     bbox=[left, top, right - left, bottom - top])
                for (left, top, right, bottom), score, label in zip(
                    *(found[key].tolist() for key in ('bboxes', 'scores', 'labels')), strict=True)]
    if task == 'segmentation':
        labels = sample['pred_sem_seg']['data'][0].numpy()
        return sorted((dict(label=i, name=('ground', 'thing')[i], share=(labels == i).mean())
                       for i in np.unique(labels)), key=lambda each: -each['share'])
    scores = sample['pred_score'].tolist()
    return [dict(label=i, name=('bright', 'dark')[i], score=pytest.approx(scores[i], abs=1e-6))
            for i in sorted((0, 1), key=scores.__getitem__, reverse=True)]


@pytest.mark.parametrize('task', TASKS)
def test_the_command_the_python_call_and_a_test_agree(task, detector, tmp_path, capsys) -> None:
    model = detector if task == 'detection' else made(task, tmp_path / 'model')
    words, thr = (['--score-thr', '0'], dict(score_thr=0.0)) if task == 'detection' else ([], {})
    told = predict(model, model['images'], tmp_path / 'out', '--batch-size', '2', *words)
    assert told['task'] == task and told['complete'] and told['skipped'] == []
    assert (f'masks: {tmp_path}/out/masks' in capsys.readouterr().out) == (task == 'segmentation')
    results = mmposenc.predict(mmposenc.load(model['config'], model['checkpoint']),
                               model['images'], batch_size=4, **thr)
    samples = dumped(model, tmp_path, f'predict_{task}')
    assert len(samples) >= 3
    for sample, record, result in zip(samples, told['images'], results, strict=True):
        assert sample['img_path'].endswith(record['file']) and result.file == record['file']
        assert (record['height'], record['width']) == sample['ori_shape']
        listed = record.get('objects', record.get('areas', record.get('classes')))
        assert listed == expected(task, sample) and len(result) == len(listed) > 0
        assert result.classes.tolist() == [each['label'] for each in listed]
        assert result.names == [each['name'] for each in listed]
        assert result.scores.tolist() == pytest.approx(
            [each.get('score', each.get('share')) for each in listed])
        if task == 'detection':
            np.testing.assert_allclose(result.boxes, sample['pred_instances']['bboxes'], rtol=1e-6)
        if task == 'segmentation':
            mask = np.asarray(Image.open(tmp_path / 'out' / record['mask']))
            assert mask.dtype == np.uint8 and np.array_equal(result.masks, mask)
            assert np.array_equal(mask, sample['pred_sem_seg']['data'][0].numpy())
        drawn = cv2.imread(str(tmp_path / 'out' / record['picture']))
        if task == 'detection':
            plain = cv2.imread(str(model['images'] / record['file']))
            assert drawn.shape == plain.shape and np.abs(drawn.astype(int) - plain).max() > 60
        assert np.array_equal(cv2.imread(str(result.save(tmp_path / 'drawn.jpg'))), drawn)
        assert result._repr_png_().startswith(b'\x89PNG') and record['file'] in repr(result)


def test_a_config_based_on_mmdets(detector, tmp_path) -> None:
    config = tmp_path / 'mine.py'  # mmengine writes `_scope_` into what comes from 'mmdet::...'
    config.write_text(f"_base_ = {str(detector['config'])!r}\nvisualizer = dict("
                      "_delete_=True, _scope_='mmdet', type='DetLocalVisualizer', line_width=1)\n")
    mine = predict({**detector, 'config': config}, detector['images'], tmp_path / 'mine')
    plain = predict(detector, detector['images'], tmp_path / 'plain')
    assert mine['images'] == plain['images']


def shot(path: Path, pixels: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def test_pictures_of_every_kind(detector, tmp_path) -> None:
    plain = np.asarray(Image.open(detector['images'] / 'shape_1.jpg'))
    folder = tmp_path / 'of mine'
    shot(folder / 'b' / 'plain one.png', plain)
    shot(folder / 'b' / 'plain one.bmp', plain)
    shot(folder / 'alpha.png', np.dstack([plain, np.full(plain.shape[:2], 7, np.uint8)]))
    shot(folder / 'grey.png', plain[..., 0])
    cv2.imwrite(str(folder / 'deep.png'), plain[..., ::-1].astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying, to be turned by 90 degrees
    shot(folder / 'turned.png', np.ascontiguousarray(np.rot90(plain[:44])), exif=exif)
    shot(folder / 'upright.png', plain[:44])
    (folder / 'notes.txt').write_text('not a picture')
    (folder / '.hidden.png').write_text('not read')
    told = predict(detector, folder, folder / 'out', '--score-thr', '0')
    records = {record['file']: record for record in told['images']}
    assert list(records) == sorted(records) and 'out' not in str(list(records))
    wanted = records['b/plain one.png']['objects']
    for other in ('b/plain one.bmp', 'alpha.png', 'deep.png'):
        assert records[other]['objects'] == wanted
    assert records['grey.png']['objects'] != wanted
    assert records['turned.png']['objects'] == records['upright.png']['objects']
    assert (records['turned.png']['width'], records['turned.png']['height']) == (64, 44)
    pictures = {record['picture'] for record in told['images']}
    assert {'pictures/b/plain one.jpg', 'pictures/b/plain one_2.jpg'} < pictures
    on_disk = {str(path.relative_to(folder / 'out')) for path in (folder / 'out').rglob('*.*')}
    assert on_disk == pictures | {'predictions.json'}


def kinds_of_trouble(folder: Path, picture: bytes) -> tuple[dict[str, str], list[str]]:
    """Files that can't be predicted, with what is said of them, and names that can."""
    folder.mkdir()
    good = [os.fsdecode(b'\xff\xfe latin \xe9.png'), 'a' * 251 + '.png', 'a' * 251 + '.jpg',
            '\u732b' * 83 + '.png', 'new\nline.png', '=1+1.png', '[bold].png']
    for name in good:
        (folder / name).write_bytes(picture)
    os.mkfifo(folder / 'pipe.jpg')
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(os.path.relpath(folder / 'socket.png'))
    (folder / 'device.png').symlink_to('/dev/zero')
    (folder / 'nowhere.png').symlink_to(folder / 'none')
    (folder / 'loop.png').symlink_to('loop.png')
    (folder / 'empty.webp').write_bytes(b'')
    (folder / 'text.gif').write_text('no picture')
    (folder / 'cut.png').write_bytes(picture[:-200])
    odd = os.fsdecode(b'empty \xff\x1b[2J\nwarning: forged.jpg')
    (folder / odd).write_bytes(b'')
    (folder / 'folder.jpg').mkdir()
    (folder / 'folder.jpg' / 'in.png').write_bytes(picture)
    return {'pipe.jpg': 'it is a pipe, not a file', 'socket.png': 'it is a socket',
            'device.png': 'it is a device', 'nowhere.png': 'No such file',
            'loop.png': 'symbolic links', 'empty.webp': 'is empty',
            'text.gif': 'recognises no picture', 'cut.png': 'broken image',
            odd: 'is empty'}, [*good, 'folder.jpg/in.png']


def test_one_bad_file_ends_nothing(detector, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    Image.open(detector['images'] / 'shape_1.jpg').save(buffer, 'PNG')
    bad, good = kinds_of_trouble(tmp_path / 'odd', buffer.getvalue())
    signal.alarm(60)  # a pipe that is opened waits for ever
    with pytest.raises(SystemExit, match='error: 9 files could not be predicted') as stop:
        predict(detector, tmp_path / 'odd', tmp_path / 'out', '--score-thr', '0')
    signal.alarm(0)
    assert isinstance(stop.value.code, str)  # status 1
    told = json.loads((tmp_path / 'out' / 'predictions.json').read_text())
    reasons = {each['file']: each['reason'] for each in told['skipped']}
    assert reasons.keys() == bad.keys() and all(bad[name] in reasons[name] for name in bad)
    assert {record['file'] for record in told['images']} == set(good) and told['complete']
    for record in told['images']:
        assert record['objects'] == told['images'][0]['objects']
        Image.open(tmp_path / 'out' / record['picture']).load()
    assert len({record['picture'] for record in told['images']}) == len(good)
    printed = capfd.readouterr().out
    assert f"skipped {tmp_path / 'odd' / 'cut.png'}: " in printed
    assert '\x1b' not in printed and '\nwarning: forged' not in printed
    assert 'empty \\udcff\\x1b[2J\\nwarning: forged.jpg: ' in printed


def test_a_picture_that_the_model_can_not_take(detector, tmp_path, monkeypatch) -> None:
    """Alone in a batch or not, the others are predicted; and so where its numbers are not finite,
    or its result can't be written."""
    from mmengine.dataset import pseudo_collate

    from mmposenc.engine.apps import prediction

    def fails(packed):
        if any('shape_1' in each['data_samples'].img_path for each in packed):
            raise RuntimeError('sizes of tensors must match')
        return pseudo_collate(packed)

    def nan(scope, sample, *rest):
        predicted = picture_record(scope, sample, *rest)
        if 'shape_2' in sample.img_path:
            return predicted._replace(labels=np.zeros(1, int), names=['square'],
                                      scores=np.array([np.nan]), boxes=np.zeros((1, 4)))
        return predicted

    def unwritable(path, pixels):
        if path.stem == 'shape_3':
            raise OSError(errno.ENAMETOOLONG, 'File name too long', str(path))
        write_picture(path, pixels)
    picture_record = prediction.picture_record
    monkeypatch.setattr(prediction, 'pseudo_collate', fails)
    monkeypatch.setattr(prediction, 'picture_record', nan)
    monkeypatch.setattr(prediction, 'write_picture', unwritable)
    with pytest.raises(SystemExit, match='error: 3 files could not be predicted'):
        predict(detector, detector['images'], tmp_path / 'out', '--batch-size', '4')
    told = json.loads((tmp_path / 'out' / 'predictions.json').read_text())
    assert [each['file'] for each in told['images']] == ['shape_0.jpg'] and told['complete']
    for each, said in zip(told['skipped'], ('RuntimeError: sizes', 'numbers that are not finite',
                                            'File name too long'), strict=True):
        assert said in each['reason']

    def full(path, pixels):
        raise OSError(errno.ENOSPC, 'No space left on device', str(path))
    monkeypatch.setattr(prediction, 'write_picture', full)  # no further file can be written
    with pytest.raises(SystemExit, match='No space left on device'):
        predict(detector, detector['images'], tmp_path / 'full')
    assert not json.loads((tmp_path / 'full' / 'predictions.json').read_text())['complete']


def test_sources_and_results_that_can_not_be(detector, tmp_path, capfd) -> None:
    (tmp_path / 'old').mkdir()
    (tmp_path / 'old' / 'predictions.json').write_text('{}')
    (tmp_path / 'broken.png').write_bytes(b'\x89PNG nothing')
    one = detector['images'] / 'shape_0.jpg'
    (tmp_path / 'mine.txt').write_text('mine')
    (tmp_path / 'linked' / 'pictures').mkdir(parents=True)
    for name in ('predictions.json', 'pictures/shape_0.jpg'):
        (tmp_path / 'linked' / f'{name}.partial').symlink_to(tmp_path / 'mine.txt')
    assert predict(detector, one, tmp_path / 'linked')['complete']
    assert (tmp_path / 'mine.txt').read_text() == 'mine'  # links are not followed
    for source, out, words, message in [
            (one, 'old', [], 'holds predictions.json of another run'),
            (tmp_path / 'broken.png', 'out', ['--strict'], f'{tmp_path}/broken.png: '),
            (tmp_path / 'broken.png', 'two', [], 'broken.png: broken image')]:
        with pytest.raises(SystemExit) as stop:
            predict(detector, source, tmp_path / out, *words)
        assert message in str(stop.value.code)
    assert not json.loads((tmp_path / 'out' / 'predictions.json').read_text())['complete']
    assert predict(detector, one, tmp_path / 'old', '--overwrite')['complete']
    predict(detector, one, tmp_path / 'none', '--score-thr', '0', '--cfg-options',
            'model.test_cfg.score_thr=1')
    assert ('nothing was found that scores more than 0 (--score-thr); the model drops what scores '
            'less than model.test_cfg.score_thr=1') in capfd.readouterr().out


def test_pictures_that_the_python_call_takes(detector, tmp_path) -> None:
    model = mmposenc.load(detector['config'], detector['checkpoint'])
    path = shot(tmp_path / 'plain.png', np.asarray(Image.open(detector['images'] / 'shape_1.jpg')))
    pixels = np.asarray(Image.open(path))
    one = mmposenc.predict(model, path, score_thr=0.0)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = Image.open(shot(tmp_path / 'turned.png', np.rot90(pixels).copy(), exif=exif.tobytes()))
    alpha = np.dstack([pixels, np.full(pixels.shape[:2], 7, np.uint8)])
    others = mmposenc.predict(model, [str(path), pixels, alpha, turned], score_thr=0.0)
    for other in others:
        assert np.array_equal(other.picture, pixels)
        assert np.array_equal(other.boxes, one.boxes) and len(one) > 0
    grey = [mmposenc.predict(model, each, score_thr=0.0).boxes for each in (
        pixels[..., 0], pixels[..., :1], Image.fromarray(pixels[..., 0]))]
    assert all(np.array_equal(boxes, grey[0]) for boxes in grey)
    assert len(mmposenc.predict(detector['config'], tmp_path, detector['checkpoint'])) == 2


def test_masks_of_objects_are_those_of_its_boxes() -> None:
    from mmdet.structures import DetDataSample
    from mmengine.structures import InstanceData

    masks = torch.rand(3, 6, 8) > 0.5
    sample = DetDataSample(pred_instances=InstanceData(
        bboxes=torch.rand(3, 4), scores=torch.tensor([0.9, 0.2, 0.6]),
        labels=torch.tensor([1, 0, 0]), masks=masks))
    result = Result('one.jpg', np.zeros((6, 8, 3), np.uint8), sample, ['square', 'disc'],
                    SimpleNamespace(scope='mmdet', score_thr=0.3))
    assert np.array_equal(result.masks, masks[[0, 2]].numpy()) and result.masks.dtype == bool
    assert result.names == ['disc', 'square'] and result.boxes.shape == (2, 4)
    assert repr(result) == 'Result(one.jpg: disc 0.90, square 0.60)'


def test_what_the_python_call_refuses(detector, tmp_path) -> None:
    model = mmposenc.load(detector['config'], detector['checkpoint'])
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'broken.png').write_bytes(b'no picture')
    for source, told in [
            (tmp_path / 'none.jpg', 'no such file'), (tmp_path / 'empty', 'has no picture'),
            (tmp_path / 'broken.png', 'broken.png: broken image'), (None, r'pictures\[0\]: None'),
            (np.zeros((4, 4, 3)), r'pictures\[0\]: an array \(4, 4, 3\) of float64'),
            (np.zeros((0, 4), np.uint8), 'is no picture'),
            ([np.zeros((2, 4, 4, 3), np.uint8)], 'is no picture')]:
        with pytest.raises((ValueError, FileNotFoundError), match=told):
            mmposenc.predict(model, source)
    black = np.zeros((8, 8), np.uint8)
    for options in (dict(score_thr=1.5), dict(batch_size=0)):
        (key, value), = options.items()
        with pytest.raises(ValueError, match=f'{key}={value}'):
            mmposenc.predict(model, black, **options)
    with pytest.raises(ValueError, match='Linear has no cfg'):
        mmposenc.predict(torch.nn.Linear(1, 1), black)
    result = mmposenc.predict(model, black)
    with pytest.raises(ValueError, match='must end in one of .bmp'):
        result.save(tmp_path / 'drawn.txt')
    with pytest.raises(RuntimeError, match='no display'):
        result.show()


def test_models_that_load_finds(detector, tmp_path, caplog) -> None:
    work = tmp_path / 'work'
    work.mkdir()
    with pytest.raises(ValueError, match='is no folder of a training: it has 0 configs'):
        mmposenc.load(work)
    engine.load_config(str(detector['config'])).dump(work / 'tiny.py')
    (work / 'epoch_1.pth').write_bytes(detector['checkpoint'].read_bytes())
    model, named_one = mmposenc.load(work), mmposenc.load(
        engine.load_config(str(detector['config'])), detector['checkpoint'])
    torch.testing.assert_close([*model.state_dict().values()], [*named_one.state_dict().values()],
                               rtol=0, atol=0)
    assert model.dataset_meta['classes'] == ('square', 'disc') and not model.training
    with pytest.raises(FileNotFoundError, match='there is no checkpoint'):
        mmposenc.load(detector['config'], tmp_path / 'none.pth')
    with pytest.raises(ValueError, match=r"names weights.*load\(CONFIG, 'hf://me/tiny'\)"):
        mmposenc.load('hf://me/tiny')
    with pytest.raises(ValueError, match="device='nonsense'"):
        mmposenc.load(detector['config'], device='nonsense')


def test_a_stop_leaves_what_was_done_or_nothing(detector, tmp_path, monkeypatch) -> None:
    """SIGTERM ends the file; a kill, which nobody is told of, finds none under its name."""
    out, written = tmp_path / 'out', []
    predict(detector, detector['images'] / 'shape_0.jpg', out)

    def write_and_stop(path: Path, pixels: np.ndarray) -> None:
        assert not (out / 'predictions.json').exists()
        write_picture(path, pixels)
        written.append(path)
        if len(written) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
    monkeypatch.setattr('mmposenc.engine.apps.prediction.write_picture', write_and_stop)
    with pytest.raises(SystemExit) as stop:
        predict(detector, detector['images'], out, '--overwrite')
    assert stop.value.code == 143
    told = json.loads((out / 'predictions.json').read_text())
    assert not told['complete'] and 1 <= len(told['images']) <= 2 == len(written)
    for record in told['images']:
        Image.open(out / record['picture']).load()
    assert not list(out.rglob('*.partial'))
