"""Whole models up to their raw outputs: what is written, refused and left behind."""
import json
import sys

import cv2
import mmcv
import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_data import make_coco
from helpers.tiny_detr import deformable, detr
from mmengine.config import Config
from mmseg.structures import SegDataSample

from mmposenc.engine.apps import export as module
from mmposenc.engine.apps.export import NOTES, export, onnx_runner
from mmposenc.engine.apps.export_check import compare_with_model, pictures_of_test_data
from mmposenc.engine.apps.pictures import Source
from mmposenc.engine.apps.prediction import PictureReader, Predictor
from mmposenc.engine.apps.raw_outputs import Detections, RawOutputs
from mmposenc.engine.config.models import build_model
from mmposenc.functional.image_sizes import set_img_shapes

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


PEG_PVT = dict(type='mmposenc.PVT', embed_dims=(8, 16), num_layers=(1, 1), num_heads=(1, 2),
               sr_ratios=(2, 1), mlp_ratios=(1, 1), patch_sizes=(8, 2), out_indices=(1,),
               pos_encoding=dict(type='mmposenc.PEG'))


def dense(name, mask_padding=True, **test_cfg):
    return dict(
        type='SingleStageDetector', backbone={**PEG_PVT, 'mask_padding': mask_padding},
        bbox_head=HEADS[name], data_preprocessor=dict(
            type='mmposenc.DetDataPreprocessor', mean=[100.0, 110.0, 120.0], std=[60.0] * 3,
            bgr_to_rgb=True, pad_size_divisor=32),
        neck=dict(type='FPN', in_channels=[16], out_channels=8, num_outs=2),
        test_cfg={**dict(nms_pre=20, min_bbox_size=0, score_thr=0.3, max_per_img=30,
                         nms=dict(type='nms', iou_threshold=0.5)), **test_cfg})


def responding(cfg, bias=0.0):
    """A model of a config with a head that finds boxes, or few with a bias."""
    torch.manual_seed(0)
    model = build_model(cfg).eval()
    with torch.no_grad():
        for name, parameter in model.bbox_head.named_parameters():
            torch.nn.init.normal_(parameter, std=0.1)
            if name.endswith('cls.bias'):
                parameter += bias
    return model


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
    assert found.path == path and found.check.difference < 1e-5
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


#: (height, width) of pictures: to be padded in both directions, in one, in none; enlarged; reduced.
PICTURES = ((321, 227), (227, 321), (320, 320), (33, 500), (120, 90), (90, 120), (640, 479))


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('name, mask_padding', [
    ('RetinaNet', True), pytest.param('RetinaNet', False, marks=pytest.mark.slow),
    pytest.param('FCOS', True, marks=pytest.mark.slow)])
def test_boxes_are_those_of_predict(name, mask_padding, tmp_path):
    """Of pictures that predict resizes and pads, in their order; limits of numbers and scores
    hold."""
    steps = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(500, 330), keep_ratio=True),
             dict(type='PackDetInputs', meta_keys=('ori_shape', 'img_shape', 'scale_factor'))]
    cfg = config(dense(name, mask_padding), test_dataloader=dict(dataset=dict(
        type='mmposenc.CocoDataset', ann_file='none.json', pipeline=steps)))
    model = responding(cfg)
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'weights.pth')
    found = export(cfg, str(tmp_path / 'weights.pth'), tmp_path / 'boxes.onnx', decode=True,
                   normalise=True, size=(96, 128))
    assert found.check.difference < 1e-4 and found.check.boxes > 20
    assert found.notes['outputs'] == ['boxes', 'scores', 'labels']
    run, rng, counts = onnx_runner(found.path), np.random.default_rng(0), set()
    for size in PICTURES:
        pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
        source = Source(tmp_path / 'none.png', 'none.png', 'none', pixels)
        (_, sample), = Predictor(model, PictureReader(cfg))([source],
                                                            lambda *args: pytest.fail(str(args)))
        expected = sample.pred_instances
        resized = np.ascontiguousarray(mmcv.imrescale(pixels, (500, 330)).transpose(2, 0, 1))
        boxes, scores, labels = run(torch.from_numpy(resized[None]).float())
        scale = boxes.new_tensor([resized.shape[2] / size[1], resized.shape[1] / size[0]]).repeat(2)
        torch.testing.assert_close(boxes / scale, expected.bboxes, atol=1e-2, rtol=1e-4)
        torch.testing.assert_close(scores, expected.scores, atol=1e-4, rtol=0)
        assert torch.equal(labels, expected.labels)
        counts.add(len(boxes))
    assert max(counts) > 5 and len(counts) > 1


