"""Names of what is written for an image: none overwrites another's. Pictures of training images:
colours by the number of channels, boxes, and which are taken."""
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.scripts import load_tool, named
from helpers.tiny_data import Images, read_annotations, tiny_detector
from helpers.tiny_tasks import segmentor_config
from helpers.untrained_weights import saved
from mmengine.registry import VISUALIZERS, DefaultScope
from mmengine.structures import BaseDataElement, PixelData
from mmpretrain.structures import DataSample
from PIL import Image

from mmposenc.engine import browse, load_config
from mmposenc.engine.apps.hooks import VisualizationHook
from mmposenc.engine.apps.pictures import label_map, names_without_suffix
from mmposenc.engine.config.testing import VISUALIZERS_OF


@pytest.mark.parametrize('paths, root, expected', [
    (['data/val/a/1.jpg', 'data/val/b/1.jpg'], None, ['a/1', 'b/1']),
    (['val/a/1.jpg', 'val/a/2.jpg'], None, ['1', '2']),
    (['val/a/1.jpg', 'val/a/2.jpg'], 'val', ['a/1', 'a/2']),
    (['one/1.jpg', 'one/../two/x/1.jpg'], None, ['one/1', 'two/x/1']),
    (['s3://y/1.jpg', 's3://z/1.jpg'], None, ['y/1', 'z/1']), ([], None, []),
    (['a.jpg', 'a.png', 'a_2.jpg', 'a.b.jpg', 'a.jpg'], None, ['a', 'a_2', 'a_2_2', 'a.b', 'a_3'])])
def test_names_are_paths_below_a_folder_and_no_two_are_equal(paths, root, expected) -> None:
    assert names_without_suffix(paths, root) == expected


@pytest.mark.parametrize('labels, dtype', [([0.0, 1.0], np.uint8), ([0.0, 300.0], np.uint16)])
def test_labels_are_those_of_the_classes_in_as_few_bits_as_hold_them(labels, dtype) -> None:
    """Also of float labels, which a model of one channel gives, and where the data set counts from
    1 (reduce_zero_label)."""
    map_ = label_map(SimpleNamespace(reduce_zero_label=True, pred_sem_seg=SimpleNamespace(
        data=torch.tensor([[labels]]))))
    assert map_.tolist() == [labels] and map_.dtype == dtype


