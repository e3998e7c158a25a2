"""train.py, test.py and browse_dataset.py on a tiny segmentor and a tiny classifier."""
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from helpers.tiny_tasks import classifier_config, segmentor_config
from PIL import Image


def trained(root: Path, train, write, checkpoint: str, *options: str) -> dict[str, Path]:
    config = write(root)
    train(config, '--work-dir', root / 'work', *options)
    return dict(config=config, checkpoint=root / 'work' / checkpoint)


@pytest.fixture(scope='module')
def segmentor(tmp_path_factory, train) -> dict[str, Path]:
    root = tmp_path_factory.mktemp('segmentor')
    return trained(root, train, segmentor_config, 'iter_2.pth', '--amp')


@pytest.fixture(scope='module')
def classifier(tmp_path_factory, train) -> dict[str, Path]:
    root = tmp_path_factory.mktemp('classifier')
    return trained(root, train, classifier_config, 'epoch_1.pth')


def metrics(work_dir: Path) -> dict:
    return json.loads(next(work_dir.glob('*/*.json')).read_text())


@pytest.mark.parametrize('task, pictures, metric', [
    ('segmentor', [f'scene_{i}.jpg' for i in range(3)], 'mIoU'),
    ('classifier', ['bright/image_0.png', 'bright/image_2.png', 'dark/image_1.png',
                    'dark/image_3.png'], 'accuracy/top1')])
def test_a_test_with_everything(task, pictures, metric, request, test, tmp_path) -> None:
    model = request.getfixturevalue(task)
    test(model['config'], model['checkpoint'], '--work-dir', tmp_path / 'work',
         '--out', tmp_path / 'out.pkl', '--show-dir', tmp_path / 'show')
    results = pickle.loads((tmp_path / 'out.pkl').read_bytes())
    assert len(results) == len(pictures)
    for i, result in enumerate(results):
        if task == 'classifier':
            assert result['gt_label'].item() == i // 2
            assert float(result['pred_score'].sum()) == pytest.approx(1, abs=1e-5)
        else:
            assert 'seg_logits' not in result  # a float map for every class
            labels = result['pred_sem_seg']['data']
            assert labels.shape == (1, 32, 32) and set(labels.unique().tolist()) <= {0, 1}
    shown = tmp_path / 'show'
    assert sorted(str(path.relative_to(shown)) for path in shown.rglob('*.*')) == pictures
    assert 0 <= metrics(tmp_path / 'work')[metric] <= 100


def test_segmentation_label_maps(segmentor, test, tmp_path) -> None:
    test(segmentor['config'], segmentor['checkpoint'], '--work-dir', tmp_path / 'work',
         '--out', tmp_path / 'maps')
    maps = sorted((tmp_path / 'maps').iterdir())
    assert [path.name for path in maps] == [f'scene_{i}.png' for i in range(3)]
    assert set(np.unique(np.asarray(Image.open(maps[0])))) <= {0, 1}


def test_browse_segmentation(segmentor, browse, tmp_path) -> None:
    browse(segmentor['config'], '--output-dir', tmp_path)
    for i in range(3):
        pixels = np.asarray(Image.open(tmp_path / f'scene_{i}.png')).astype(int)
        assert pixels.shape == (32, 32, 3)
        # The square is drawn green, left or (flipped) right; the ground keeps its noise.
        square = pixels[10:22, 6:18] if i == 0 or pixels[16, 6, 1] > 100 else pixels[10:22, 14:26]
        assert (square[..., 1] - square[..., 0]).mean() > 50


def test_a_test_by_size(classifier, test, tmp_path, capsys) -> None:
    """At the trained size it is the test itself."""
    sized = tmp_path / 'sized.py'
    sized.write_text(f"""_base_ = {str(classifier['config'])!r}
test_dataloader = dict(dataset=dict(pipeline=[
    dict(type='mmposenc.LoadImageFromFile'), dict(type='Resize', scale=(32, 32)),
    dict(type='PackInputs')]))
""")
    test(sized, classifier['checkpoint'], '--work-dir', tmp_path / 'one')
    once = metrics(tmp_path / 'one')
    capsys.readouterr()
    test(sized, classifier['checkpoint'], '--work-dir', tmp_path / 'work', '--sizes', 32, 64)
    said = capsys.readouterr().out
    assert f'\nsize 32: accuracy/top1 {once["accuracy/top1"]:g}' in said
    assert '\nsize 64: accuracy/top1 ' in said
    with pytest.raises(SystemExit, match='--sizes: no step of the test pipeline has a size'):
        test(classifier['config'], classifier['checkpoint'], '--sizes', 64)


def test_a_config_without_a_visualizer(classifier, test, tmp_path) -> None:
    """As the small configs for digits: mmengine's own visualizer draws no predictions."""
    plain = tmp_path / 'plain.py'
    plain.write_text(f"""
_base_ = {str(classifier['config'])!r}
visualizer = None
test_dataloader = dict(dataset=dict(pipeline=[
    dict(type='mmposenc.LoadImageFromFile'), dict(type='Resize', scale=(32, 32)),
    dict(type='PackInputs')]))
""")
    for words, files in (([], 4), (['--sizes', 32, 64], 8)):
        show = tmp_path / f'show{files}'
        test(plain, classifier['checkpoint'], '--work-dir', tmp_path / f'work{files}',
             '--show-dir', show, *words)
        assert len([*show.rglob('*.png')]) == files
