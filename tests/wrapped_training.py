"""Started by tests/engine/test_wrapping.py: two processes take the gradients of every family
by hand and by DistributedDataParallel with each set of options, and write how far they are apart.
Processes are forked, so that OpenMMLab is imported once."""
from __future__ import annotations

import copy
import gc
import importlib
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from mmengine.model import MMDistributedDataParallel
from mmengine.model.utils import revert_sync_batchnorm
from mmengine.optim import OptimWrapper
from tinymodels import build, collated, samples, shrink
from torch import distributed as dist
from torch import nn

import mmposenc  # noqa: F401
from mmposenc.engine import load_config
from mmposenc.engine.training.processes import synchronized

DET, SEG, CLS = 'detection', 'segmentation', 'classification'
#: Name to config and what is changed in it.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    'RetinaNet, PVT, PEG': (f'{DET}/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py', {}),
    'RetinaNet, PVT, recomputed': (
        f'{DET}/retinanet/retinanet_pvt-t_irpe-k_fpn_1x_coco.py', {'model.backbone.with_cp': True}),
    'RetinaNet, Swin, recomputed': (
        f'{DET}/retinanet/retinanet_swin-t_irpe-qkv_fpn_1x_coco.py',
        {'model.backbone.with_cp': True, 'model.backbone.rel_pos_sharing': 'stage'}),
    'RetinaNet, Swin, ContextPool': (
        f'{DET}/context_pool/retinanet_cp-swin-t_fpn_1x_coco.py', {}),
    'RetinaNet, DeiT, shared iRPE, recomputed': (
        f'{DET}/retinanet/retinanet_deit-s_irpe-k_sfp_1x_coco.py',
        {'model.backbone.rel_pos_sharing': 'all', 'model.backbone.with_cp': True}),
    'Mask R-CNN, PVT': (f'{DET}/mask_rcnn/mask-rcnn_pvt-s_irpe-k_fpn_1x_coco.py', {}),
    'DETR, shared iRPE, recomputed': (
        f'{DET}/detr/detr_r50_irpe-ctx-9x9_8xb2-150e_coco.py',
        {'model.encoder.num_layers': 2, 'model.encoder.rel_pos_sharing': 'all',
         'model.encoder.num_cp': 2}),
    'Deformable DETR, PEG, recomputed': (
        f'{DET}/deformable_detr/deformable-detr_r50-none-peg_16xb2-50e_coco.py',
        {'model.encoder.num_cp': 1}),
    'Conditional DETR': (
        f'{DET}/conditional_detr/conditional-detr_r50-peg_8xb2-50e_coco.py', {}),
    'DAB-DETR': (f'{DET}/dab_detr/dab-detr_r50_irpe-ctx-9x9_8xb2-50e_coco.py', {}),
    'DINO, Swin, PEG': (f'{DET}/dino/dino-4scale_swin-t-peg_8xb2-12e_coco.py', {}),
    'DDQ': (f'{DET}/ddq/ddq-detr-4scale_r50-peg_8xb2-12e_coco.py', {}),
    'Mask2Former': (f'{DET}/mask2former/mask2former_r50-peg_8xb2-lsj-50e_coco.py', {}),
    'Semantic FPN': (f'{SEG}/sem_fpn/fpn_deit-s_irpe-k_8xb2-80k_ade20k-512x512.py', {}),
    'UperNet': (f'{SEG}/upernet/upernet_swin-t_8xb2-160k_ade20k-512x512.py', {}),
    'Mask2Former, ADE20K': (
        f'{SEG}/mask2former/mask2former_r50-peg_8xb2-160k_ade20k-512x512.py', {}),
    'DeiT, recomputed': (f'{CLS}/deit/deit-ti_8xb128_in1k.py', {'model.backbone.with_cp': True}),
    'DeiT, shared bias': (f'{CLS}/deit/deit-ti-learned-rpe2d_8xb128_in1k.py', {}),
    'DeiT, distilled': (f'{CLS}/deit/deit-ti-distilled_8xb128_in1k.py', {}),
    'CPVT, PEG with BatchNorm': (
        f'{CLS}/cpvt/cpvt-ti-gap_8xb128_in1k.py',
        {'model.backbone.pos_encoding': dict(type='mmposenc.PEG', norm_act=True)}),
    'ViT, ContextPool': (f'{CLS}/context_pool/cp-vit-b-every_8xb128_in1k.py', {}),
    'CPResNet': (f'{CLS}/context_pool/cp-resnet-44_1xb128_cifar10.py', {})}
