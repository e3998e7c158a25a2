"""The configs of the quickstart, made narrow, trained and tested; the command is in tests/commands.
"""
import json
from pathlib import Path

import pytest
import torch
from helpers.scripts import NARROW, load_tool, named
from helpers.tiny_data import make_nuclei, make_trees
from PIL import Image
from safetensors.torch import load_file, save_file

import mmposenc  # noqa: F401
from mmposenc.backbones import ViT

pytest.importorskip('mmdet')
pytest.importorskip('mmseg')
DETECTION, SEGMENTATION = 'mmposenc::detection/small/', 'mmposenc::segmentation/small/'
TREES, BLOCK = (f'{DETECTION}retinanet_pvt-micro-peg_fpn_1xb4-12e_{name}.py'
                for name in ('trees', 'trees-block'))
NUCLEI, FROZEN_NUCLEI = (f'{SEGMENTATION}{name}.py' for name in (
    'fpn_pvt-micro-peg_1xb4-10e_nuclei-128x128', 'linear_vit-s14_1xb4-10e_nuclei-448x448'))


def run(tool: str, name: str, *words: str, options: list[str]) -> None:
    """A tool in ``work/NAME``."""
    load_tool(tool).main([*words, '--work-dir', f'work/{name}', '--cfg-options', *options,
                          *named(f'quickstart_{name}')])


def trained(config: str, *options: str) -> str:
    """The checkpoint of an epoch of a config that keeps a moving average."""
    run('train', 'train', config, options=[*NARROW, 'train_cfg.max_epochs=1',
                                           'train_cfg.val_interval=1', *options])
    checkpoint = f"work/train/{Path(Path('work/train/last_checkpoint').read_text()).name}"
    assert {'state_dict', 'ema_state_dict'} <= set(torch.load(checkpoint, weights_only=False))
    return checkpoint


def test_trees(tmp_path, monkeypatch):
    make_trees(tmp_path / 'data' / 'trees', ('train', 'val_block', 'val'))
    monkeypatch.chdir(tmp_path)
    checkpoint = trained(TREES, 'train_dataloader.dataset.times=1')
    for config, name in ((BLOCK, 'block'), (TREES, 'plot')):
        run('test', name, config, checkpoint, '--show-dir', f'pictures/{name}',
            options=['model.test_cfg.score_thr=0.0', *NARROW])
    assert len(list(Path('pictures').rglob('*.*'))) == 8
    for name in ('block', 'plot'):
        found = json.loads(next(Path(f'work/{name}').glob('*/*.json')).read_text())
        assert 0 <= found['coco/bbox_mAP'] <= found['coco/bbox_mAP_50'] <= 1


def test_nuclei(tmp_path, monkeypatch):
    """With sliding windows, too."""
    make_nuclei(tmp_path / 'data' / 'nuclei')
    monkeypatch.chdir(tmp_path)
    checkpoint = trained(NUCLEI, 'train_dataloader.dataset.times=2')
    run('test', 'strip', NUCLEI, checkpoint, '--show-dir', 'pictures', options=NARROW)
    log = next(Path('work/strip').glob('*/*.log')).read_text()
    assert 'per class results' in log and '| background |' in log and '|  nucleus   |' in log
    assert sorted(path.name for path in Path('pictures').iterdir()) == ['0.png', '1.png']
    with Image.open('pictures/0.png') as picture:  # ground truth and prediction side by side
        assert picture.size == (2 * 64, 64)
    run('test', 'slide', NUCLEI, checkpoint, options=[
        *NARROW, 'model.test_cfg.mode=slide', 'model.test_cfg.crop_size=48,48',
        'model.test_cfg.stride=16,16', 'test_dataloader.batch_size=2'])
    for name in ('strip', 'slide'):
        found = json.loads(next(Path(f'work/{name}').glob('*/*.json')).read_text())
        assert 0 < found['mIoU'] <= 100


@pytest.mark.slow
def test_a_frozen_backbone(tmp_path, monkeypatch):
    """Its features are kept, and its weights are those of a file."""
    make_nuclei(tmp_path / 'data' / 'nuclei', side=32)
    monkeypatch.chdir(tmp_path)
    narrow = ['model.backbone.embed_dims=8', 'model.backbone.num_heads=1',
              'model.neck.in_channels=8,8,8,8', 'model.decode_head.in_channels=32',
              'model.decode_head.channels=32', *(each for each in NARROW if 'workers' in each)]
    torch.manual_seed(0)
    state = ViT('dinov2-small', embed_dims=8, num_heads=1).state_dict()
    save_file({name: torch.randn_like(value) / 4 for name, value in state.items()},
              'mine.safetensors')
    run('train', 'train', FROZEN_NUCLEI, options=[
        *narrow, 'train_cfg.max_epochs=2', 'train_cfg.val_interval=2', 'custom_hooks.1.views=2',
        'model.backbone.init_cfg.checkpoint=mine.safetensors'])
    log = next(Path('work/train').glob('*/*.log')).read_text()
    assert '24 read, 8 written, 0 not stored' in log
    weights = torch.load('work/train/epoch_2.pth', weights_only=False)['state_dict']
    kept = weights['backbone.blocks.3.mlp.fc1.weight']
    assert torch.equal(kept, load_file('mine.safetensors')['blocks.3.mlp.fc1.weight'])
    run('test', 'test', FROZEN_NUCLEI, 'work/train/epoch_2.pth', options=narrow)
