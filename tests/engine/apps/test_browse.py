"""Pictures of training images: colours by the number of channels."""
from __future__ import annotations

import numpy as np
from helpers.tiny_tasks import segmentor_config
from PIL import Image

from mmposenc.engine import browse, load_config


def test_a_segmentor_of_grey_pictures(tmp_path) -> None:
    """And of four channels."""
    for channels, mode in ((1, 'L'), (4, 'RGBA')):
        root = tmp_path / mode
        root.mkdir()
        cfg = load_config(str(segmentor_config(root)))
        cfg.train_dataloader.dataset.pipeline[0].color_type = (
            'grayscale' if channels == 1 else 'unchanged')
        cfg.train_dataloader.dataset.img_suffix = '.png'
        for path in sorted((root / 'data' / 'images').iterdir()):
            Image.open(path).convert(mode).save(path.with_suffix('.png'))
            path.unlink()
        written = browse(cfg, root / 'seen')
        assert len(written) == 3
        for path in written:
            drawn = np.asarray(Image.open(path)).astype(int)
            assert drawn.shape == (32, 32, 3)
            assert drawn[:, :2].max() < 90  # noise without a label: not inverted, not shifted


def test_images_of_a_repeated_data_set_are_all_met(tmp_path) -> None:
    """A step through the repeats that is a multiple of the images would meet one of them only."""
    cfg = load_config(str(segmentor_config(tmp_path)))
    images = sorted(path.stem for path in (tmp_path / 'data' / 'images').iterdir())
    cfg.train_dataloader.dataset = dict(
        type='RepeatDataset', times=len(images), dataset=cfg.train_dataloader.dataset)
    written = browse(cfg, tmp_path / 'seen', number=len(images))
    assert [path.stem for path in written] == images
