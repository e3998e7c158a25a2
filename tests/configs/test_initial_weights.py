"""Published weights of configs: fetched by training alone, and where a file of them goes."""
import urllib.error
from typing import Any

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope

import mmposenc  # noqa: F401
from mmposenc.checkpoint import mmengine_loading
from mmposenc.engine import load_config

TWINS = ('https://github.com/huggingface/pytorch-image-models/releases/download/v0.1-vt3p-weights/')
FILE = 'twins_pcpvt_small-e70e7e7a.pth'
FLAGSHIP = 'mmposenc::detection/mask_rcnn/mask-rcnn_pvt-s-peg-gap_fpn_1x_coco.py'


def test_building_a_model_downloads_nothing(monkeypatch) -> None:
    """Only init_weights does, which training alone calls."""
    monkeypatch.setattr(torch.hub, 'download_url_to_file',
                        lambda *args: pytest.fail(f'{args} would be downloaded'))
    init_default_scope('mmdet')
    MODELS.build(load_config(FLAGSHIP).model)


def test_without_a_network_the_message_says_where_the_file_goes(monkeypatch, tmp_path) -> None:
    def no_network(*args: Any) -> None:
        raise urllib.error.URLError('no route to host')
    monkeypatch.setattr(torch.hub, 'download_url_to_file', no_network)
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path))
    place = tmp_path / 'checkpoints' / FILE
    with pytest.raises(OSError, match=f'{TWINS}.* could not be downloaded: .*no route to host.*'
                                      f'Put the file at {place}, or name one of yours'):
        mmengine_loading.load_url(TWINS + FILE)
    torch.save({'a': torch.ones(1)}, place)
    assert mmengine_loading.load_url(TWINS + FILE)['a'] == 1
