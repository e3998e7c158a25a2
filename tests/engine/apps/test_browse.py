"""Pictures of training images: colours by the number of channels, boxes, and which are taken."""
from __future__ import annotations

import numpy as np
import pytest
from helpers.tiny_data import read_annotations, tiny_detector
from helpers.tiny_tasks import segmentor_config
from PIL import Image

from mmposenc.engine import browse, load_config


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
