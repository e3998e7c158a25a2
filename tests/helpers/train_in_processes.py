"""Started by tests/engine/training/test_resume.py: trains each family in 1, 2 and 4 processes
on the same images, and writes what came out. Processes are forked, so that OpenMMLab is imported
once."""
import copy
import gc
import importlib
import logging
import os
import sys
import warnings
from functools import cache
from pathlib import Path

import torch
import torch.multiprocessing as mp
from mmengine.config import Config
from mmengine.model import MMDistributedDataParallel
from mmengine.model.utils import revert_sync_batchnorm
from mmengine.optim import OptimWrapper
from torch import distributed as dist

import mmposenc  # noqa: F401
from helpers.shrunk_configs import build, collated, samples, shrink
from mmposenc.engine import load_config
from mmposenc.engine.training.distributed import synchronize_norms

#: Keys of what is changed that are no config's: SyncBatchNorm, options of the wrapper.
OPTIONS = ('sync', 'wrapper')
#: Name to config and what is changed in it.
FAMILIES = {
    'RetinaNet': ('detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py', {}),
    'RetinaNet, PEG with BatchNorm': (
        'detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py',
        {'model.backbone.pos_encoding': dict(type='mmposenc.PEG', norm_act=True)}),
    'RetinaNet, Swin, ContextPool, recomputed': (
        'detection/context_pool/retinanet_cp-swin-t_fpn_1x_coco.py',
        {'model.backbone.with_cp': True}),
    'DETR': ('detection/detr/detr_pvt-t_8xb2-150e_coco.py', {}),
    'DETR, iRPE': ('detection/detr/detr_r50_irpe-ctx-9x9_8xb2-150e_coco.py', {}),
    'Deformable DETR': (
        'detection/deformable_detr/deformable-detr_r50-none-peg_16xb2-50e_coco.py', {}),
    'RF-DETR': ('detection/rf_detr/rf-detr_nano_4xb4-100e_coco.py', {}),
    'Semantic FPN': ('segmentation/sem_fpn/fpn_pvt-t-peg_8xb2-80k_ade20k-512x512.py', {}),
    'UperNet': ('segmentation/upernet/upernet_swin-t_8xb2-160k_ade20k-512x512.py',
                {'model.decode_head.channels': 32}),
    'DeiT': ('classification/deit/deit-ti_8xb128_in1k.py', {}),
    'DeiT, shared bias': ('classification/deit/deit-ti-learned-rpe2d_8xb128_in1k.py', {}),
    'DETR, shared iRPE, recomputed': (
        'detection/detr/detr_r50_irpe-ctx-9x9_8xb2-150e_coco.py',
        {'model.encoder.num_layers': 2, 'model.encoder.rel_pos_sharing': 'all',
         'model.encoder.num_cp': 2}),
    'CPVT': ('classification/cpvt/cpvt-ti-gap_8xb128_in1k.py',
             {'wrapper': dict(static_graph=True, gradient_as_bucket_view=True)}),
    'Swin, iRPE': ('classification/swin/swin-t_irpe-qkv_8xb128_in1k.py', {}),
    'CPResNet': ('classification/context_pool/cp-resnet-44_1xb128_cifar10.py',
                 {'sync': True})}
IMAGES, STEPS = 8, 2
#: Those whose gradients are clipped to their norm.
CLIPPED = ('RetinaNet, PEG with BatchNorm', 'RetinaNet, Swin, ContextPool, recomputed', 'DETR',
           'Deformable DETR', 'Semantic FPN', 'DeiT', 'DeiT, shared bias', 'CPVT')


def still(model) -> None:
    """No draws: what is dropped depends on the process, as it should."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        if hasattr(module, 'drop_prob'):
            module.drop_prob = 0.0
        if isinstance(getattr(module, 'dropout', None), float):
            module.dropout = 0.0


@cache
def start(name: str) -> tuple[Config, torch.nn.Module]:
    """A family's config and model; all of them are made before there are processes."""
    path, changes = FAMILIES[name]
    cfg = shrink(load_config(f'mmposenc::{path}'))
    cfg.merge_from_dict({key: value for key, value in changes.items() if key not in OPTIONS})
    cfg.model.train_cfg = {**(cfg.model.get('train_cfg') or {}), 'augments': None}
    model = build(cfg).double()  # rounding does not tell which ReLU or which anchor it is
    model.backbone.register_forward_pre_hook(_double)
    still(model)
    return cfg, model


def train(name: str, world: int, rank: int) -> dict[str, torch.Tensor]:
    cfg, model = copy.deepcopy(start(name))
    torch.manual_seed(0)
    if world > 1:
        if FAMILIES[name][1].get('sync', False):
            model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
        model = synchronize_norms(model)
        model = MMDistributedDataParallel(
            model, broadcast_buffers=False, **FAMILIES[name][1].get('wrapper', {}))
    else:
        model = revert_sync_batchnorm(model)
    model.train()
    optim = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.01),
                         clip_grad=dict(max_norm=0.5) if name in CLIPPED else None)
    losses = torch.zeros(STEPS)
    for step in range(STEPS):
        items = samples(cfg, IMAGES, seed=step)[rank::world]
        losses[step] = model.train_step(collated(items), optim)['loss'].detach() / world
    if world > 1:
        dist.all_reduce(losses)
    return {**getattr(model, 'module', model).state_dict(), 'mean losses': losses}


def _double(backbone, inputs):
    images = inputs[0].double()
    images.__dict__.update(inputs[0].__dict__)  # the note on how far each image reaches
    return (images, *inputs[1:])


def work(rank: int, world: int, out: str) -> None:
    if world > 1:
        dist.init_process_group('gloo', init_method=f'file://{out}/meet{world}', rank=rank,
                                world_size=world)
    found = {name: train(name, world, rank) for name in FAMILIES}
    if rank == 0:
        torch.save(found, f'{out}/world{world}.pt')
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == '__main__':
    folder = sys.argv[1]
    os.environ['OMP_NUM_THREADS'] = '1'
    Path(folder).mkdir(exist_ok=True)
    logging.disable(logging.INFO)  # how each weight is initialized, in every process
    for library in ('mmdet', 'mmseg', 'mmpretrain'):  # the registries would do it in each child
        importlib.import_module(f'{library}.models')
    warnings.simplefilter('ignore')
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for name in FAMILIES:
        start(name)
    gc.freeze()  # which children would copy to look at
    for world in (1, 2, 4):
        mp.start_processes(work, (world, folder), nprocs=world, start_method='fork')
