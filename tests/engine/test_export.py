"""Whole models up to their raw outputs: what is written, refused and left behind."""
import json
import sys
from types import SimpleNamespace

import onnxruntime
import pytest
import torch
from mmengine.config import Config
from tinydetr import deformable, detr

from mmposenc.engine.apps import export as module
from mmposenc.engine.apps.export import NOTES, export
from mmposenc.engine.apps.raw_outputs import RawOutputs
from mmposenc.engine.config.models import build_model

BACKBONE = dict(type='mmposenc.PVT', embed_dims=(16,), num_layers=(1,), num_heads=(2,),
                sr_ratios=(2,), mlp_ratios=(1,), patch_sizes=(16,), out_indices=(0,))
IRPE = dict(rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k'))


#: Detectors of one stage with two levels.
DENSE = dict(num_classes=3, in_channels=8, feat_channels=8, stacked_convs=1)
HEADS = {
    'RetinaNet': dict(type='RetinaHead', bbox_coder=dict(type='DeltaXYWHBBoxCoder'),
                      anchor_generator=dict(type='AnchorGenerator', octave_base_scale=2,
                                            scales_per_octave=2, ratios=[0.5, 1.0],
                                            strides=[16, 32]), **DENSE),
    'FCOS': dict(type='FCOSHead', strides=[16, 32], regress_ranges=((-1, 64), (64, 1e8)),
                 norm_cfg=None, **DENSE),
}


def dense(name, **test_cfg):
    return dict(
        type='SingleStageDetector', backbone=BACKBONE, bbox_head=HEADS[name],
        data_preprocessor=dict(type='DetDataPreprocessor'),
        neck=dict(type='FPN', in_channels=[16], out_channels=8, num_outs=2),
        test_cfg={**dict(nms_pre=20, min_bbox_size=0, score_thr=0.3, max_per_img=20,
                         nms=dict(type='nms', iou_threshold=0.5)), **test_cfg})


def config(model, **kwargs):
    return Config(dict(default_scope='mmdet', model=model, **kwargs))


@pytest.mark.slow
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
@pytest.mark.parametrize('name', [pytest.param('RetinaNet', marks=pytest.mark.slow), 'FCOS'])
def test_decoded_boxes_are_those_of_predict(name, tmp_path):
    """Of an image that was not compared at, in their order; limits of numbers and scores hold."""
    torch.manual_seed(0)
    model = build_model(config(dense(name))).eval()
    with torch.no_grad():
        for parameter in model.bbox_head.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'weights.pth')
    path = tmp_path / 'boxes.onnx'
    found = export(config(dense(name)), str(tmp_path / 'weights.pth'), path, decode=True,
                   size=(96, 128))
    assert found.difference < 1e-4 and found.notes['outputs'] == ['boxes', 'scores', 'labels']
    run = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    counts = set()
    for size in ((70, 110), (150, 90), (40, 40)):
        images = torch.randn(1, 3, *size)
        sample = SimpleNamespace(metainfo=dict(img_shape=size))
        with torch.no_grad():
            expected, = model.bbox_head.predict(model.extract_feat(images), [sample])
        boxes, scores, labels = map(torch.from_numpy, run.run(None, {'images': images.numpy()}))
        torch.testing.assert_close(boxes, expected.bboxes, atol=1e-2, rtol=1e-4)
        torch.testing.assert_close(scores, expected.scores, atol=1e-4, rtol=0)
        assert torch.equal(labels, expected.labels)
        counts.add(len(boxes))
    assert max(counts) > 5 and len(counts) > 1


@pytest.mark.parametrize('steps, resize, others', [
    ([], None, []),
    ([dict(type='Resize', scale=(400, 300), keep_ratio=True)],
     dict(scale=[400, 300], keep_ratio=True, interpolation='bilinear'), []),
    ([dict(type='mmdet.Resize', scale=64, interpolation='area'), dict(type='CenterCrop')],
     dict(scale=[64, 64], keep_ratio=False, interpolation='area'), ['CenterCrop']),
    ([dict(type='ResizeEdge', scale=64)], None, ['ResizeEdge'])])
