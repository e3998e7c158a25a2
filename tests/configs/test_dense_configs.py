"""Detectors and segmentors: the models and recipes of OpenMMLab; published weights are fetched by
training alone, and where a file of them goes. Steps: test_gradients.py."""
import urllib.error
from typing import Any

import pytest
import torch
from helpers.scripts import short
from helpers.tiny_backbones import unfilled

from mmposenc.checkpoint import mmengine_loading
from mmposenc.engine import load_config
from mmposenc.engine.config.checks import check_num_classes
from mmposenc.engine.config.models import build_model
from mmposenc.engine.config.parsed import ParsedConfig


def load(name: str):
    return load_config(name if '::' in name else f'mmposenc::{name}')


def build(cfg):
    """The whole model, without its numbers."""
    with unfilled():
        return build_model(cfg)


def shapes(model):
    return {name: value.shape for name, value in model.state_dict().items()}


#: Models that mmdet and mmseg have too, and theirs.
TWINS = {'pvt-m-peg-gap': 'pcpvt-b', 'pvt-l-peg-gap': 'pcpvt-l', 'svt-s': 'svt-s',
         'svt-b': 'svt-b', 'svt-l': 'svt-l'}
SAME = {
    **{f'detection/pvt/retinanet_pvt-v2-b{size}_fpn_1x_coco':
       f'mmdet::pvt/retinanet_pvtv2-b{size}_fpn_1x_coco' for size in range(6)},
    **{f'segmentation/segformer/segformer_mit-b{size}_8xb2-160k_ade20k-512x512':
       f'mmseg::segformer/segformer_mit-b{size}_8xb2-160k_ade20k-512x512' for size in range(6)},
    **{f'segmentation/sem_fpn/fpn_{name}_8xb4-80k_ade20k-512x512':
       f'mmseg::twins/twins_{theirs}_fpn_fpnhead_8xb4-80k_ade20k-512x512'
       for name, theirs in {'pvt-s-peg-gap': 'pcpvt-s', **TWINS}.items()},
    **{f'segmentation/upernet/upernet_{name}_8xb2-160k_ade20k-512x512':
       f'mmseg::twins/twins_{theirs}_uperhead_8xb2-160k_ade20k-512x512'
       for name, theirs in TWINS.items()}}


@pytest.mark.parametrize('name', short(
    SAME, 'detection/pvt/retinanet_pvt-v2-b0_fpn_1x_coco',
    'segmentation/segformer/segformer_mit-b1_8xb2-160k_ade20k-512x512',
    'segmentation/sem_fpn/fpn_pvt-s-peg-gap_8xb4-80k_ade20k-512x512',
    'segmentation/upernet/upernet_svt-s_8xb2-160k_ade20k-512x512'))
def test_models_and_recipes_of_openmmlab(name: str) -> None:
    ours, theirs = (_numbers(load(f'{each}.py')) for each in (name, SAME[name]))
    assert ours == theirs and ours['rates']


def _numbers(cfg) -> dict[str, Any]:
    model, optimizer = build(cfg), cfg.optim_wrapper.optimizer
    rates = {round(float(each.drop_prob), 6) for each in model.backbone.modules()
             if type(each).__name__ == 'DropPath' and each.drop_prob}
    return dict(parameters=sum(each.numel() for each in model.parameters()), rates=rates,
                lr=optimizer.lr, weight_decay=optimizer.weight_decay,
                batch_size=cfg.train_dataloader.batch_size,
                length=(cfg.train_cfg.get('max_epochs'), cfg.train_cfg.get('max_iters')))


@pytest.mark.parametrize('name, theirs', [
    ('detr/detr_r50_8xb2-150e_coco.py', 'mmdet::detr/detr_r50_8xb2-150e_coco.py'),
    ('deformable_detr/deformable-detr_r50_16xb2-50e_coco.py',
     'mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco.py'),
    *((name, f'mmdet::{name}') for name in (
        'conditional_detr/conditional-detr_r50_8xb2-50e_coco.py',
        'dab_detr/dab-detr_r50_8xb2-50e_coco.py', 'dino/dino-4scale_r50_8xb2-12e_coco.py',
        'ddq/ddq-detr-4scale_r50_8xb2-12e_coco.py'))])