def test_label_maps_of_images_of_one_name(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = segmentor_config(tmp_path)
    for kind in ('images', 'labels'):
        for path in sorted((tmp_path / 'data' / kind).iterdir()):
            number = path.stem.rpartition('_')[2]
            (path.parent / number).mkdir()
            path.rename(path.parent / number / f'0001{path.suffix}')
    weights = str(saved(config, tmp_path / 'model.pth'))
    with pytest.raises(SystemExit, match='--out data/labels: results would replace files of test'):
        load_tool('test').main([str(config), weights, '--out', 'data/labels'])
    load_tool('test').main([str(config), weights, '--work-dir', 'work', '--show-dir', 'drawn',
                            '--out', 'maps', '--cfg-options', *named('maps_test')])
    load_tool('browse_dataset').main([str(config), '--output-dir', 'seen'])
    for folder, suffix in (('drawn', 'jpg'), ('maps', 'png'), ('seen', 'png')):
        assert sorted(str(path) for path in Path(folder).rglob('*.*')) == [
            f'{folder}/{number}/0001.{suffix}' for number in range(3)]
    labels = [np.asarray(Image.open(path)) for path in Path('maps').rglob('*.png')]
    assert {value for each in labels for value in np.unique(each)} <= {0, 1}


def drawn(out: Path, scope: str, dataset: Images, samples: list[BaseDataElement]) -> dict[str, Any]:
    """The first pixel of each picture that a test draws, by its name, and whether classes are
    named on it."""
    seen: dict[str, Any] = {}

    def add(image: Any, out_file: str, with_labels: bool | None) -> None:
        name = os.path.relpath(out_file.rpartition('.partial')[0].rpartition('.')[0], out)
        seen[name] = image[0, 0].tolist(), with_labels

    visualizer = SimpleNamespace(
        visualize_cls=lambda image, sample, *, out_file, **_: add(image, out_file, None),
        add_datasample=lambda name, image, sample, *, out_file, with_labels, **_: add(
            image, out_file, with_labels))
    hook = VisualizationHook(str(out), scope)
    runner = SimpleNamespace(test_dataloader=SimpleNamespace(batch_size=4, dataset=dataset),
                             visualizer=visualizer)
    hook.before_test_epoch(runner)
    hook.after_test_iter(runner, 2, None, samples)
    return seen


def test_drawn_images_of_one_name_in_two_folders(tmp_path) -> None:
    """Classes are not named on small pictures, which names would cover."""
    sizes = {'cat/a b.png': 64, 'dog/a b.png': 256, 'dog/a b.bmp': 256}
    paths = [str(tmp_path / name) for name in sizes]
    for path, side in zip(paths, sizes.values(), strict=True):
        Path(path).parent.mkdir(exist_ok=True)
        Image.new('RGB', (300, side), (0, 0, 255)).save(path)
    samples = [BaseDataElement(metainfo=dict(img_path=path)) for path in paths]
    for scope, labelled in (('mmpretrain', [None] * 3), ('mmseg', [False, True, True])):
        assert drawn(tmp_path / scope, scope, Images(paths), samples) == {
            name: ([0, 0, 255], with_labels) for name, with_labels in zip(
                ('cat/a b.png', 'dog/a b.png', 'dog/a b_2.jpg'), labelled, strict=True)}


@pytest.mark.parametrize('scope', ['mmdet', 'mmseg', 'mmpretrain'])
def test_other_processes_than_the_first_draw(tmp_path, monkeypatch, scope) -> None:
    Image.new('RGB', (64, 64)).save(tmp_path / 'a.png')
    dataset = Images([str(tmp_path / 'a.png')])
    dataset.metainfo = dict(classes=('cat', 'dog'), palette=[(255, 0, 0), (0, 255, 0)])
    data = dict(img_path=str(tmp_path / 'a.png'))
    sample = {'mmdet': BaseDataElement(metainfo=data), 'mmpretrain': DataSample(metainfo=data),
              'mmseg': BaseDataElement(metainfo=data, pred_sem_seg=PixelData(
                  data=torch.ones(1, 64, 64, dtype=int)))}[scope]
    with DefaultScope.overwrite_default_scope(scope):
        visualizer = VISUALIZERS.build(dict(type=VISUALIZERS_OF[scope], name=scope))
    monkeypatch.setattr('mmengine.dist.utils.get_rank', lambda group=None: 1)
    hook = VisualizationHook(str(tmp_path / 'out'), scope)
    runner = SimpleNamespace(test_dataloader=SimpleNamespace(batch_size=1, dataset=dataset),
                             visualizer=visualizer)
    hook.before_test_epoch(runner)
    hook.after_test_iter(runner, 0, None, [sample])
    assert (tmp_path / 'out/a.png').is_file()


def test_drawn_images_that_are_held_in_memory(tmp_path) -> None:
    """As RGB, or as grey."""
    dataset = Images([None] * 12)
    pixels = {5: np.array([[[255, 0, 0]]], np.uint8), 8: np.array([[7]], np.uint8)}
    dataset.get_data_info = lambda number: {'img': pixels.get(number)}
    samples = [BaseDataElement(), BaseDataElement(metainfo=dict(sample_idx=5))]
    assert drawn(tmp_path, 'mmpretrain', dataset, samples) == {
        '8.jpg': ([7, 7, 7], None), '5.jpg': ([255, 0, 0], None)}


@pytest.mark.parametrize('mode, color_type', [
    ('L', 'grayscale'), ('RGB', 'color'), ('RGBA', 'unchanged')])
def test_a_segmentor_of_pictures_with_one_to_four_channels(tmp_path, mode, color_type) -> None:
    cfg = load_config(str(segmentor_config(tmp_path)))
    cfg.train_dataloader.dataset.pipeline[0].color_type = color_type
    cfg.train_dataloader.dataset.img_suffix = '.png'
    for path in sorted((tmp_path / 'data' / 'images').iterdir()):
        Image.open(path).convert(mode).save(path.with_suffix('.png'))
        path.unlink()
    written = browse(cfg, tmp_path / 'seen')
    assert [path.name for path in written] == [f'scene_{number}.png' for number in range(3)]
    for path in written:
        drawn = np.asarray(Image.open(path)).astype(int)
        assert drawn.shape == (32, 32, 3)
        assert drawn[:, :2].max() < 90  # noise without a label: not inverted, not shifted
        # The square is drawn green, left or (flipped) right.
        squares = [drawn[10:22, left:left + 12] for left in (6, 14)]
        assert max((each[..., 1] - each[..., 0]).mean() for each in squares) > 50


def test_images_of_a_repeated_data_set_are_all_met(tmp_path) -> None:
    """A step through the repeats that is a multiple of the images would meet one of them only."""
    cfg = load_config(str(segmentor_config(tmp_path)))
    cfg.train_dataloader.dataset = dict(
        type='RepeatDataset', times=3, dataset=cfg.train_dataloader.dataset)
    written = browse(cfg, tmp_path / 'seen', number=3)
    assert [path.stem for path in written] == [f'scene_{number}' for number in range(3)]


def test_boxes_lie_on_the_objects(tmp_path) -> None:
    """In the validation phase nothing is flipped, so the boxes are the file's. Some images are
    spread over the data set."""
    cfg = load_config(str(tiny_detector(tmp_path)))
    written = browse(cfg, tmp_path / 'seen', phase='val')
    drawn = np.asarray(Image.open(written[1])).astype(int)
    image = np.asarray(Image.open(tmp_path / 'data' / 'images' / 'shape_1.jpg')).astype(int)
    changed = np.abs(drawn - image).sum(-1) > 60
    for ann in read_annotations(tmp_path / 'data')['annotations']:
        if ann['image_id'] == 2:
            x, y, w, h = ann['bbox']
            bottom = changed[y + h - 1:y + h + 2, x + 2:x + w - 2].any(0)
            assert bottom.mean() > 0.9
    written = browse(cfg, tmp_path / 'some', number=2)
    assert [path.name for path in written] == ['shape_0.png', 'shape_2.png']
