"""docs/convert-data.md: labels of labelme, through YOLO's, become a data set; masks get numbers."""
import json

import numpy as np
from helpers.page_blocks import run_page
from PIL import Image

from mmposenc.commands.prepare import main


def test_boxes_of_labelme_and_masks_of_other_values(tmp_path, monkeypatch) -> None:
    (tmp_path / 'labelled').mkdir()
    shapes = [dict(label='disc', shape_type='rectangle', points=[[40, 12], [24, 36]]),
              dict(label='square', shape_type='polygon', points=[[0, 0], [16, 3], [8, 24]]),
              dict(label='disc', shape_type='circle', points=[[32, 24], [36, 27]])]
    for name in ('a', 'b'):
        Image.new('RGB', (64, 48)).save(tmp_path / 'labelled' / f'{name}.jpg')
        (tmp_path / 'labelled' / f'{name}.json').write_text(json.dumps(
            dict(imageWidth=64, imageHeight=48, shapes=shapes)))
    (tmp_path / 'old_masks').mkdir()
    Image.fromarray(np.uint8([[0, 255, 7]])).save(tmp_path / 'old_masks' / 'a.png')
    run_page('docs/convert-data.md', tmp_path)
    assert np.asarray(Image.open(tmp_path / 'scenes/masks/a.png')).tolist() == [[0, 1, 255]]
    monkeypatch.chdir(tmp_path)
    main('--from yolo labelled --classes square,disc --out mine'.split())
    for part in ('train', 'val'):
        found = json.loads((tmp_path / 'mine' / f'{part}.json').read_text())['annotations']
        assert [(each['category_id'], each['bbox']) for each in found] == [
            (2, [24, 12, 16, 24]), (1, [0, 0, 16, 24]), (2, [27, 19, 10, 10])]
