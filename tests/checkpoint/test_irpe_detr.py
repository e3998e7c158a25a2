"""Names of the DETR and iRPE-DETR releases, whole detectors. (Values: tests/detr/test_goldens.)"""
import pytest
import torch
from helpers.golden_files import load_golden

from mmposenc.checkpoint import convert
from mmposenc.checkpoint.detr import COCO_IDS


def release(num_classes: int = 92) -> dict[str, torch.Tensor]:
    """The release's transformer, and all else that its file has, of 32 channels."""
    params, _ = load_golden('detr_irpe_31_rpe-2.0-product-ctx-1-k')
    shapes = {'query_embed.weight': (5, 32), 'input_proj.weight': (32, 32, 1, 1),
              'input_proj.bias': (32,), 'class_embed.weight': (num_classes, 32),
              'class_embed.bias': (num_classes,), 'backbone.0.body.conv1.weight': (4, 3, 7, 7),
              'backbone.0.body.layer4.1.bn2.running_var': (32,)}
    for i, rows in enumerate((32, 32, 4)):
        shapes |= {f'bbox_embed.layers.{i}.weight': (rows, 32), f'bbox_embed.layers.{i}.bias': (
            rows,)}
    return {**{f'transformer.{name}': value for name, value in params.items()},
            **{name: torch.randn(shape) for name, shape in shapes.items()}}


def test_whole_detector_fits_ours() -> None:
    pytest.importorskip('mmdet')
    from helpers.tiny_detr import IRPE, build, detr, resnet
    cfg = detr(dims=32, backbone=resnet(out_indices=(3,)), channels=32, decoder=dict(num_layers=1),
               attn=dict(rel_pos_encoding=IRPE, num_heads=4))
    for coder in ('encoder', 'decoder'):
        cfg[coder]['layer_cfg']['ffn_cfg'].update(feedforward_channels=48)
    cfg['bbox_head'].update(num_classes=80)
    model = build(cfg)
    source = release()
    converted = convert({f'module.{name}': value for name, value in source.items()}, 'irpe-detr')
    fit = model.load_state_dict(converted, strict=False)
    assert not fit.unexpected_keys
    assert all(name.startswith('backbone.') for name in fit.missing_keys)
    assert torch.equal(model.bbox_head.fc_reg.weight, source['bbox_embed.layers.2.weight'])
    assert converted['backbone.layer4.1.bn2.num_batches_tracked'] == 0


def test_classes_are_cocos_eighty_and_no_object() -> None:
    source = release()
    rows = convert(source, 'irpe-detr')['bbox_head.fc_cls.weight']
    assert rows.shape == (81, 32) and len(COCO_IDS) == 80
    assert torch.equal(rows[0], source['class_embed.weight'][1])  # person
    assert torch.equal(rows[79], source['class_embed.weight'][90])  # toothbrush
    assert torch.equal(rows[80], source['class_embed.weight'][91])  # no object
    other = release(num_classes=4)
    assert torch.equal(convert(other, 'irpe-detr')['bbox_head.fc_cls.weight'],
                       other['class_embed.weight'])