def test_maps_of_a_padded_segmentor_are_those_of_predict(tmp_path):
    """An exported program, of one image and of two, to the logits of each pixel."""
    head = dict(type='FCNHead', in_channels=16, channels=8, num_classes=3, num_convs=1,
                norm_cfg=dict(type='BN'))
    cfg = Config(dict(default_scope='mmseg', model=dict(
        type='EncoderDecoder', backbone={**PEG_PVT, 'mask_padding': True}, decode_head=head,
        test_cfg=dict(mode='whole'), data_preprocessor=dict(
            type='mmposenc.SegDataPreProcessor', mean=[120.0] * 3, std=[60.0] * 3,
            bgr_to_rgb=False, size=(64, 64), test_cfg=dict(size_divisor=32)))))
    torch.manual_seed(0)
    model = build_model(cfg).eval()
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'weights.pth')
    found = export(cfg, str(tmp_path / 'weights.pth'), tmp_path / 'model.pt2', normalise=True,
                   size=(96, 128))
    run = module.pt2_runner(found.path)
    for size in ((77, 90), (96, 64), (50, 121)):
        pixels = torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8)
        samples = [SegDataSample(metainfo=dict(img_shape=size, ori_shape=size)) for _ in pixels]
        with torch.no_grad():
            expected = model.test_step(dict(inputs=list(pixels), data_samples=samples))
        logits, = run(pixels.float())
        torch.testing.assert_close(logits, torch.stack([each.seg_logits.data for each in expected]),
                                   atol=1e-5, rtol=1e-4)


def checked(bias, run, tmp_path=None, **options):
    """A check of a detector with a function in the place of its file; with pictures of test data,
    where there is a folder for them."""
    dataset = dict(type='mmposenc.CocoDataset', data_root=f'{tmp_path}', test_mode=True,
                   ann_file='annotations.json', data_prefix=dict(img='images/'),
                   metainfo=dict(classes=('square', 'disc')),
                   pipeline=[dict(type='LoadImageFromFile'), dict(type='PackDetInputs')])
    cfg = config(dense('RetinaNet'), **(
        dict(test_dataloader=dict(dataset=dataset)) if tmp_path else {}))
    raw = Detections(responding(cfg, bias))
    notes = dict(module._normalisation_and_notes(cfg, False)[1], height=[33, None],
                 width=[33, None])
    return raw, compare_with_model(raw, run or raw, torch.ones(1, 3, 96, 128), notes,
                                   pictures_of_test_data(raw, cfg, notes), 1e-4)


def none_found(images):
    return torch.empty(0, 4), torch.empty(0), torch.empty(0, dtype=torch.long)


def test_boxes_that_are_compared_are_counted(tmp_path):
    """Of noise, of pictures of the test data, and of noise that was changed."""
    raw, found = checked(0.0, None)
    assert found.boxes > 10 and len(found.sizes) == 5 and found.difference == 0
    seen = []
    make_coco(tmp_path)
    checked(0.0, lambda images: seen.append(images) or raw(images), tmp_path)
    first = cv2.imread(str(min((tmp_path / 'images').iterdir())))[..., ::-1].astype(np.float32)
    pixels = torch.from_numpy((first - [100, 110, 120]).astype(np.float32) / 60).permute(2, 0, 1)
    torch.testing.assert_close(seen[0], F.interpolate(pixels[None], (96, 128), mode='bilinear'))
    raw, found = checked(-10.0, None)
    assert found.boxes >= 5 and found.sizes[5:] == found.sizes[:2]
    assert checked(-60.0, None)[1].boxes == checked(-60.0, none_found)[1].boxes == 0


@pytest.mark.parametrize('bias', [0.0, -10.0])
def test_a_file_that_finds_no_box_is_refused(bias):
    with pytest.raises(RuntimeError, match='the model finds [0-9]+ boxes, and the file 0; the file '
                                           'is not kept. Export without --decode'):
        checked(bias, none_found)


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
    assert module.preparing_steps(cfg) == dict(resize=resize, other_steps=others)
    assert module.preparing_steps(config({})) == dict(resize=None, other_steps=[])


def test_differences_are_shares_of_the_largest_number_too():
    """Logits of a model that has begun to train: all near -4.6."""
    class Logits(torch.nn.Module):
        def forward(self, images, mode):
            return images * 1e-3 - 4.6

    images = torch.rand(1, 3, 4, 4)
    raw = RawOutputs(Logits())
    ours = raw(images)
    (_, found), = raw.named_differences(images, ours, [ours[0] + 1.4e-6])
    assert found < 1e-6
    (_, found), = raw.named_differences(images, ours, [ours[0][:, :2]])
    assert found == float('inf')