def test_mmdets_checkpoints_fit(name: str, theirs: str) -> None:
    """Parameters have mmdet's names and shapes, so its files load with strict=True; what else the
    parts are made of, dropout and activations among it, is mmdet's too."""
    ours, upstream = load(f'detection/{name}'), load(theirs)
    for key in ('num_queries', 'positional_encoding', 'train_cfg', 'test_cfg', 'dn_cfg', 'dqs_cfg',
                'dense_topk_ratio', 'with_random_refpoints', 'num_patterns'):
        assert ours.model.get(key) == upstream.model.get(key), key
    for key in ('type', 'loss_cls', 'loss_bbox', 'loss_iou', 'num_classes'):
        assert ours.model.bbox_head[key] == upstream.model.bbox_head[key], key
    # As published; the installed mmdet's own config may not be.
    assert ours.model.decoder.pop('coordinate_feats', 128) == 128
    ours, upstream = build(ours), build(upstream)
    assert shapes(ours) == shapes(upstream) and _parts(ours) == _parts(upstream)


def _parts(model) -> dict[str, str]:
    """Modules of encoder and decoder that hold no others, and the dropout of attention. Ours are
    not in place, which a full backward hook of the layer before would forbid."""
    return {name: repr(module).replace('inplace=True', '')
            if not list(module.children()) else str(module.dropout)
            for coder in (model.encoder, model.decoder) for name, module in coder.named_modules()
            if 'pos_encodings' not in name and not isinstance(module, torch.nn.Identity)
            and (not list(module.children()) or isinstance(module, torch.nn.MultiheadAttention))}


def head_of(cfg):
    return cfg.model.get('panoptic_head') or cfg.model.decode_head


@pytest.mark.parametrize('package, kind, name', [
    ('mmdet', 'detection', 'mask2former_r50_8xb2-lsj-50e_coco.py'),
    ('mmseg', 'segmentation', 'mask2former_r50_8xb2-160k_ade20k-512x512.py')])
def test_mask2former_is_upstreams(package: str, kind: str, name: str) -> None:
    ours, theirs = load(f'{kind}/mask2former/{name}'), load(f'{package}::mask2former/{name}')
    for key in ('loss_cls', 'loss_mask', 'loss_dice', 'num_queries', 'strides', 'in_channels',
                'positional_encoding', 'num_transformer_feat_level', 'train_cfg'):
        assert head_of(ours).get(key) == head_of(theirs).get(key), key
    for key in ('test_cfg', 'train_cfg'):
        assert ours.model.get(key) == theirs.model[key], key
    assert ours.model.backbone == {k: v for k, v in theirs.model.backbone.items()
                                   if k != 'deep_stem'}
    for key in ('optimizer', 'clip_grad'):
        assert ours.optim_wrapper[key] == theirs.optim_wrapper[key], key
    schedulers = theirs.param_scheduler
    assert ours.param_scheduler[-1] == (
        schedulers if isinstance(schedulers, dict) else schedulers[-1])
    assert ours.train_cfg.max_iters == theirs.train_cfg.max_iters == ours.param_scheduler[-1].end
    assert ours.train_dataloader.batch_size == theirs.train_dataloader.batch_size == 2
    assert ours.train_dataloader.sampler.type == 'InfiniteSampler'
    assert ours.default_hooks.checkpoint.by_epoch is ours.log_processor.by_epoch is False
    check_num_classes(ParsedConfig(ours), ('train', 'val', 'test'))
    assert shapes(build(ours)) == shapes(build(theirs))


HOST = ('https://github.com/huggingface/pytorch-image-models/releases/download/v0.1-vt3p-weights/')
FILE = 'twins_pcpvt_small-e70e7e7a.pth'
FLAGSHIP = 'mmposenc::detection/mask_rcnn/mask-rcnn_pvt-s-peg-gap_fpn_1x_coco.py'


def test_building_a_model_downloads_nothing(monkeypatch) -> None:
    """Only init_weights does, which training alone calls."""
    monkeypatch.setattr(torch.hub, 'download_url_to_file',
                        lambda *args: pytest.fail(f'{args} would be downloaded'))
    build(load_config(FLAGSHIP))


def test_without_a_network_the_message_says_where_the_file_goes(monkeypatch, tmp_path) -> None:
    def no_network(*args: Any) -> None:
        raise urllib.error.URLError('no route to host')
    monkeypatch.setattr(torch.hub, 'download_url_to_file', no_network)
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path))
    place = tmp_path / 'checkpoints' / FILE
    with pytest.raises(OSError, match=f'{HOST}.* could not be downloaded: .*no route to host.*'
                                      f'Put the file at {place}, or name one of yours'):
        mmengine_loading.load_url(HOST + FILE)
    torch.save({'a': torch.ones(1)}, place)
    assert mmengine_loading.load_url(HOST + FILE)['a'] == 1
