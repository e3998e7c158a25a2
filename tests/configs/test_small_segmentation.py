"""The small segmentation configs, and what tools/quickstart.sh segmentation does with them."""
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scopes import scope_fixture
from scripts import NARROW, load_tool, named

from mmposenc.engine import load_config, override
from mmposenc.engine.checks import check_num_classes

pytest.importorskip('mmseg')
scope = scope_fixture('mmseg')
ROOT = Path(__file__).resolve().parents[2]
SMALL = 'mmposenc::segmentation/small/sem_fpn_pvt-micro-'
NUCLEI = f'{SMALL}peg_nuclei.py'
CAMVID = {name: f'{SMALL}{name}_camvid.py'
          for name in ('none', 'learned', 'peg', 'cp', 'cp-peg', 'cp-every', 'cp-every-fixed',
                       'cp-every-uniform')}


def build(cfg):
    from mmseg.registry import MODELS
    return MODELS.build(cfg.model)


def test_the_camvid_configs_differ_in_their_encoding_only():
    plain, sizes = {}, {}
    for name, config in CAMVID.items():
        cfg = load_config(config)
        check_num_classes(cfg, ('train', 'val', 'test'))
        sizes[name] = sum(p.numel() for p in build(cfg).parameters())
        text = cfg._cfg_dict.to_dict()
        encoding = text['model']['backbone'].pop('pos_encoding')
        text['model']['backbone'].pop('img_size', None)  # of the table
        plain[name] = text
        encodings = encoding if isinstance(encoding, list) else [encoding] if encoding else []
        assert name.startswith('cp-every') or [each['type'] for each in encodings] == {
            'none': [], 'learned': ['mmposenc.LearnedPositionEmbedding'],
            'peg': ['mmposenc.PEG'], 'cp': ['mmposenc.ContextPool'],
            'cp-peg': ['mmposenc.PEG', 'mmposenc.ContextPool']}[name]
    assert all(text == plain['none'] for text in plain.values())
    cells = [(48 * 64, 32), (24 * 32, 64), (12 * 16, 128), (6 * 8, 256)]
    assert sizes['learned'] - sizes['none'] == sum(cell * dims for cell, dims in cells)
    assert sizes['peg'] - sizes['none'] == (9 + 1) * (32 + 64 + 128 + 256)
    assert sizes['cp-peg'] - sizes['cp'] == sizes['peg'] - sizes['none']
    # CP: a 3 x 3 convolution to C / 4 channels and one from them to two
    assert sizes['cp'] - sizes['none'] == sum(
        9 * dims * (dims // 4) + dims // 4 + 9 * (dims // 4) * 2 + 2
        for dims in (32, 64, 128, 256))
    # After both blocks of the first three stages and the first of the last: to 4 and to 2.
    for name, hidden, outputs in (('cp-every', 4, 2), ('cp-every-fixed', 2, 1),
                                  ('cp-every-uniform', 2, 1)):
        assert sizes[name] - sizes['none'] == sum(
            blocks * (hidden * (9 * dims + 1) + outputs * (9 * hidden + 1))
            for blocks, dims in ((2, 32), (2, 64), (2, 128), (1, 256)))


def test_the_table_is_made_for_the_training_size():
    cfg = load_config(CAMVID['learned'])
    resize = next(step for step in cfg.train_dataloader.dataset.pipeline
                  if step.type == 'Resize')
    assert tuple(cfg.model.backbone.img_size) == resize.scale[::-1]
    tables = [stage.pos_encodings.encodings(-1)[0].grid_shape for stage in
              build(cfg).backbone.stages]
    assert tables == [(48, 64), (24, 32), (12, 16), (6, 8)]


def test_nuclei_share_model_and_schedule_with_camvid():
    nuclei, camvid = load_config(NUCLEI), load_config(CAMVID['peg'])
    check_num_classes(nuclei, ('train', 'val', 'test'))
    assert nuclei.optim_wrapper == camvid.optim_wrapper and nuclei.train_cfg == camvid.train_cfg
    camvid.model.decode_head.num_classes = 2
    camvid.model.data_preprocessor = nuclei.model.data_preprocessor
    assert nuclei.model == camvid.model


def make_nuclei(folder: Path) -> None:
    """A data set in the layout of prepare_data.py nuclei: bright squares on noise."""
    rng = np.random.default_rng(0)
    for split, count in (('training', 4), ('validation', 2)):
        for kind in ('images', 'annotations'):
            (folder / kind / split).mkdir(parents=True)
        for index in range(count):
            pixels = rng.integers(0, 40, (64, 64), dtype=np.uint8)
            labels = np.zeros((64, 64), dtype=np.uint8)
            y, x = (int(v) for v in rng.integers(0, 44, 2))
            pixels[y:y + 20, x:x + 20] = 200
            labels[y:y + 20, x:x + 20] = 1
            Image.fromarray(pixels).save(folder / 'images' / split / f'{index}.png')
            Image.fromarray(labels).save(folder / 'annotations' / split / f'{index}.png')


def test_train_test_and_table(tmp_path, monkeypatch, capsys):
    """What the quickstart runs, on four tiles and a narrow model; and sliding windows."""
    make_nuclei(tmp_path / 'data' / 'nuclei')
    monkeypatch.chdir(tmp_path)
    load_tool('train').main([NUCLEI, '--work-dir', 'work', '--cfg-options', *NARROW,
                        'train_dataloader.dataset.times=2', 'train_cfg.max_epochs=1',
                        'train_cfg.val_interval=1', *named('seg_small_train')])
    checkpoint = f"work/{Path('work/last_checkpoint').read_text()}"  # relative to the folder
    assert {'state_dict', 'ema_state_dict'} <= set(torch.load(checkpoint, weights_only=False))
    test = load_tool('test')
    test.main([NUCLEI, checkpoint, '--work-dir', 'work/strip', '--show-dir', 'pictures',
               '--cfg-options', *NARROW, *named('seg_small_strip')])
    log = next(Path('work/strip').glob('*/*.log')).read_text()
    assert 'per class results' in log and '| background |' in log and '|  nucleus   |' in log
    assert sorted(path.name for path in Path('pictures').iterdir()) == ['0.png', '1.png']
    with Image.open('pictures/0.png') as picture:  # ground truth and prediction side by side
        assert picture.size == (2 * 64, 64)
    test.main([NUCLEI, checkpoint, '--work-dir', 'work/tta', '--tta', '--cfg-options', *NARROW,
               *named('seg_small_tta')])
    test.main([NUCLEI, checkpoint, '--work-dir', 'work/slide', '--cfg-options', *NARROW,
               'model.test_cfg.mode=slide', 'model.test_cfg.crop_size=48,48',
               'model.test_cfg.stride=16,16', 'test_dataloader.batch_size=2',
               *named('seg_small_slide')])
    found = [json.loads(next(Path(f'work/{name}').glob('*/*.json')).read_text())['mIoU']
             for name in ('strip', 'tta', 'slide')]
    assert all(0 < value <= 100 for value in found)
    capsys.readouterr()
    load_tool('show_metrics').main(['strip=work/strip', 'views=work/tta'])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ['mIoU', 'mAcc', 'aAcc']
    assert [line.split()[0] for line in lines[1:]] == ['strip', 'views']


def test_mistakes_are_found_before_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match='dataset.data_prefix.seg_map_path: data/nuclei/annota'):
        load_tool('train').main([NUCLEI])
    make_nuclei(tmp_path / 'data' / 'nuclei')
    with pytest.raises(SystemExit, match='model.decode_head.num_classes: 7'):
        load_tool('train').main([NUCLEI, '--cfg-options', 'model.decode_head.num_classes=7'])
    with pytest.raises(SystemExit, match='model.decode_head.num_classes: 7'):
        load_tool('test').main([NUCLEI, 'none.pth', '--cfg-options',
                                'model.decode_head.num_classes=7'])


