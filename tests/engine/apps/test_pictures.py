"""Names of what is written for an image: none overwrites another's."""
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from helpers.scripts import load_tool, named
from helpers.tiny_data import Images
from helpers.tiny_tasks import segmentor_config
from mmpretrain.structures import DataSample
from PIL import Image

from mmposenc.engine.apps.hooks import LabelMapsHook, VisualizationHook
from mmposenc.engine.apps.pictures import names_without_suffix as names


def test_names_are_paths_below_a_folder() -> None:
    assert names(['data/val/a/1.jpg', 'data/val/b/1.jpg', '/x/1.jpg'])[2] == 'x/1'
    assert names(['val/a/1.jpg', 'val/a/2.jpg']) == ['1', '2']
    assert names(['val/a/1.jpg', 'val/a/2.jpg'], 'val') == ['a/1', 'a/2']
    assert names(['one/1.jpg', 'one/../two/x/1.jpg']) == ['one/1', 'two/x/1']
    assert names(['s3://y/1.jpg', 's3://z/1.jpg']) == ['y/1', 'z/1']
    assert names([]) == []


def test_suffixes_do_not_tell_names_apart() -> None:
    assert names(['a.jpg', 'a.png', 'a_2.jpg', 'a.b.jpg', 'a.jpg']) == [
        'a', 'a_2', 'a_2_2', 'a.b', 'a_3']


def test_label_maps(tmp_path) -> None:
    """Also of float labels, which a model of one channel gives. Labels are those that predict
    writes, also where the data set counts from 1 (reduce_zero_label)."""
    hook = LabelMapsHook(str(tmp_path))
    paths = ['data/val/a/1.jpg', 'data/val/b/1.jpg']
    runner = SimpleNamespace(test_dataloader=SimpleNamespace(dataset=Images([*paths, *paths])))
    hook.before_test_epoch(runner)
    map_ = SimpleNamespace(data=torch.tensor([[[0.0, 1.0]]]))
    hook.after_test_iter(runner, 0, None, [SimpleNamespace(
        img_path=path, pred_sem_seg=map_, reduce_zero_label=True) for path in paths])
    for name in ('a/1.png', 'b/1.png'):
        pixels = np.asarray(Image.open(tmp_path / name))
        assert pixels.tolist() == [[0, 1]] and pixels.dtype == np.uint8
    map_.data[0, 0, 1] = 300
    hook.after_test_iter(runner, 0, None, [SimpleNamespace(img_path=paths[0], pred_sem_seg=map_)])
    assert np.asarray(Image.open(tmp_path / 'a/1.png')).tolist() == [[0, 300]]


def test_label_maps_of_images_of_one_name(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = segmentor_config(tmp_path)
    for kind in ('images', 'labels'):
        for path in sorted((tmp_path / 'data' / kind).iterdir()):
            number = path.stem.rpartition('_')[2]
            (path.parent / number).mkdir()
            path.rename(path.parent / number / f'0001{path.suffix}')
    load_tool('train').main([str(config), '--work-dir', 'work', '--cfg-options', *named('maps')])
    load_tool('test').main([str(config), 'work/iter_2.pth', '--work-dir', 'work', '--show-dir',
                            'drawn', '--out', 'maps', '--cfg-options', *named('maps_test')])
    load_tool('browse_dataset').main([str(config), '--output-dir', 'seen'])
    for folder, suffix in (('drawn', 'jpg'), ('maps', 'png'), ('seen', 'png')):
        assert sorted(str(path) for path in Path(folder).rglob('*.*')) == [
            f'{folder}/{number}/0001.{suffix}' for number in range(3)]


def drawn(dataset: Images, samples: list[DataSample]) -> dict[str, Any]:
    """The first pixel of each picture that a classifier's test draws, by its name."""
    seen: dict[str, Any] = {}

    def visualize_cls(image: Any, sample: Any, *, out_file: str, **_: Any) -> None:
        seen[out_file] = image[0, 0].tolist()

    hook = VisualizationHook('out', 'mmpretrain')
    runner = SimpleNamespace(test_dataloader=SimpleNamespace(batch_size=4, dataset=dataset),
                             visualizer=SimpleNamespace(visualize_cls=visualize_cls))
    hook.before_test_epoch(runner)
    hook.after_test_iter(runner, 2, None, samples)
    return seen


def test_drawn_images_of_one_name_in_two_folders(tmp_path) -> None:
    paths = [str(tmp_path / name) for name in ('cat/a b.png', 'dog/a b.png', 'dog/a b.bmp')]
    for path in paths:
        Path(path).parent.mkdir(exist_ok=True)
        Image.new('RGB', (2, 2), (0, 0, 255)).save(path)
    assert drawn(Images(paths), [DataSample(metainfo=dict(img_path=path)) for path in paths]) == {
        'out/cat/a b.png': [0, 0, 255], 'out/dog/a b.png': [0, 0, 255],
        'out/dog/a b_2.jpg': [0, 0, 255]}


def test_drawn_images_that_are_held_in_memory() -> None:
    """As RGB, or as grey."""
    dataset = Images([None] * 12)
    pixels = {5: np.array([[[255, 0, 0]]], np.uint8), 8: np.array([[7]], np.uint8)}
    dataset.get_data_info = lambda number: {'img': pixels.get(number)}
    assert drawn(dataset, [DataSample(), DataSample(metainfo=dict(sample_idx=5))]) == {
        'out/8.jpg': [7, 7, 7], 'out/5.jpg': [255, 0, 0]}
