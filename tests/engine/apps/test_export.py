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
from helpers import tiny_detr
from helpers.tiny_data import coco_node, make_coco
from helpers.tiny_detr import ddq, deformable, detr, dino
from mmengine.config import Config
from mmseg.structures import SegDataSample

import mmposenc
from mmposenc.engine.apps import export as module
from mmposenc.engine.apps.export import NOTES, export, onnx_runner
from mmposenc.engine.apps.export_check import compare_with_model, pictures_of_test_data
from mmposenc.engine.apps.raw_outputs import Detections, RawOutputs
from mmposenc.engine.config.images import image_samples
from mmposenc.engine.config.models import build_model
from mmposenc.engine.config.parsed import ParsedConfig

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


def responding(cfg):
    """A model of a config with a head that finds boxes."""
    torch.manual_seed(0)
    model = build_model(cfg).eval()
    with torch.no_grad():
        for parameter in model.bbox_head.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def config(model, **kwargs):
    return Config(dict(default_scope='mmdet', model=model, **kwargs))


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
def test_detr_with_a_checkpoint(tmp_path):
    """Numbers of the last layer, of images that no test of the exporter has seen; what the file
    says about itself."""
    path, checkpoint = tmp_path / 'detr.onnx', str(tmp_path / 'detr.pth')
    cfg = config(detr(backbone=BACKBONE, attn=IRPE))
    torch.manual_seed(0)
    model = build_model(cfg).eval()
    torch.save(dict(state_dict=model.state_dict(), meta=dict(
        dataset_meta=dict(classes=('a', 'b', 'c')))), checkpoint)
    _, check = export(cfg, checkpoint, path, size=(96, 128))
    assert check.difference < 1e-5
    assert sorted(each.name for each in tmp_path.iterdir()) == ['detr.onnx', 'detr.pth']
    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    notes = json.loads(session.get_modelmeta().custom_metadata_map[NOTES])
    assert notes['classes'] == ['a', 'b', 'c'] and notes['channels'] == 'BGR'
    assert notes['outputs'] == ['cls_score', 'bbox_pred']
    pixels = torch.randint(0, 256, (1, 3, 77, 90)).float()
    with torch.no_grad():
        queries = model.forward_transformer(model.extract_feat((pixels - 120) / 60),
                                            image_samples(pixels))
        expected = model.bbox_head(**queries)
    for ours, other in zip(onnx_runner(path)(pixels), expected, strict=True):
        torch.testing.assert_close(ours, other[-1], atol=1e-4, rtol=1e-4)
    raw = path.read_bytes()
    assert b'site-packages' not in raw and b'.py' not in raw  # nothing of this machine


#: (height, width) of pictures: to be padded in both directions, in one, in none; enlarged; reduced.
PICTURES = ((321, 227), (227, 321), (320, 320), (33, 500), (120, 90), (90, 120), (640, 479))


FAMILY = dict(
    dino=dino(encoder=dict(pos_encoding=dict(type='mmposenc.PEG'))), DETR=detr(),
    DeformableDETR=deformable(), relation=dino(decoder=dict(
        relation=dict(type='mmposenc.PositionRelation'))), two_stages=deformable(
        levels=2, dims=256, as_two_stage=True, with_box_refine=True),
    conditional=tiny_detr.conditional(), dab=tiny_detr.dab(), rtdetr=tiny_detr.rtdetr(),
    dfine=tiny_detr.dfine(), rfdetr=tiny_detr.rfdetr())
#: Those whose raw graph is none that another test exports.
RAW = ('dino', 'two_stages', 'conditional', 'dab', 'rtdetr', 'dfine', 'rfdetr')


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('name, decode', [
    pytest.param(name, decode, marks=() if decode and name == 'dino' else pytest.mark.slow)
    for name in FAMILY for decode in (True, False)[:1 + (name in RAW)]])