def test_data_elsewhere_is_named_by_the_user():
    cfg = load_config(CAMVID['peg'])
    override(cfg, {f'{phase}_dataloader.dataset.data_root': '/elsewhere/'
                   for phase in ('train', 'val', 'test')})
    assert {cfg[f'{phase}_dataloader'].dataset.data_root for phase in (
        'train', 'val', 'test')} == {'/elsewhere/'}
    nuclei = load_config(NUCLEI)
    override(nuclei, {'train_dataloader.dataset.dataset.data_root': '/elsewhere/'})
    assert nuclei.train_dataloader.dataset.dataset.data_root == '/elsewhere/'


@pytest.mark.parametrize('side, option, named', [
    (64, None, False), (256, None, True), (64, True, True), (256, False, False)])
def test_small_pictures_are_not_covered_by_names(tmp_path, side, option, named):
    from types import SimpleNamespace

    from mmengine.visualization import Visualizer

    from mmposenc.engine.seg_visualization import SegVisualizationHook
    Visualizer.get_instance(f'seg_small_pictures_{side}_{option}')
    Image.new('RGB', (300, side)).save(tmp_path / 'a.png')
    drawn = []
    hook = SegVisualizationHook(draw=True, test_out_dir=str(tmp_path), with_labels=option)
    hook._visualizer = SimpleNamespace(add_datasample=lambda *args, **kwargs: drawn.append(kwargs))
    hook.after_test_iter(None, 0, {}, [SimpleNamespace(img_path=str(tmp_path / 'a.png'))])
    assert drawn[0]['with_labels'] is named
    assert drawn[0]['out_file'] == str(tmp_path / 'a.png')
