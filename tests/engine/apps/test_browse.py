"""Pictures of what a network gets: colours by the number of channels."""
from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.tiny_tasks import segmentor_config
from PIL import Image

from mmposenc.engine import browse, load_config
from mmposenc.engine.apps.browse import rgb_bytes_of_input

#: One pixel of five values.
VALUES = [10.0, 20.0, 30.0, 40.0, 50.0]


@pytest.mark.parametrize('channels, to_rgb, pixel', [
    (1, False, [10, 10, 10]), (2, False, [10, 10, 10]), (3, False, [30, 20, 10]),
    (3, True, [10, 20, 30]), (4, False, [30, 20, 10]), (4, True, [10, 20, 30]),
    (5, False, [30, 20, 10])])
def test_colours(channels, to_rgb, pixel) -> None:
    values = torch.tensor(VALUES[:channels]).view(-1, 1, 1)
    mean, std = torch.full((channels, 1, 1), 7.0), torch.full((channels, 1, 1), 2.0)
    preprocessor = SimpleNamespace(_enable_normalize=True, mean=mean, std=std,
                                   _channel_conversion=to_rgb)
    assert rgb_bytes_of_input((values - mean) / std, preprocessor).tolist() == [[pixel]]


def test_a_segmentor_of_grey_pictures(tmp_path) -> None:
    """And of four channels, whose config says no mean: mmseg's preprocessor takes one or three."""
    for channels, mode in ((1, 'L'), (4, 'RGBA')):
        root = tmp_path / mode
        root.mkdir()
        cfg = load_config(str(segmentor_config(root)))
        cfg.train_dataloader.dataset.pipeline[0].color_type = (
            'grayscale' if channels == 1 else 'unchanged')
        cfg.train_dataloader.dataset.img_suffix = '.png'
        cfg.model.backbone.in_channels = channels
        statistics = dict(mean=[30.0], std=[50.0]) if channels == 1 else {}
        cfg.model.data_preprocessor = dict(type='SegDataPreProcessor', size=(32, 32),
                                           bgr_to_rgb=False, **statistics)
        for path in sorted((root / 'data' / 'images').iterdir()):
            Image.open(path).convert(mode).save(path.with_suffix('.png'))
            path.unlink()
        written = browse(cfg, root / 'seen')
        assert len(written) == 3
        for path in written:
            drawn = np.asarray(Image.open(path)).astype(int)
            assert drawn.shape == (32, 32, 3)
            assert drawn[:, :2].max() < 90  # noise without a label: not inverted, not shifted
