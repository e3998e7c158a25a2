"""EoMT in mmseg and mmdet: Mask2Former's losses, predictions of any size, and the annealed masks."""
import pytest
import torch
from helpers.default_scope import scope_fixture
from helpers.golden_files import assert_released, load_golden
from mmdet.registry import MODELS as DETECTORS
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.structures import InstanceData, PixelData
from mmseg.registry import MODELS as SEGMENTORS
from mmseg.structures import SegDataSample

from mmposenc.backbones import load_pretrained
from mmposenc.openmmlab.mmdet import EoMTHead

BACKBONE = dict(type='mmposenc.EoMT', embed_dims=16, num_layers=3, num_heads=2, patch_size=8,
                img_size=32, class_token=True, register_tokens=2, mlp_ratio=2,
                layer_scale_init_value=1.0, num_classes=3, num_queries=5, query_blocks=2,
                pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding', num_prefix_embeds=0),
                mask_padding=True)
scope = scope_fixture('mmdet')


def numbers_of_a_shape(*shape, **options):
    """What torch.rand gave to the releases: the seed is the sum of the shape."""
    shape = shape if isinstance(shape[0], int) else shape[0]
    return torch.empty(*shape).uniform_(generator=torch.Generator().manual_seed(sum(shape)))


def test_losses_are_those_of_the_releases(monkeypatch):
    """Of an image with two objects and one without any."""
    params, arrays = load_golden('eomt_dinov2')
    backbone = DETECTORS.build(BACKBONE).train()
    load_pretrained(backbone, params)
    backbone.predictor.mask_probs.fill_(1)
    head = EoMTHead(num_things_classes=3, num_queries=5, train_cfg=dict(num_points=24))
    samples = [sample(arrays[f'labels.{i}'], arrays[f'masks.{i}']) for i in range(2)]
    monkeypatch.setattr(torch, 'rand', numbers_of_a_shape)
    losses = head.loss(backbone(arrays['x'], [(32, 32)] * 2), samples)
    assert len(losses) == 9
    for level in range(3):
        for ours, theirs in (('cls', 'cross_entropy'), ('mask', 'mask'), ('dice', 'dice')):
            name = f'loss_{ours}' if level == 2 else f'd{level}.loss_{ours}'
            assert_released(losses[name].squeeze(), arrays[f'loss_{theirs}.{level}'])


def sample(labels, masks, **meta):
    size = tuple(masks.shape[1:])
    found = DetDataSample(metainfo=dict(img_shape=size, ori_shape=size, scale_factor=(1, 1), **meta))
    found.gt_instances = InstanceData(
        labels=labels, masks=BitmapMasks(masks.numpy().astype('uint8'), *size),
        bboxes=torch.zeros(len(labels), 4))
    return found
