"""Whole detectors: files of the official Deformable DETR give, converted, what the official model
gives; names of the DETR and iRPE-DETR releases. (Values of these: tests/detr/test_goldens.py.)"""
import json
import math
import re

import numpy as np
import pytest
import torch
from helpers.golden_files import GOLDEN_DIR, load_golden
from helpers.tiny_backbones import KINDS

from mmposenc.backbones.arch_of_weights import needed_options
from mmposenc.checkpoint import convert, convert_with_report
from mmposenc.checkpoint.detr import COCO_IDS
from mmposenc.functional.extents import extents_to_mask

HIDDEN, QUERIES, LAYERS, WIDTH, HEADS, POINTS = 24, 5, 2, 4, 4, 2
Params = dict[str, torch.Tensor]
ONE_BRANCH = ('single scale', 'multi-scale', 'two stages, one branch', 'twenty classes')
UNSCALED = ('transformer.level_embed', 'query_embed.weight')


def numbers(rng: np.random.RandomState, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).float()


def release(case: str) -> Params:
    """A file as the release saves it, of a small model with random weights."""
    shapes = json.loads((GOLDEN_DIR / 'deformable_detr.json').read_text())
    shapes = {**shapes['all'], **shapes[case]}
    rng = np.random.RandomState(0)  # whose numbers are the same everywhere
    p: Params = {}
    for name, shape in shapes.items():
        module, _, kind = name.rpartition('.')
        first = re.sub(r'_embed\.\d', '_embed.0', name).removeprefix('transformer.decoder.')
        if name.startswith('transformer.decoder.') and '_embed.' in name:  # held twice
            p[name] = p[name.removeprefix('transformer.decoder.')]
        elif case in ONE_BRANCH and first in p:  # for all layers
            p[name] = p[first]
        elif len(shapes.get(f'{module}.weight', ())) == 1:  # a norm's
            p[name] = 0.2 * numbers(rng, *shape) + (kind in ('weight', 'running_var'))
        else:
            fan = 1 if name in UNSCALED else math.prod(shape[1:])
            p[name] = numbers(rng, *shape) * ((1.0 if len(shape) > 1 else 0.3) / fan ** 0.5)
    return p