def test_queries_are_those_of_predict(name, decode, tmp_path):
    """Boxes of the family of DETR at sizes that no test of the exporter has seen, or the raw
    outputs of several images."""
    model = tiny_detr.build(FAMILY[name]).eval()
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'weights.pth')
    path, weights = tmp_path / 'model.onnx', str(tmp_path / 'weights.pth')
    _, check = export(config(FAMILY[name]), weights, path, size=(96, 128), decode=decode)
    assert check.difference < 1e-4
    if not decode:
        assert len({images for images, *_ in check.sizes}) == 2
        return
    run = onnx_runner(path)
    for size in ((96, 128), (64, 64), (77, 90), (129, 70), (160, 40), (33, 200), (200, 300)):
        data = tiny_detr.images((size,))
        expected, = tiny_detr.predict(model, data)
        boxes, scores, labels = run(data['inputs'][0][None].float())
        torch.testing.assert_close(boxes, expected.bboxes, atol=1e-2, rtol=1e-4)
        torch.testing.assert_close(scores, expected.scores, atol=1e-5, rtol=0)
        assert labels.tolist() == expected.labels.tolist()


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
    model.cfg, model.dataset_meta = cfg, dict(classes=('a', 'b', 'c'), palette=[(0, 0, 255)] * 3)
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'weights.pth')
    path = tmp_path / 'boxes.onnx'
    notes, check = export(cfg, str(tmp_path / 'weights.pth'), path, decode=True, size=(96, 128))
    assert check.difference < 1e-4 and check.boxes > 20
    assert notes['outputs'] == ['boxes', 'scores', 'labels']
    run, rng, counts = onnx_runner(path), np.random.default_rng(0), set()
    for size in PICTURES:
        pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
        expected = mmposenc.predict(model, pixels, score_thr=0.0)
        resized = np.ascontiguousarray(mmcv.imrescale(pixels, (500, 330)).transpose(2, 0, 1))
        boxes, scores, labels = run(torch.from_numpy(resized[None]).float())
        scale = boxes.new_tensor([resized.shape[2] / size[1], resized.shape[1] / size[0]]).repeat(2)
        np.testing.assert_allclose(boxes / scale, expected.boxes, atol=1e-2, rtol=1e-4)
        np.testing.assert_allclose(scores, expected.scores, atol=1e-4, rtol=0)
        assert labels.tolist() == expected.labels.tolist()
        counts.add(len(boxes))
    assert max(counts) > 5 and len(counts) > 1


def test_maps_of_a_padded_segmentor_are_those_of_predict(tmp_path):
    """Of one image and of two, to the logits of each pixel."""
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
    export(cfg, str(tmp_path / 'weights.pth'), tmp_path / 'model.onnx', size=(96, 128))
    run = onnx_runner(tmp_path / 'model.onnx')
    for size in ((77, 90), (96, 64), (50, 121)):
        pixels = torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8)
        samples = [SegDataSample(metainfo=dict(img_shape=size, ori_shape=size)) for _ in pixels]
        with torch.no_grad():
            expected = model.test_step(dict(inputs=list(pixels), data_samples=samples))
        logits, = run(pixels.float())
        torch.testing.assert_close(logits, torch.stack([each.seg_logits.data for each in expected]),
                                   atol=1e-5, rtol=1e-4)


def test_boxes_are_compared_in_pictures_of_the_test_data(tmp_path):
    """A file that finds none is refused."""
    steps = [dict(type='LoadImageFromFile'), dict(type='PackDetInputs')]
    cfg = config(dense('RetinaNet'), test_dataloader=dict(dataset=coco_node(
        make_coco(tmp_path), test_mode=True, pipeline=steps)))
    raw, seen = Detections(responding(cfg)), []
    notes = dict(channels='RGB', height=[33, None], width=[33, None])

    def compared(run):
        return compare_with_model(raw, run, torch.ones(1, 3, 96, 128), notes,
                                  pictures_of_test_data(cfg, notes), 1e-4)
    found = compared(lambda images: seen.append(images) or raw(images))
    assert found.boxes > 10 and len(found.sizes) == 5 and found.difference == 0
    first = cv2.imread(str(min((tmp_path / 'images').iterdir())))[..., ::-1].astype(np.float32)
    pixels = torch.from_numpy(first.copy()).permute(2, 0, 1)
    torch.testing.assert_close(seen[0], F.interpolate(pixels[None], (96, 128), mode='bilinear'))
    with pytest.raises(RuntimeError, match='the model finds [0-9]+ boxes, and the file 0; the file '
                                           'is not kept. Export without --decode'):
        compared(lambda images: (torch.empty(0, 4), torch.empty(0), torch.empty(0)))


