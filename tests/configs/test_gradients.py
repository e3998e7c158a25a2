"""Families of configs, with few channels, train a step: a finite loss, and a gradient for every
trained weight, as several processes need it."""
from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.model.utils import revert_sync_batchnorm
from mmengine.registry import DefaultScope
from optimizer_checks import build_optimizer, without_gradient
from scripts import short
from tinymodels import build, collated, samples, shrink

import mmposenc  # noqa: F401
from mmposenc.engine import load_config
from mmposenc.operators import papers

ROOT = Path(__file__).resolve().parents[2] / 'configs'
#: Of each family (a base model with a recipe) one; of those that are missing here a step is in the
#: test of their own folder.
FAMILIES = (
    'classification/context_pool/cp-resnet-44_1xb128_cifar10',
    'classification/context_pool/cp-resnet-50_8xb32_in1k',
    'classification/context_pool/cp-swin-b_8xb128_in1k',
    'classification/context_pool/cp-vit-b-weights-nonlocal_8xb128_in1k',
    'classification/context_pool/deform-resnet-50_8xb32_in1k',
    'classification/cpvt/cpvt-s-0-5-gap_8xb128_in1k',
    'classification/cpvt/cpvt-ti-fixed_8xb128_in1k',
    'classification/deit/deit-ti-distilled_8xb128_in1k',
    'classification/deit/deit-ti-learned-rpe2d_8xb128_in1k',
    'classification/irpe/deit-s_irpe-qkv_8xb128_in1k',
    'classification/irpe/deit-s_transformer-xl_8xb128_in1k',
    'classification/large/deit-l_8xb128-fsdp2_in1k',
    'classification/pvt/pvt-t-peg-gap_8xb128_in1k',
    'classification/small/deit-micro-cp-peg_1xb32-40e_mnist5k',
    'classification/small/pvt-micro-learned_1xb32-2e_fashion',
    'classification/swin/swin-t-bias-peg_8xb128_in1k',
    'classification/swinv2/swinv2-t-w8_8xb128_in1k-256px',
    'classification/transfer/deit-b_irpe-k_8xb32_cars',
    'detection/context_pool/retinanet_cp-pvt-t_fpn_1x_coco',
    'detection/context_pool/retinanet_cp-swin-t_fpn_1x_coco',
    'detection/mask_rcnn/mask-rcnn_deit-s_irpe-k_sfp_1x_coco',
    'detection/mask_rcnn/mask-rcnn_swinv2-t_fpn_1x_coco',
    'detection/pvt/retinanet_pvt-t-peg-gap_fpn_1x_coco',
    'detection/pvt/retinanet_pvt-t_fpn_1x_coco',
    'detection/pvt/retinanet_pvt-v2-b0_fpn_1x_coco',
    'detection/retinanet/retinanet_deit-s-peg_sfp_1x_coco',
    'detection/retinanet/retinanet_pvt-s_irpe-k_fpn_1x_coco',
    'detection/retinanet/retinanet_swin-t_irpe-qkv_fpn_1x_coco',
    'detection/small/conditional-detr_r18-w16_1xb4-50e_bccd',
    'detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_trees',
    'detection/small/retinanet_r18-w16_fpn_1xb4-12e_bccd',
    'detection/small/retinanet_vit-s14_sfp_1xb4-10e_trees',
    'segmentation/context_pool/fpn_cp-pvt-t_8xb2-80k_ade20k-512x512',
    'segmentation/sem_fpn/fpn_deit-s_irpe-k_8xb4-40k_ade20k-512x512',
    'segmentation/sem_fpn/fpn_pvt-t-peg-gap_8xb4-40k_ade20k-512x512',
    'segmentation/small/linear_vit-s14_1xb4-10e_nuclei-448x448',
    'segmentation/small/fpn_pvt-micro-cp_1xb4-10e_camvid-192x256',
    'segmentation/segformer/segformer_mit-b1_8xb2-160k_ade20k-512x512',
    'segmentation/upernet/upernet_pvt-s-peg-gap_8xb2-160k_ade20k-512x512',
    'segmentation/upernet/upernet_svt-s_8xb2-160k_ade20k-512x512',
    'segmentation/upernet/upernet_swinv2-t_8xb2-160k_ade20k-512x512')
