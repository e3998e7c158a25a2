"""Families of configs, with few channels, train a step and predict: a finite loss, a gradient for
every trained weight, as several processes need it, and for no other; encodings learn and take no
weight decay."""
import re
from pathlib import Path

import pytest
import torch
from helpers.param_groups import build_optimizer, weight_decays, without_gradient
from helpers.scripts import short
from helpers.shrunk_configs import build, collated, samples, shrink
from mmengine.config import Config
from mmengine.model.utils import revert_sync_batchnorm
from mmengine.registry import DefaultScope
from torch import nn

from mmposenc.catalog import papers
from mmposenc.encodings import TokenEncoding, relative_tables
from mmposenc.engine import load_config

ROOT = Path(__file__).resolve().parents[2] / 'configs'
FILES = list(ROOT.glob('[!_]*/*/*.py'))
#: What a folder has besides the kind of its first config.
OTHERS = (
    'classification/context_pool/cp-vit-b-weights-nonlocal_8xb128_in1k',
    'classification/deit/deit-ti-distilled_8xb128_in1k',
    'detection/detr/detr_r50_irpe-clip-ctx-9x9_8xb2-150e_coco',
    'detection/small/retinanet_vit-s14_sfp_1xb4-10e_trees')
#: The same for the long run.
LONG = (
    'classification/context_pool/cp-resnet-44_1xb128_cifar10',
    'classification/context_pool/cp-swin-b_8xb128_in1k',
    'classification/cpvt/cpvt-ti-fixed_8xb128_in1k',
    'detection/deformable_detr/deformable-detr_r50-ss-none-peg_16xb2-50e_coco',
    'detection/detr/detr_r50-dc5_8xb4-50e_coco',
    'detection/detr/detr_swin-t_8xb2-150e_coco',
    'detection/dino/dino-4scale_swin-t-peg_8xb2-12e_coco',
    'detection/pretrained/dino-4scale_dinov3-s_sfp_8xb2-12e_coco',
    'detection/pretrained/eomt_dinov3-s_8xb2-lsj-12e_coco-640x640',
    'detection/pretrained/mask-rcnn_rope-vit-s_sfp_16xb4-lsj-100e_coco',
    'detection/pretrained/retinanet_dinov3-s-windows_sfp_1x_coco',
    'detection/small/retinanet_rope-vit-s_sfp_1xb4-12e_trees',
    'segmentation/pretrained/eomt_dinov3-s_8xb2-20k_ade20k-512x512',
    'segmentation/small/linear_vit-s14_1xb4-10e_nuclei-448x448',
    'segmentation/small/eomt_vit-s14_1xb4-5e_camvid-252x336',
    'segmentation/pretrained/mask2former_dinov3-s_8xb2-160k_ade20k-512x512',
    'segmentation/pretrained/upernet_beit-b_8xb2-160k_ade20k-512x512',
    'segmentation/upernet/upernet_svt-s_8xb2-160k_ade20k-512x512')


def first_of_each_folder() -> list[str]:
    names = [str(path.relative_to(ROOT).with_suffix('')) for path in FILES]
    names += [f'{entry["folder"]}/{name}' for name, entry in papers.models_by_name().items()]
    return list({name.rpartition('/')[0]: name for name in sorted(names, reverse=True)}.values())


SHORT = {*first_of_each_folder(), *OTHERS}


