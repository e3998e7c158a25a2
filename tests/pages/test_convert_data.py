"""docs/convert-data.md: labels of labelme, through YOLO's, become a data set."""
import json

from helpers.page_blocks import run_page
from PIL import Image

from mmposenc.commands.prepare import main


def test_boxes_of_labelme(tmp_path, monkeypatch) -> None:
    (tmp_path / 'labelled').mkdir()
    shapes = [dict(label='disc', shape_type='rectangle', points=[[40, 12], [24, 36]]),
              dict(label='square', shape_type='polygon', points=[[0, 0], [16, 3], [8, 24]])]
    for name in ('a', 'b'):
        Image.new('RGB', (64, 48)).save(tmp_path / 'labelled' / f'{name}.jpg')
        (tmp_path / 'labelled' / f'{name}.json').write_text(json.dumps(
            dict(imageWidth=64, imageHeight=48, shapes=shapes)))
    run_page('docs/convert-data.md', tmp_path)
    monkeypatch.chdir(tmp_path)
    main('--from yolo labelled --classes square,disc --out mine'.split())
    for part in ('train', 'val'):
        found = json.loads((tmp_path / 'mine' / f'{part}.json').read_text())['annotations']
        assert [(each['category_id'], each['bbox']) for each in found] == [
            (2, [24, 12, 16, 24]), (1, [0, 0, 16, 24])]
