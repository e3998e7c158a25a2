"""mmposenc browse on a detector."""
import numpy as np
from helpers.tiny_data import read_annotations
from PIL import Image

from mmposenc.commands import browse


def test_boxes_lie_on_the_objects(detector, tmp_path) -> None:
    """In the validation phase nothing is flipped, so the boxes are the file's."""
    browse.main([str(detector['config']), '--output-dir', str(tmp_path), '--phase', 'val'])
    drawn = np.asarray(Image.open(tmp_path / 'shape_1.png')).astype(int)
    image = np.asarray(Image.open(detector['data'] / 'images' / 'shape_1.jpg')).astype(int)
    changed = np.abs(drawn - image).sum(-1) > 60
    for ann in read_annotations(detector['data'])['annotations']:
        if ann['image_id'] == 2:
            x, y, w, h = ann['bbox']
            bottom = changed[y + h - 1:y + h + 2, x + 2:x + w - 2].any(0)
            assert bottom.mean() > 0.9


def test_some_are_spread_over_the_data_set(detector, tmp_path) -> None:
    browse.main([str(detector['config']), '--output-dir', str(tmp_path), '--number', '2',
                 '--cfg-options', 'visualizer=None'])
    assert sorted(path.name for path in tmp_path.iterdir()) == ['shape_0.png', 'shape_2.png']