def test_the_file_says_how_predict_resizes(steps, resize, others):
    pipeline = [dict(type='mmposenc.LoadImageFromFile'), *steps,
                dict(type='LoadAnnotations'), dict(type='PackDetInputs')]
    cfg = config({}, test_dataloader=dict(dataset=dict(pipeline=pipeline)))
    assert module.resizing(cfg) == dict(resize=resize, other_steps=others)
    assert module.resizing(config({})) == dict(resize=None, other_steps=[])


def test_differences_are_shares_of_the_largest_number_too():
    """Logits of a model that has begun to train: all near -4.6."""
    class Logits(torch.nn.Module):
        def forward(self, images, mode):
            return images * 1e-3 - 4.6

    images = torch.rand(1, 3, 4, 4)
    raw = RawOutputs(Logits())
    ours = raw(images)
    (_, found), = raw.differences(images, ours, [ours[0] + 1.4e-6])
    assert found < 1e-6
    (_, found), = raw.differences(images, ours, [ours[0][:, :2]])
    assert found == float('inf')


def test_a_wrong_file_is_not_kept(tmp_path, monkeypatch):
    """Neither under its name nor beside it; the old one stays."""
    path = tmp_path / 'model.pt2'
    path.write_bytes(b'old')
    monkeypatch.setattr(module, '_program', lambda *args: None)
    monkeypatch.setattr(module, '_limits', lambda program: dict(height=[1, None], width=[1, None]))
    monkeypatch.setattr(module, '_write_pt2', lambda program, path, *args: path.write_bytes(b'new'))
    monkeypatch.setattr(module, 'read_pt2', lambda path: lambda images: (
        torch.zeros(len(images), 5, 4), torch.zeros(len(images), 5, 4)))
    with pytest.raises(RuntimeError, match='more than tolerance=0.01; the file is not kept'):
        export(config(detr()), None, path, size=(64, 64), overwrite=True, tolerance=0.01)
    assert path.read_bytes() == b'old' and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize('model, out, options, match', [
    (detr(), 'none/model.pt2', {}, 'none'),
    (detr(), 'model.pt2', dict(tolerance=1.5), r'tolerance=1.5 must be above 0 and below 1'),
    (detr(), 'model.pt2', dict(decode=True), r'--decode: .*model.pt2 must end in .onnx'),
    (detr(), 'model.onnx', dict(decode=True), r'--decode: DETR with DETRHead decodes its boxes '),
    (deformable(), 'model.onnx', {}, r'encoder.layers.0.self_attn is a MultiScaleDeformable'),
    (dense('RetinaNet'), 'model.onnx', dict(size=(32, 64)),
     r'size=\(32, 64\) is too small an example: .* at least \(64, 64\), or '),
    (dense('RetinaNet', nms=dict(type='soft_nms')), 'model.onnx', dict(decode=True),
     r"test_cfg.nms.type='soft_nms' must be 'nms'")])
def test_what_can_not_be(tmp_path, model, out, options, match):
    with pytest.raises((ValueError, FileNotFoundError), match=match):
        export(config(model), None, tmp_path / out, **options)


def test_missing_packages(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)
    with pytest.raises(ValueError, match='pip install onnx onnxscript onnxruntime'):
        export(config(detr()), None, tmp_path / 'model.onnx')


@pytest.mark.parametrize('channels, options, named', [
    (1, {}, 'grey'), (3, {}, 'BGR'), (3, dict(bgr_to_rgb=True), 'RGB')])
def test_the_file_names_its_channels(channels, options, named):
    cfg = config(dict(backbone=dict(in_channels=channels),
                      data_preprocessor=dict(type='DetDataPreprocessor', **options)))
    assert module._normalisation(cfg, False)[1]['channels'] == named