def test_a_wrong_file_is_not_kept(tmp_path, monkeypatch):
    """Neither under its name nor beside it; the old one stays."""
    path = tmp_path / 'model.pt2'
    path.write_bytes(b'old')
    monkeypatch.setattr(module, '_exported_program', lambda *args: None)
    monkeypatch.setattr(module, '_size_limits',
                        lambda program: dict(height=[1, None], width=[1, None]))
    monkeypatch.setattr(module, '_write_pt2', lambda program, path, *args: path.write_bytes(b'new'))
    monkeypatch.setattr(module, 'pt2_runner', lambda path: lambda images: (
        torch.zeros(len(images), 5, 4), torch.zeros(len(images), 5, 4)))
    with pytest.raises(RuntimeError, match='more than tolerance=0.01; the file is not kept'):
        export(config(detr()), None, path, size=(64, 64), overwrite=True, tolerance=0.01)
    assert path.read_bytes() == b'old' and list(tmp_path.iterdir()) == [path]


def padded(model):
    return {**model, 'data_preprocessor': {**model['data_preprocessor'], 'pad_size_divisor': 32}}


@pytest.mark.parametrize('model, out, options, match', [
    (detr(), 'none/model.pt2', {}, 'none'),
    (detr(), 'model.pt2', dict(tolerance=1.5), r'tolerance=1.5 must be above 0 and below 1'),
    (detr(), 'model.pt2', dict(decode=True), r'--decode: .*model.pt2 must end in .onnx'),
    (detr(), 'model.onnx', dict(decode=True), r'--decode: DETR with DETRHead decodes its boxes '),
    (padded(detr(backbone=BACKBONE)), 'model.onnx', {},
     r'data_preprocessor pads pictures, and DETR leaves padding out, .*pad_size_divisor=1'),
    (deformable(), 'model.onnx', {}, r'encoder.layers.0.self_attn is a MultiScaleDeformable'),
    (dense('RetinaNet'), 'model.onnx', dict(size=(32, 64)),
     r'size=\(32, 64\) is too small an example: .* at least \(33, 33\), or '),
    (dense('RetinaNet', nms=dict(type='soft_nms')), 'model.onnx', dict(decode=True),
     r"test_cfg.nms.type='soft_nms' must be 'nms'")])
def test_what_can_not_be(tmp_path, model, out, options, match):
    with pytest.raises((ValueError, FileNotFoundError), match=match):
        export(config(model), None, tmp_path / out, **options)


@pytest.mark.slow
def test_one_size_that_is_padded(tmp_path):
    cfg = config(dense('FCOS'))
    model = responding(cfg)
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'weights.pth')
    found = export(cfg, str(tmp_path / 'weights.pth'), tmp_path / 'model.pt2', size=(70, 90),
                   fixed_size=True)
    assert found.check.sizes == [(1, 70, 90), (3, 70, 90)] and found.check.boxes is None
    images = torch.randn(2, 3, 70, 90)
    padded = set_img_shapes(F.pad(images, (0, 6, 0, 26)), [(70, 90)] * 2)
    with torch.no_grad():
        expected = [level for kind in model(padded, mode='tensor') for level in kind]
    for ours, other in zip(module.pt2_runner(found.path)(images), expected, strict=True):
        torch.testing.assert_close(ours, other, atol=1e-5, rtol=1e-4)


def test_padding_that_a_hook_leaves_out(tmp_path):
    cfg = config(dense('FCOS'), custom_hooks=[dict(type='mmposenc.KeepPaddingOut')])
    with pytest.raises(ValueError, match='KeepPaddingOut leaves padding out'):
        export(cfg, None, tmp_path / 'model.pt2')


def test_missing_packages(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)
    with pytest.raises(ValueError, match='pip install onnx onnxscript onnxruntime'):
        export(config(detr()), None, tmp_path / 'model.onnx')


@pytest.mark.parametrize('channels, options, named', [
    (1, {}, 'grey'), (3, {}, 'BGR'), (3, dict(bgr_to_rgb=True), 'RGB')])
def test_the_file_names_its_channels(channels, options, named):
    cfg = config(dict(backbone=dict(in_channels=channels),
                      data_preprocessor=dict(type='DetDataPreprocessor', **options)))
    assert module._normalisation_and_notes(cfg, False)[1]['channels'] == named