@pytest.mark.parametrize('channels, options, named', [
    (1, {}, 'grey'), (3, {}, 'BGR'), (3, dict(bgr_to_rgb=True), 'RGB')])
def test_the_file_names_its_channels_and_says_how_predict_resizes(channels, options, named):
    resize = dict(type='mmdet.Resize', scale=(400, 300), keep_ratio=True)
    pipeline = [dict(type='mmposenc.LoadImageFromFile'), resize, dict(type='CenterCrop'),
                dict(type='LoadAnnotations'), dict(type='PackDetInputs')]
    cfg = config(dict(backbone=dict(in_channels=channels),
                      data_preprocessor=dict(type='DetDataPreprocessor', **options)),
                 test_dataloader=dict(dataset=dict(pipeline=pipeline)))
    assert module.order_of_channels(ParsedConfig(cfg)) == named
    assert module.steps_before_the_network(ParsedConfig(cfg)) == [resize, dict(type='CenterCrop')]
    assert module.steps_before_the_network(ParsedConfig(config({}))) == []


def test_differences_are_shares_of_the_largest_number_too():
    """Logits of a model that has begun to train: all near -4.6."""
    model = torch.nn.Module()
    model.forward = lambda images, mode: images * 1e-3 - 4.6
    raw, images = RawOutputs(model), torch.rand(1, 3, 4, 4)
    ours = raw(images)
    (_, rounded), = raw.named_differences(images, ours, [ours[0] + 1.4e-6])
    (_, of_other_shape), = raw.named_differences(images, ours, [ours[0][:, :2]])
    assert rounded < 1e-6 and of_other_shape == float('inf')


def test_a_wrong_file_is_not_kept(tmp_path, monkeypatch):
    """Neither under its name nor beside it; the old one stays."""
    path = tmp_path / 'model.onnx'
    path.write_bytes(b'old')
    monkeypatch.setattr(module, '_exported_program', lambda *args: None)
    monkeypatch.setattr(module, '_size_limits',
                        lambda *args: dict(height=[1, None], width=[1, None]))
    monkeypatch.setattr(module, '_write_onnx',
                        lambda program, path, notes: path.write_bytes(b'new'))
    monkeypatch.setattr(module, 'onnx_runner', lambda path: lambda images: (
        torch.zeros(len(images), 5, 4), torch.zeros(len(images), 5, 4)))
    with pytest.raises(RuntimeError, match='more than tolerance=0.01; the file is not kept'):
        export(config(detr()), None, path, size=(64, 64), overwrite=True, tolerance=0.01)
    assert path.read_bytes() == b'old' and list(tmp_path.iterdir()) == [path]


def padded(model):
    return {**model, 'data_preprocessor': {**model['data_preprocessor'], 'pad_size_divisor': 32}}


@pytest.mark.parametrize('cfg, options, match', [
    (config(detr('DETR')), {}, "model.type='DETR' is mmdet's, .* write 'mmposenc.DETR'"),
    (config(padded(detr(backbone=BACKBONE))), {},
     r'data_preprocessor pads pictures, and DETR leaves padding out, .*pad_size_divisor=1'),
    (config(ddq()), {}, 'decoder is a DDQTransformerDecoder: its layers choose queries by supp'),
    (config(dense('RetinaNet')), dict(size=(32, 64)),
     r'size=\(32, 64\): the graph of this example would hold only for heights from '),
    (config(dense('RetinaNet', nms=dict(type='soft_nms'))), dict(decode=True),
     r"test_cfg.nms.type='soft_nms' must be 'nms'")])
def test_what_can_not_be(tmp_path, cfg, options, match):
    """More of it is in tests/tools/wrong_command_lines.yaml."""
    with pytest.raises(ValueError, match=match):
        export(cfg, None, tmp_path / 'model.onnx', **options)


def test_missing_packages(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)
    with pytest.raises(ValueError, match='pip install onnx onnxscript onnxruntime'):
        export(config(detr()), None, tmp_path / 'model.onnx')