#: Options of DistributedDataParallel; none of them looks for unused parameters.
WRAPPERS: dict[str, dict[str, bool]] = {
    'plain': {}, 'static graph, views': dict(static_graph=True, gradient_as_bucket_view=True)}
#: The second step uses what the first has noted of the graph, and waits for what never came in it.
STEPS = 2


def gradients(model: nn.Module, wrapped: nn.Module | None, cfg: Any, rank: int
              ) -> list[dict[str, torch.Tensor]]:
    """Of each step, on two images of this process's own; the mean of both processes. Weights stay.

    Args:
        model: what is trained.
        wrapped: what is called: the wrapper, or None to take the mean here.
    """
    found = []
    for step in range(STEPS):
        items = samples(cfg, 4, seed=step)[rank::2]
        torch.manual_seed(10 * step + rank)
        model.zero_grad(set_to_none=True)
        data = model.data_preprocessor(collated(items), True)
        losses = (model if wrapped is None else wrapped)(**data, mode='loss')
        model.parse_losses(losses)[0].backward()
        grads = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
        assert None not in grads.values(), [n for n, g in grads.items() if g is None]
        if wrapped is None:
            for grad in grads.values():
                dist.all_reduce(grad)
                grad /= 2
        found.append({name: grad.clone() for name, grad in grads.items()})  # views are reused
    return found


def largest_difference(one: list, other: list) -> float:
    """Relative to the largest gradient of the parameter, but not below one of 1e-3."""
    return max(float((other[step][name] - grad).abs().max() / grad.abs().max().clamp(min=1e-3))
               for step, grads in enumerate(one) for name, grad in grads.items())


def compare(name: str, rank: int) -> dict[str, float]:
    path, changes = FAMILIES[name]
    cfg = shrink(load_config(f'mmposenc::{path}'))
    cfg.merge_from_dict(changes)
    cfg.model.train_cfg = {**(cfg.model.get('train_cfg') or {}), 'augments': None}
    found, by_hand = {}, None
    built = build(cfg, initialize=cfg.default_scope != 'mmpretrain')
    for kind, options in ({'by hand': None} | WRAPPERS).items():
        model = synchronized(revert_sync_batchnorm(copy.deepcopy(built))).train()
        if options is None:
            by_hand = gradients(model, None, cfg, rank)
            continue
        wrapped = MMDistributedDataParallel(model, broadcast_buffers=False, **options)
        assert not wrapped.find_unused_parameters
        found[kind] = largest_difference(by_hand, gradients(model, wrapped, cfg, rank))
    return found


def accumulated() -> dict[str, float]:
    """Two batches to a step of the optimizer, without a message after the first, as mmengine does
    it: how far the weights moved, and how far apart they are with views."""
    cfg = shrink(load_config(f"mmposenc::{FAMILIES['RetinaNet, PVT, PEG'][0]}"))
    starts, ends = [], []
    for views in (False, True):
        model = build(cfg).train()
        starts.append(flat(model))
        wrapped = MMDistributedDataParallel(model, broadcast_buffers=False,
                                            gradient_as_bucket_view=views)
        optim = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.01), accumulative_counts=2)
        optim.initialize_count_status(model, 0, 4)
        for step in range(4):
            torch.manual_seed(step)
            wrapped.train_step(collated(samples(cfg, 4, seed=step)[dist.get_rank()::2]), optim)
        ends.append(flat(model))
    return {'moved': float((ends[0] - starts[0]).abs().max()),
            'apart': float((ends[0] - ends[1]).abs().max())}


def flat(model: nn.Module) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def work(rank: int, out: str) -> None:
    warnings.simplefilter('ignore')
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'file://{out}/meet', rank=rank, world_size=2)
    found: dict[str, Any] = {name: compare(name, rank) for name in FAMILIES}
    found['accumulated'] = accumulated()
    if rank == 0:
        torch.save(found, f'{out}/wrapped.pt')
    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    folder = sys.argv[1]
    Path(folder).mkdir(exist_ok=True)
    logging.disable(logging.INFO)
    for library in ('mmdet', 'mmseg', 'mmpretrain'):  # the registries would do it in each child
        importlib.import_module(f'{library}.models')
    gc.freeze()  # which children would copy to look at
    mp.start_processes(work, (folder,), nprocs=2, start_method='fork')