def detector(name: str, **kwargs: bool) -> torch.nn.Module:
    """A config of this project, at the size of :func:`release`."""
    from mmengine.registry import MODELS, init_default_scope

    from mmposenc.engine import load_config
    init_default_scope('mmdet')
    cfg = load_config(f'mmposenc::detection/deformable_detr/{name}_16xb2-50e_coco.py').model
    cfg.update(num_queries=QUERIES, **kwargs)
    cfg.backbone.update(base_channels=WIDTH, stem_channels=WIDTH, init_cfg=None)
    cfg.neck.bias = True
    cfg.neck.in_channels = [channels * WIDTH // 64 for channels in cfg.neck.in_channels]
    for coder, attentions in (('encoder', ['self_attn_cfg']),
                              ('decoder', ['self_attn_cfg', 'cross_attn_cfg'])):
        cfg[coder].num_layers = LAYERS
        cfg[coder].layer_cfg.ffn_cfg.feedforward_channels = HIDDEN
        for attention in attentions:
            cfg[coder].layer_cfg[attention].num_heads = HEADS
            if 'num_points' in cfg[coder].layer_cfg[attention]:
                cfg[coder].layer_cfg[attention].num_points = POINTS
    return MODELS.build(cfg).eval()


#: The config, and the release's names and shapes of the case; those of dilation are as without.
CASES = {
    'single scale': ('deformable-detr_r50-ss', 'single scale'),
    'dc5': ('deformable-detr_r50-dc5', 'single scale'),
    **{case: ('deformable-detr_r50', case) for case in ('multi-scale', 'refinement', 'two stages')}}
SIZES = ((96, 96), (64, 128))


@pytest.mark.parametrize('case', CASES)
def test_scores_and_boxes_are_the_releases(case) -> None:
    """Of two images, of which one is padded in height and one in width."""
    from mmdet.structures import DetDataSample
    config, names = CASES[case]
    model = detector(config, with_box_refine=case in ('refinement', 'two stages'),
                     as_two_stage=case == 'two stages')
    model.load_state_dict(convert(release(names), 'deformable-detr'))
    height, width = (max(sides) for sides in zip(*SIZES, strict=True))
    padding = extents_to_mask(list(SIZES), (height, width), torch.device('cpu')).cells
    images = numbers(np.random.RandomState(1), 2, 3, height, width)
    images = images.masked_fill(padding[:, None], 0)
    samples = [DetDataSample(metainfo=dict(img_shape=size, batch_input_shape=(height, width)))
               for size in SIZES]
    with torch.no_grad():
        classes, boxes = model(images, samples, mode='tensor')[:2]
    _, expected = load_golden('deformable_detr')
    expected_classes, expected_boxes = (expected[f'{case}.{key}'] for key in ('classes', 'boxes'))
    close = dict(rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(boxes, expected_boxes, **close)
    torch.testing.assert_close(classes, expected_classes[..., list(COCO_IDS)], **close)
    assert expected_boxes[..., :2].std(2).min() > 1e-2  # queries that differ


def test_rows_of_classes_are_cocos_but_that_which_scores_proposals() -> None:
    """Files of other classes keep theirs."""
    source = release('two stages')
    for branch, first in ((LAYERS, 0), (0, 1)):
        rows = convert(source, 'deformable-detr')[f'bbox_head.cls_branches.{branch}.weight']
        assert torch.equal(rows[0], source[f'class_embed.{branch}.weight'][first])
        assert torch.equal(rows[79], source[f'class_embed.{branch}.weight'][90])
    source = release('twenty classes')
    assert torch.equal(convert(source, 'deformable-detr')['bbox_head.cls_branches.2.weight'],
                       source['class_embed.2.weight'])
    with pytest.raises(ValueError, match='without box refinement .*one shared branch of 91'):
        convert(release('two stages, one branch'), 'deformable-detr')


@pytest.mark.parametrize('case, needs', [
    ('single scale', ['neck.bias=True']),
    ('two stages', ['neck.bias=True', 'with_box_refine=True', 'as_two_stage=True'])])
def test_what_the_model_needs_and_what_the_decoder_holds_once_more(case, needs) -> None:
    source = release(case)
    report = convert_with_report(source, 'deformable-detr')
    assert needed_options(report.state_dict, KINDS) == [f'model.{option}' for option in needs]
    twice = [name for name in source if name.startswith('transformer.decoder.') and 'embed' in name]
    assert list(report.dropped) == twice


def irpe_release(num_classes: int = 92) -> dict[str, torch.Tensor]:
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
    from helpers.tiny_detr import IRPE, build, detr, resnet
    cfg = detr(dims=32, backbone=resnet(out_indices=(3,)), channels=32, decoder=dict(num_layers=1),
               attn=dict(rel_pos_encoding=IRPE, num_heads=4))
    for coder in ('encoder', 'decoder'):
        cfg[coder]['layer_cfg']['ffn_cfg'].update(feedforward_channels=48)
    cfg['bbox_head'].update(num_classes=80)
    model = build(cfg)
    source = irpe_release()
    converted = convert({f'module.{name}': value for name, value in source.items()}, 'irpe-detr')
    fit = model.load_state_dict(converted, strict=False)
    assert not fit.unexpected_keys
    assert all(name.startswith('backbone.') for name in fit.missing_keys)
    assert torch.equal(model.bbox_head.fc_reg.weight, source['bbox_embed.layers.2.weight'])
    assert converted['backbone.layer4.1.bn2.num_batches_tracked'] == 0


def test_classes_are_cocos_eighty_and_no_object() -> None:
    source = irpe_release()
    rows = convert(source, 'irpe-detr')['bbox_head.fc_cls.weight']
    assert rows.shape == (81, 32) and len(COCO_IDS) == 80
    assert torch.equal(rows[0], source['class_embed.weight'][1])  # person
    assert torch.equal(rows[79], source['class_embed.weight'][90])  # toothbrush
    assert torch.equal(rows[80], source['class_embed.weight'][91])  # no object
    other = irpe_release(num_classes=4)
    assert torch.equal(convert(other, 'irpe-detr')['bbox_head.fc_cls.weight'],
                       other['class_embed.weight'])
