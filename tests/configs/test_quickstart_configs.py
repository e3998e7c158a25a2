"""The config of nuclei, made narrow, trained and tested; those of trees are in
tests/pages/test_tutorial.py."""
import json
from pathlib import Path

import torch
from helpers.scripts import NARROW, load_tool, named
from helpers.tiny_tasks import picture
from PIL import Image

NUCLEI = 'mmposenc::segmentation/small/fpn_pvt-micro-peg_1xb4-10e_nuclei-128x128.py'


def run(tool: str, name: str, *words: str, options: list[str]) -> None:
    """A tool in ``work/NAME``."""
    load_tool(tool).main([*words, '--work-dir', f'work/{name}', '--cfg-options', *options,
                          *named(f'quickstart_{name}')])


def test_nuclei(tmp_path, monkeypatch):
    """With views and sliding windows."""
    monkeypatch.chdir(tmp_path)
    for split, count in (('training', 4), ('validation', 2)):  # as mmposenc prepare nuclei does
        folder = Path('data/nuclei/annotations', split)
        folder.mkdir(parents=True)
        for i in range(count):
            labels = picture(Path('data/nuclei/images', split, f'{i}.png'), i)
            Image.fromarray(labels).save(folder / f'{i}.png')
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
