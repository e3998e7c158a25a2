"""docs/predict.md: its commands on a photo, a folder and a video of tiny size, then its Python."""
from __future__ import annotations

import shutil

import cv2
import pytest
import torch
from running import commands, inside, run_page
from tinydata import detector_config, make_coco

from mmposenc import engine
from mmposenc.commands.predict import main
from mmposenc.engine.config.models import build_model

PAGE = 'docs/predict.md'


@pytest.mark.slow
def test_the_page(tmp_path) -> None:
    config = detector_config(tmp_path / 'CONFIG.py', make_coco(tmp_path / 'data'))
    torch.save(build_model(engine.load_config(str(config))).state_dict(),
               tmp_path / 'CHECKPOINT.pth')
    photos = tmp_path / 'photos'
    shutil.move(tmp_path / 'data' / 'images', photos)  # data of a config need not be there
    shutil.copy(photos / 'shape_0.jpg', tmp_path / 'photo.jpg')
    frame = cv2.imread(str(tmp_path / 'photo.jpg'))
    writer = cv2.VideoWriter(str(tmp_path / 'clip.mp4'), cv2.VideoWriter_fourcc(*'mp4v'), 5,
                             frame.shape[1::-1])
    for _ in range(2):
        writer.write(frame)
    writer.release()
    names = {'CONFIG': 'CONFIG.py', 'CHECKPOINT': 'CHECKPOINT.pth'}
    found = [words[2:] for words in commands('docs/predict.md') if words[1:2] == ['predict']]
    assert [words[0] for words in found] == ['photo.jpg', 'photos/', 'clip.mp4']
    with inside(tmp_path):
        for words in found:
            main([names.get(word, word) for word in words])
    assert len(list((tmp_path / 'predicted_photos' / 'pictures').iterdir())) == 4
    assert (tmp_path / 'predicted_clip' / 'pictures' / 'clip.mp4').is_file()
    left = run_page('docs/predict.md', tmp_path)
    assert left['result'].boxes.shape == (len(left['result']), 4)
    assert (tmp_path / 'drawn.jpg').is_file()
