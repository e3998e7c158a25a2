"""The quickstart's configs of nuclei, made narrow, trained and tested; those of trees are in
tests/pages/test_tutorial.py, the command in tests/commands."""
import json
from pathlib import Path

import pytest
import torch
from helpers.scripts import NARROW, load_tool, named
from helpers.tiny_tasks import picture
from PIL import Image
from safetensors.torch import load_file, save_file

import mmposenc  # noqa: F401
from mmposenc.backbones import ViT

pytest.importorskip('mmseg')
NUCLEI, FROZEN_NUCLEI = (f'mmposenc::segmentation/small/{name}.py' for name in (
    'fpn_pvt-micro-peg_1xb4-10e_nuclei-128x128', 'linear_vit-s14_1xb4-10e_nuclei-448x448'))


def run(tool: str, name: str, *words: str, options: list[str]) -> None:
    """A tool in ``work/NAME``."""
    load_tool(tool).main([*words, '--work-dir', f'work/{name}', '--cfg-options', *options,
                          *named(f'quickstart_{name}')])


def write_nuclei(folder: Path) -> None:
    """Squares of 16 pixels in the layout of ``mmposenc prepare nuclei``."""
    for split, count in (('training', 4), ('validation', 2)):
        (folder / 'annotations' / split).mkdir(parents=True)
        for i in range(count):
            labels = picture(folder / 'images' / split / f'{i}.png', i)
            Image.fromarray(labels).save(folder / 'annotations' / split / f'{i}.png')


def test_nuclei(tmp_path, monkeypatch):
    """With views and sliding windows."""
    write_nuclei(tmp_path / 'data' / 'nuclei')
    monkeypatch.chdir(tmp_path)
    run('train', 'train', NUCLEI, options=[
        *NARROW, 'train_cfg.max_epochs=1', 'train_cfg.val_interval=1',
        'train_dataloader.dataset.times=2'])
    checkpoint = 'work/train/epoch_1.pth'
    # The config keeps an average of the weights.
    assert {'state_dict', 'ema_state_dict'} <= set(torch.load(checkpoint, weights_only=False))
    run('test', 'strip', NUCLEI, checkpoint, '--show-dir', 'pictures', options=NARROW)
    log = next(Path('work/strip').glob('*/*.log')).read_text()
    assert 'per class results' in log and '| background |' in log and '|  nucleus   |' in log
    assert sorted(path.name for path in Path('pictures').iterdir()) == ['0.png', '1.png']
    with Image.open('pictures/0.png') as shown:  # ground truth and prediction side by side
        assert shown.size == (2 * 32, 32)
    run('test', 'tta', NUCLEI, checkpoint, '--tta', options=NARROW)
    run('test', 'slide', NUCLEI, checkpoint, options=[
        *NARROW, 'model.test_cfg.mode=slide', 'model.test_cfg.crop_size=24,24',
        'model.test_cfg.stride=8,8', 'test_dataloader.batch_size=2'])
    for name in ('strip', 'tta', 'slide'):
        found = json.loads(next(Path(f'work/{name}').glob('*/*.json')).read_text())
        assert 0 < found['mIoU'] <= 100


@pytest.mark.slow
def test_a_frozen_backbone(tmp_path, monkeypatch):
    """Its weights are those of a file, and stay."""
    write_nuclei(tmp_path / 'data' / 'nuclei')
    monkeypatch.chdir(tmp_path)
    narrow = ['model.backbone.embed_dims=8', 'model.backbone.num_heads=1',
              'model.neck.in_channels=8,8,8,8', 'model.decode_head.in_channels=32',
              'model.decode_head.channels=32', *(each for each in NARROW if 'workers' in each)]
    torch.manual_seed(0)
    state = ViT('dinov2-small', embed_dims=8, num_heads=1).state_dict()
    save_file({name: torch.randn_like(value) / 4 for name, value in state.items()},
              'mine.safetensors')
    run('train', 'train', FROZEN_NUCLEI, options=[
        *narrow, 'train_cfg.max_epochs=1', 'train_cfg.val_interval=1',
        'model.backbone.init_cfg.checkpoint=mine.safetensors'])
    weights = torch.load('work/train/epoch_1.pth', weights_only=False)['state_dict']
    kept = weights['backbone.blocks.3.mlp.fc1.weight']
    assert torch.equal(kept, load_file('mine.safetensors')['blocks.3.mlp.fc1.weight'])
    run('test', 'test', FROZEN_NUCLEI, 'work/train/epoch_1.pth', options=narrow)
