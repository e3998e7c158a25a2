"""The small segmentation configs, and what tools/quickstart.sh segmentation does with them."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from scopes import scope_fixture
from scripts import NARROW, load_tool, named
from tinydata import make_nuclei

from mmposenc.engine import load_config, override
from mmposenc.engine.config.checks import check_num_classes

pytest.importorskip('mmseg')
scope = scope_fixture('mmseg')
ROOT = Path(__file__).resolve().parents[2]
SMALL = 'mmposenc::segmentation/small/fpn_pvt-micro-'
NUCLEI = f'{SMALL}peg_1xb4-10e_nuclei-128x128.py'
CAMVID = {name: f'{SMALL}{name}_1xb4-10e_camvid-192x256.py'
          for name in ('none', 'learned', 'peg', 'cp', 'cp-peg', 'cp-every', 'cp-every-fixed',
                       'cp-every-uniform')}


def test_configs_of_a_comparison_differ_in_their_encoding_only():
    plain = {}
    for name, config in CAMVID.items():
        cfg = load_config(config)
        check_num_classes(cfg, ('train', 'val', 'test'))
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
    small = 'mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_'
    block, trees = (load_config(f'{small}{name}.py') for name in ('trees-block', 'trees'))
    for cfg, split in ((trees, 'val'), (block, 'val_block')):
        assert cfg.test_dataloader.dataset.ann_file == f'annotations/{split}.json'
        assert cfg.test_evaluator.ann_file == f'data/trees/annotations/{split}.json'
        for key in ('val_dataloader', 'test_dataloader', 'val_evaluator', 'test_evaluator'):
            cfg.pop(key)
    assert block._cfg_dict == trees._cfg_dict


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

    from mmposenc.engine.apps.seg_visualization import SegVisualizationHook
    Visualizer.get_instance(f'seg_small_pictures_{side}_{option}')
    Image.new('RGB', (300, side)).save(tmp_path / 'a.png')
    drawn = []
    hook = SegVisualizationHook(draw=True, test_out_dir=str(tmp_path), with_labels=option)
    hook._visualizer = SimpleNamespace(add_datasample=lambda *args, **kwargs: drawn.append(kwargs))
    hook.after_test_iter(None, 0, {}, [SimpleNamespace(img_path=str(tmp_path / 'a.png'))])
    assert drawn[0]['with_labels'] is named
    assert drawn[0]['out_file'] == str(tmp_path / 'a.png')