OWN = {f'detection/{name}' for name in (
    'conditional_detr', 'dab_detr', 'ddq', 'deformable_detr', 'detr', 'dino', 'mask2former',
    'pretrained', 'vitdet')} | {'segmentation/mask2former', 'segmentation/pretrained'}


def step(model, data) -> tuple[list[str], bool]:
    """Weights without a gradient, and whether the loss is finite."""
    parse, losses = model.parse_losses, []

    def noted(found):
        losses.append(parse(found))
        return losses[-1]
    model.parse_losses = noted
    names = without_gradient(model, data)
    (loss, _), = losses
    return names, bool(loss.isfinite())


def check_name(name: str, cfg: Config) -> None:
    """A config trains as its name says: GPUs x images, epochs or thousands of steps."""
    if said := re.search(r'_(\d+)xb(\d+)', name):
        gpus, images = map(int, said.groups())
        assert cfg.train_dataloader.batch_size == images
        assert cfg.get('auto_scale_lr', {}).get('base_batch_size', gpus * images) == gpus * images
    if said := re.search(r'-(\d+)([ek])[_-]', name):
        length, unit = int(said[1]), said[2]
        assert (cfg.train_cfg.max_epochs == length if unit == 'e'
                else cfg.train_cfg.max_iters == 1000 * length)
        assert cfg.param_scheduler[-1].get('end', cfg.train_cfg.get('max_epochs')) in (
            length, 1000 * length)


def test_no_folder_is_forgotten() -> None:
    folders = {str(path.parent.relative_to(ROOT)) for path in ROOT.glob('*/*/*.py')
               if '_base_' not in path.parts}
    folders |= {entry['folder'] for entry in papers.models().values()}
    assert {name.rpartition('/')[0] for name in FAMILIES} | OWN == folders


#: Of each folder one, and of what its folder has besides.
SHORT = {*{name.rpartition('/')[0]: name for name in FAMILIES}.values(),
         'classification/deit/deit-ti-distilled_8xb128_in1k',
         'classification/context_pool/cp-vit-b-weights-nonlocal_8xb128_in1k',
         'detection/mask_rcnn/mask-rcnn_deit-s_irpe-k_sfp_1x_coco'}


@pytest.mark.parametrize('name', short(FAMILIES, *SHORT))
def test_a_family_trains_a_step_and_predicts(name: str) -> None:
    cfg = load_config(f'mmposenc::{name}.py')
    check_name(name, cfg)
    shrink(cfg)
    # A detector's memory that nobody has written may hold NaN, which can't be matched.
    model = revert_sync_batchnorm(build(cfg, initialize=cfg.default_scope != 'mmpretrain'))
    assert step(model, collated(samples(cfg, 2))) == ([], True)
    decays = {id(group['params'][0]): group['weight_decay']
              for group in build_optimizer(model, cfg).optimizer.param_groups}
    for key, parameter in model.named_parameters():
        if 'pos_proj' in key or not parameter.requires_grad:
            continue  # Transformer-XL's projection is a layer like others
        if 'pos_encoding' in key or 'logit_scale' in key:
            assert decays[id(parameter)] == 0, key
    with DefaultScope.overwrite_default_scope(cfg.default_scope), torch.no_grad():
        data = model.eval().data_preprocessor(collated(samples(cfg, 2)), training=False)
        found = model(**data, mode='predict')
    assert len(found) == 2
    assert ('masks' in found[0].get('pred_instances', {})) == ('mask_rcnn' in name)


def test_a_weight_without_a_gradient_is_found() -> None:
    """RetinaNet on all four stages, the first of which FPN does not take."""
    cfg = shrink(load_config(str(
        ROOT / 'detection/context_pool/retinanet_swin-t_fpn_1x_coco.py')))
    cfg.model.backbone.out_indices = (0, 1, 2, 3)
    cfg.model.neck.update(in_channels=[4, 8, 16, 32], start_level=1)
    found = without_gradient(build(cfg), collated(samples(cfg, 2)))
    assert found == ['backbone.norm0.weight', 'backbone.norm0.bias']
