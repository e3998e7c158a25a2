"""docs/predict.md: its first command with a tiny model, then its Python. Folders:
tests/commands/test_predict.py."""
import shutil

import pytest
from helpers.page_blocks import commands, run_page
from helpers.tiny_data import detector_config, make_coco
from helpers.untrained_weights import saved

from mmposenc.commands import main


@pytest.mark.slow
def test_the_page(tmp_path, monkeypatch) -> None:
    config = detector_config(tmp_path / 'CONFIG.py', make_coco(tmp_path / 'data'))
    saved(config, tmp_path / 'CHECKPOINT.pth')
    shutil.move(tmp_path / 'data' / 'images' / 'shape_0.jpg', tmp_path / 'photo.jpg')
    shutil.rmtree(tmp_path / 'data')  # data of a config need not be there
    names = {'CONFIG': 'CONFIG.py', 'CHECKPOINT': 'CHECKPOINT.pth'}
    first = next(words[1:] for words in commands('docs/predict.md') if 'photo.jpg' in words)
    monkeypatch.chdir(tmp_path)
    main([names.get(word, word) for word in first])
    left = run_page('docs/predict.md', tmp_path)
    assert left['result'].boxes.shape == (len(left['result'].names), 4)
    assert (tmp_path / 'drawn.jpg').is_file()
