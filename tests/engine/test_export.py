"""Whole models up to their raw outputs: what is written, refused and left behind."""
import json
import sys

import onnxruntime
import pytest
import scripts
import torch
from mmengine.config import Config
from tinydetr import deformable, detr

from mmposenc.commands.export import main, parse_args
from mmposenc.engine import export as module
from mmposenc.engine.export import NOTES, export
from mmposenc.engine.models import build_model

BACKBONE = dict(type='mmposenc.PVT', embed_dims=(16,), num_layers=(1,), num_heads=(2,),
                sr_ratios=(2,), mlp_ratios=(1,), patch_sizes=(16,), out_indices=(0,))
IRPE = dict(rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k'))
RETINA = 'mmposenc::detection/small/retinanet_pvt-micro-peg_trees.py'
NARROW = [*(each for each in scripts.NARROW if each.startswith('model.')),
          'model.neck.out_channels=8', 'model.bbox_head.in_channels=8',
          'model.bbox_head.feat_channels=8']


def config(model, **kwargs):
    return Config(dict(default_scope='mmdet', model=model, **kwargs))


@pytest.mark.filterwarnings('ignore')
def test_detr_with_a_checkpoint(tmp_path):
    """Numbers of the last layer, of images that no test of the exporter has seen; normalised by the
    file itself; what it says about itself."""
    path = tmp_path / 'detr.onnx'
    torch.manual_seed(0)
    # mmdet writes into its config, so that each model takes one of its own.
    model = build_model(config(detr(backbone=BACKBONE, attn=IRPE))).eval()
    checkpoint = str(tmp_path / 'detr.pth')
    torch.save(dict(state_dict=model.state_dict(), meta=dict(
        dataset_meta=dict(classes=('a', 'b', 'c')))), checkpoint)
    found = export(config(detr(backbone=BACKBONE, attn=IRPE)), checkpoint, path, size=(96, 128),
                   normalise=True)
    assert found.path == path and found.difference < 1e-5
    assert sorted(each.name for each in tmp_path.iterdir()) == ['detr.onnx', 'detr.pth']
    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    notes = json.loads(session.get_modelmeta().custom_metadata_map[NOTES])
    assert notes['classes'] == ['a', 'b', 'c'] and notes['input'] == 'pixels from 0 to 255'
    assert notes['outputs'] == ['cls_score', 'bbox_pred'] and notes['mean'] == [120.0] * 3
    pixels = torch.randint(0, 256, (1, 3, 77, 90)).float()
    with torch.no_grad():
        features = model.extract_feat((pixels - 120) / 60)
        from mmdet.structures import DetDataSample
        sample = DetDataSample(metainfo=dict(batch_input_shape=(77, 90), img_shape=(77, 90)))
        scores, boxes = model.bbox_head(**model.forward_transformer(features, [sample]))
    for ours, other in zip(session.run(None, {'images': pixels.numpy()}), (scores, boxes),
                           strict=True):
        torch.testing.assert_close(torch.from_numpy(ours), other[-1], atol=1e-4, rtol=1e-4)
    raw = path.read_bytes()
    assert b'site-packages' not in raw and b'.py' not in raw  # nothing of this machine


@pytest.mark.filterwarnings('ignore')
def test_command_writes_a_program(tmp_path, capsys):
    path = tmp_path / 'retina.pt2'
    main([RETINA, 'none', str(path), '--size', '96', '128', '--cfg-options', *NARROW])
    said = capsys.readouterr().out
    assert 'height: 33 to any' in said and 'cls_score_0' in said and 'normalised' in said
    program = torch.export.load(path).module()
    assert program(torch.randn(1, 3, 70, 110))[0].shape[0] == 1
    before = path.read_bytes()
    with pytest.raises(SystemExit, match='exists; give --overwrite'):
        main([RETINA, 'none', str(path)])
    assert path.read_bytes() == before


def test_a_wrong_file_is_not_kept(tmp_path, monkeypatch):
    """Neither under its name nor beside it; the old one stays."""
    path = tmp_path / 'model.pt2'
    path.write_bytes(b'old')
    monkeypatch.setattr(module, '_program', lambda *args: None)
    monkeypatch.setattr(module, '_limits', lambda program: dict(height=[1, None], width=[1, None]))
    monkeypatch.setattr(module, '_write_pt2', lambda program, path, *args: path.write_bytes(b'new'))
    monkeypatch.setattr(module, 'read_pt2', lambda path: lambda images: (
        torch.zeros(len(images), 5, 4), torch.zeros(len(images), 5, 4)))
    with pytest.raises(RuntimeError, match='away from what the model gives.*not kept'):
        export(config(detr()), None, path, size=(64, 64), overwrite=True)
    assert path.read_bytes() == b'old' and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize('out, options, match', [
    ('model.pb', {}, r'must end in \.onnx, or in \.pt2'),
    ('model.pt2', dict(size=(8, 64)), r'size=\(8, 64\) must be at least \(32, 32\)'),
    ('none/model.pt2', {}, 'none'),
])
def test_wrong_arguments(tmp_path, out, options, match):
    with pytest.raises((ValueError, FileNotFoundError), match=match):
        export(config(detr()), None, tmp_path / out, **options)


def test_one_size_or_two(capsys):
    words = ['config.py', 'none', 'model.onnx']
    assert parse_args(words).size == (256, 320)
    assert parse_args([*words, '--size', '224']).size == (224, 224)
    assert parse_args([*words, '--size', '96', '128']).size == (96, 128)
    with pytest.raises(SystemExit):
        parse_args([*words, '--size', '1', '2', '3'])
    assert 'error: --size 1 2 3: give H W, or one number' in capsys.readouterr().err


def test_missing_packages(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)
    with pytest.raises(ValueError, match='pip install onnx onnxscript onnxruntime'):
        export(config(detr()), None, tmp_path / 'model.onnx')


def test_deformable_attention_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r'encoder.layers.0.self_attn is a MultiScaleDeformable'):
        export(config(deformable()), None, tmp_path / 'model.onnx')