def check_decays(model, cfg: Config) -> None:
    """Encodings have none, nor norms and tokens where the recipe says so, and no matrix besides."""
    decays, options = weight_decays(model, cfg), cfg.optim_wrapper.get('paramwise_cfg', {})
    own = options.get('custom_keys', {})
    free = {name for name, decay in decays.items() if decay == 0}
    tokens = {name for name in decays if name.endswith(('cls_token', 'dist_token', 'logit_scale'))}
    bare = tokens if any('cls_token' in key for key in own) else set()
    if 'vitdet' in cfg.filename:  # whose relative tables have it, as in the release
        assert not {name for name in relative_tables(model) if 'rel_pos' in name} & free
    else:
        bare |= set(relative_tables(model))
    for key, module in model.named_modules():
        norm = isinstance(module, (nn.LayerNorm, nn.modules.batchnorm._BatchNorm)) and (
            options.get('norm_decay_mult') == 0 and not any(part in key for part in own))
        if isinstance(module, TokenEncoding) or norm:
            bare |= {f'{key}.{name}' for name, _ in module.named_parameters()}
    bare &= decays.keys()
    assert bare <= free
    if max(decays.values()) > 0:
        others = [name for name in free - bare - tokens if model.get_parameter(name).dim() > 1]
        assert not [name for name in others if not name.endswith((  # DINOv3's and Mask2Former's
            'register_tokens', 'level_embed.weight', 'query_embed.weight', 'query_feat.weight'))]


@pytest.mark.slow
def test_every_config_trains_as_its_name_says() -> None:
    for path in FILES:
        check_name(path.stem, load_config(str(path)))


def check_name(name: str, cfg: Config) -> None:
    """A config trains as its name says: GPUs x images, epochs or thousands of steps."""
    if said := re.search(r'_(\d+)xb(\d+)', name):
        gpus, images = map(int, said.groups())
        assert cfg.train_dataloader.batch_size == images, name
        whole = cfg.get('auto_scale_lr', {}).get('base_batch_size', gpus * images)
        assert whole == gpus * images, name
    if said := re.search(r'-(\d+)([ek])[_-]', name):
        length, unit = int(said[1]), said[2]
        if '-lsj-' in name:  # whose epochs are told in steps
            batch = cfg.train_dataloader.batch_size * (16 if '16xb' in name else 8)
            assert cfg.train_cfg.max_iters == pytest.approx(length * 118_287 / batch, rel=0.01)
            return
        steps = length if unit == 'e' else 1000 * length
        assert cfg.train_cfg['max_epochs' if unit == 'e' else 'max_iters'] == steps, name
        assert cfg.param_scheduler[-1].get('end', steps) == steps, name


@pytest.mark.parametrize('name', short(sorted({*SHORT, *LONG}), *SHORT))
def test_a_family_trains_a_step_and_predicts(name: str) -> None:
    cfg = load_config(f'mmposenc::{name}.py')
    shrink(cfg)
    if 'drop_path_rate' in cfg.model.backbone:
        cfg.model.backbone.drop_path_rate = 0.0  # a block dropped for all images has no gradient
    if 'num_layers' in cfg.optim_wrapper.get('paramwise_cfg', {}):
        cfg.optim_wrapper.paramwise_cfg.num_layers = cfg.model.backbone.num_layers
    # A detector's memory that nobody has written may hold NaN, which can't be matched.
    model = revert_sync_batchnorm(build(cfg, initialize=cfg.default_scope != 'mmpretrain'))
    check_decays(model, cfg)
    rates = {group['lr'] for group in build_optimizer(model, cfg).optimizer.param_groups}
    assert (len(rates) > 3) == ('LayerDecay' in str(cfg.optim_wrapper.get('constructor')))
    assert without_gradient(model, collated(samples(cfg, 2))) == []
    for key, parameter in model.named_parameters():
        assert parameter.requires_grad or parameter.grad is None, key
        # Behind norms of Swin V2, which start at zero, and beside Transformer-XL's projection.
        if 'pos_enc' in key and not any(
                part in key for part in ('cpb_mlp', 'position_bias', 'pos_proj')):
            assert not parameter.requires_grad or parameter.grad.any(), key
    with DefaultScope.overwrite_default_scope(cfg.default_scope), torch.no_grad():
        data = model.eval().data_preprocessor(collated(samples(cfg, 2)), training=False)
        found = model(**data, mode='predict')
    assert len(found) == 2
    masks = found[0].get('pred_instances', {}).get('masks')
    assert (masks is not None) == any(part in name for part in (
        'mask_rcnn', 'mask-rcnn', 'detection/mask2former', 'detection/pretrained/eomt'))
    assert masks is None or masks.shape[-2:] == (64, 64)
