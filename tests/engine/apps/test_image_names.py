"""Names of what is written for an image: none overwrites another's."""
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from helpers.scripts import load_tool, named
from helpers.tiny_data import Images
from helpers.tiny_tasks import segmentor_config
from PIL import Image

from mmposenc.engine.apps.hooks import LabelMapsHook
from mmposenc.engine.apps.image_names import paths_and_names


def names(*paths: str, prefix='data/val') -> list[str]:
    return [name for _, name in paths_and_names(Images(list(paths), prefix))]


def test_paths_below_the_folder_of_the_data_set() -> None:
    assert names('data/val/a/1.jpg', 'data/val/b/1.jpg', 'data/val/1.jpg') == ['a/1', 'b/1', '1']
    # mmdet's and mmseg's way to write it, and a data set of absolute paths.
    assert names('data/val/a/1.jpg', prefix=dict(img='data/val/')) == ['a/1']
    assert names('data/val/a/1.jpg', prefix=dict(img_path='data/val')) == ['a/1']
    assert names('/x/a/1.jpg', '/x/b/1.jpg', prefix='') == ['a/1', 'b/1']


def test_suffixes_do_not_tell_names_apart() -> None:
    assert names(*(f'data/val/{name}' for name in (
        'a.jpg', 'a.png', 'a_2.jpg', 'a.b.jpg'))) == ['a', 'a_2', 'a_2_2', 'a.b']


def test_no_name_leaves_the_folder_of_results() -> None:
    assert names('data/val/1.jpg', 'data/val/../other/1.jpg') == ['val/1', 'other/1']
    assert all('..' not in name for name in names('/x/1.jpg', 'data/val/1.jpg', 's3://y/1.jpg'))


def test_several_data_sets_and_images_in_no_file() -> None:
    both = SimpleNamespace(datasets=[Images([], 'data/one'), Images([], 'data/two')])
    paths = ['data/one/1.jpg', 'data/two/1.jpg', 'data/two/x/1.jpg']
    both.get_data_info = lambda index: {'img_path': paths[index]}
    assert [name for _, name in paths_and_names(both, range(3))] == ['one/1', 'two/1', 'two/x/1']
    assert names(None, None) == ['0', '1']


def test_an_image_that_comes_again() -> None:
    again = Images(['data/val/1.jpg'] * 2)
    assert [name for _, name in paths_and_names(again)] == ['1', '1']
    assert [name for _, name in paths_and_names(again, [0, 1])] == ['1', '1_2']


def test_a_very_long_name_is_cut() -> None:
    found = names(f'data/val/{"ä" * 200}.jpg', f'data/val/{"ä" * 199}b.jpg')
    assert len(set(found)) == 2 and all(len(name.encode()) < 240 for name in found)


def test_label_maps(tmp_path) -> None:
    """Also of float labels, which a model of one channel gives. Labels are those that predict
    writes, also where the data set counts from 1 (reduce_zero_label)."""
    hook = LabelMapsHook(str(tmp_path))
    paths = ['data/val/a/1.jpg', 'data/val/b/1.jpg']
    runner = SimpleNamespace(test_dataloader=SimpleNamespace(dataset=Images(paths)))
    hook.before_test_epoch(runner)
    map_ = SimpleNamespace(data=torch.tensor([[[0.0, 1.0]]]))
    hook.after_test_iter(runner, 0, None, [SimpleNamespace(
        img_path=path, pred_sem_seg=map_, reduce_zero_label=True) for path in paths])
    for name in ('a/1.png', 'b/1.png'):
        pixels = np.asarray(Image.open(tmp_path / name))
        assert pixels.tolist() == [[0, 1]] and pixels.dtype == np.uint8


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
