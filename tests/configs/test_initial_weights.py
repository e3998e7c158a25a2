"""Addresses of published weights in configs: documented, fitting, and fetched by training alone."""
from __future__ import annotations

import re
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope

import mmposenc  # noqa: F401
from mmposenc.backbones import PVT, checkpoints
from mmposenc.checkpoint import mmengine_loading
from mmposenc.engine import load_config

ROOT = Path(__file__).resolve().parents[2]
TWINS = ('https://github.com/huggingface/pytorch-image-models/releases/download/v0.1-vt3p-weights/')
FILES = {'s': 'twins_pcpvt_small-e70e7e7a.pth', 'm': 'twins_pcpvt_base-e5ecb09b.pth'}
FLAGSHIP = ('detection/mask_rcnn/mask-rcnn_pvt-s-peg-gap_fpn_1x_coco.py',
            'detection/pvt/retinanet_pvt-m-peg-gap_fpn_1x_coco.py',
            'segmentation/upernet/upernet_pvt-m-peg-gap_8xb2-160k_ade20k-512x512.py')


@pytest.mark.parametrize('name', FLAGSHIP)
def test_flagship_rows_start_from_the_twins_release(name: str) -> None:
    size = re.search(r'pvt-([sm])-peg-gap', name)[1]
    assert load_config(f'mmposenc::{name}').model.backbone.init_cfg == dict(
        type='Pretrained', checkpoint=TWINS + FILES[size])


def as_twins(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A file of the Twins release out of this project's weights."""
    names = ((r'stages\.(\d)\.patch_embed\.projection\.', r'patch_embeds.\1.proj.'),
             (r'stages\.(\d)\.patch_embed\.norm\.', r'patch_embeds.\1.norm.'),
             (r'stages\.(\d)\.blocks\.', r'blocks.\1.'),
             (r'stages\.(\d)\.pos_encodings\.at\.after0\.0\.proj\.', r'pos_block.\1.proj.'))
    renamed = {}
    for name, value in state.items():
        for pattern, target in names:
            name = re.sub(rf'^{pattern}', target, name)
        renamed[name] = value
    return {**renamed, 'head.weight': torch.zeros(1000, 512), 'head.bias': torch.zeros(1000)}


@pytest.mark.parametrize('size, arch', [('s', 'small'), ('m', 'medium')])
def test_a_file_of_that_name_fits_as_a_whole(size, arch, monkeypatch) -> None:
    torch.manual_seed(0)
    published = PVT(arch=arch, pool='gap', pos_encoding=dict(type='PEG')).state_dict()
    monkeypatch.setattr(checkpoints, 'read_checkpoint', lambda address: (
        as_twins(published) if address == TWINS + FILES[size] else None))
    init_default_scope('mmdet')
    backbone = MODELS.build(load_config(
        f'mmposenc::detection/pvt/retinanet_pvt-{size}-peg-gap_fpn_1x_coco.py').model.backbone)
    backbone.init_weights()
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, published[name]), name


def test_building_a_model_downloads_nothing(monkeypatch) -> None:
    """Only init_weights does, which training alone calls."""
    monkeypatch.setattr(torch.hub, 'download_url_to_file',
                        lambda *args: pytest.fail(f'{args} would be downloaded'))
    init_default_scope('mmdet')
    MODELS.build(load_config(f'mmposenc::{FLAGSHIP[0]}').model)


def test_without_a_network_the_message_says_where_the_file_goes(monkeypatch, tmp_path) -> None:
    def no_network(*args: Any) -> None:
        raise urllib.error.URLError('no route to host')
    monkeypatch.setattr(torch.hub, 'download_url_to_file', no_network)
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path))
    place = tmp_path / 'checkpoints' / FILES['s']
    with pytest.raises(OSError, match=f'{TWINS}.* could not be downloaded: .*no route to host.*'
                                      f'Put the file at {place}, or name one of yours'):
        mmengine_loading.load_url(TWINS + FILES['s'])
    torch.save({'a': torch.ones(1)}, place)
    assert mmengine_loading.load_url(TWINS + FILES['s'])['a'] == 1
