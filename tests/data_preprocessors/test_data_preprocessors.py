"""The batch carries its images' sizes as far as the backbone."""
import pytest
import torch
from mmengine import ConfigDict
from scopes import scope_fixture

import mmposenc  # noqa: F401  (before mmdet)
from mmposenc.registry import MODELS

scope = scope_fixture('mmdet')
PVT = dict(type='mmposenc.PVT', embed_dims=(8, 16, 24, 32), num_layers=(1, 1, 1, 1),
           num_heads=(1, 2, 3, 4), mlp_ratios=(2, 2, 2, 2),
           pos_encoding=dict(type='mmposenc.PEG'), mask_padding=True)


def det_data(sizes):
    structures = pytest.importorskip('mmdet.structures')
    torch.manual_seed(0)
    samples = [structures.DetDataSample(metainfo=dict(
        img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0))) for size in sizes]
    return dict(inputs=[torch.randint(0, 255, (3, *s), dtype=torch.uint8) for s in sizes],
                data_samples=samples)


def test_detector_masks_what_its_preprocessor_padded():
    """Through mmdet's own SingleStageDetector: features in a batch equal those alone."""
    pytest.importorskip('mmdet.models')
    from mmdet.registry import MODELS as MMDET_MODELS
    detector = MMDET_MODELS.build(dict(
        type='RetinaNet', backbone=PVT,
        neck=dict(type='FPN', in_channels=[8, 16, 24, 32], out_channels=8, num_outs=4),
        bbox_head=dict(type='RetinaHead', num_classes=2, in_channels=8, feat_channels=8,
                       anchor_generator=dict(type='AnchorGenerator', octave_base_scale=4,
                                             scales_per_octave=1, ratios=[1.0],
                                             strides=[4, 8, 16, 32])),
        test_cfg=ConfigDict(nms_pre=10, score_thr=0.0, nms=dict(type='nms', iou_threshold=0.5),
                            max_per_img=5),
        data_preprocessor=dict(type='mmposenc.DetDataPreprocessor', mean=[120.] * 3,
                               std=[60.] * 3, bgr_to_rgb=True, pad_size_divisor=32))).eval()
    data = det_data([(50, 90), (90, 40)])
    batch = detector.data_preprocessor(data)
    assert batch['inputs'].shape == (2, 3, 96, 96)
    assert batch['inputs'].img_shapes == [(50, 90), (90, 40)]
    seen = []
    detector.backbone.register_forward_hook(lambda module, args, outs: seen.append(outs))
    detector(**batch, mode='predict')
    detector(**batch, mode='tensor')
    for image, size in enumerate([(50, 90), (90, 40)]):
        alone = detector.data_preprocessor(dict(inputs=data['inputs'][image:image + 1],
                                                data_samples=data['data_samples'][image:image + 1]))
        detector(**alone, mode='predict')
        for stage in range(4):
            rows, cols = (-(-side // (4 * 2 ** stage)) for side in size)
            for padded in (seen[0], seen[1]):
                torch.testing.assert_close(padded[stage][image, :, :rows, :cols],
                                           seen[-1][stage][0, :, :rows, :cols],
                                           atol=1e-5, rtol=1e-5)


def test_segmentor_preprocessor_notes_sizes_before_padding():
    structures = pytest.importorskip('mmseg.structures')
    preprocessor = MODELS.build(dict(type='mmposenc.SegDataPreProcessor', size=(64, 64),
                                     pad_val=0, seg_pad_val=255))
    from mmengine.structures import PixelData
    sizes = [(40, 64), (64, 30)]
    samples = [structures.SegDataSample(
        gt_sem_seg=PixelData(data=torch.zeros(1, *s, dtype=torch.long)),
        metainfo=dict(img_shape=s)) for s in sizes]
    batch = preprocessor(dict(inputs=[torch.zeros(3, *s) for s in sizes], data_samples=samples),
                         training=True)
    assert batch['inputs'].shape == (2, 3, 64, 64)
    assert batch['inputs'].img_shapes == sizes
