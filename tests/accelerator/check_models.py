"""Backbones, encoders of DETR, whole detectors and segmentors with losses on an accelerator."""
import copy

import pytest
import tinydetr
import torch
from compare import close, close_gradients, compare, draw, off_zero
from device import CUDA, Device, to_cpu
from mmengine.model.utils import revert_sync_batchnorm
from scripts import ROOT
from tinymodels import build, collated, samples, shrink
from torch import nn

from mmposenc.backbones import PVT, CPResNet, DeiT, Swin
from mmposenc.engine import load_config
from mmposenc.functional import limits
from mmposenc.operators.deterministic import deterministic_forms

PEG, POOL, IRPE = (dict(type=f'mmposenc.{name}') for name in ('PEG', 'ContextPool', 'IRPE'))
LEARNED = dict(type='mmposenc.LearnedPositionEmbedding')
NORM = dict(PEG, norm_act=True, bias=False)


PVT_SIZES = dict(embed_dims=(16, 16), num_layers=(2, 1), num_heads=(1, 2), mlp_ratios=(2, 2),
                 sr_ratios=(4, 2), patch_sizes=(4, 2), out_indices=(0, 1), drop_path_rate=0.0)
VIT_SIZES = dict(embed_dims=32, num_layers=2, num_heads=2, mlp_ratio=2, img_size=64, pool=None)
SWIN_SIZES = dict(embed_dims=16, num_layers=(2, 2), num_heads=(1, 2), window_size=4,
                  drop_path_rate=0.0)


def ours(name, **options):
    return dict(type=f'mmposenc.{name}', **options)


#: By kind of backbone: the class, its sizes, and the options of each.
BACKBONES = {name: (kind, {**sizes, **options}) for kind, sizes, cases in (
    (PVT, PVT_SIZES, {
        'PVT': {}, 'PVT PEG': dict(pos_encoding=PEG),
        'PVT PEG with BatchNorm': dict(pos_encoding=NORM),
        'PVT PEG with SyncBatchNorm': dict(pos_encoding=NORM),
        'PVT learned': dict(pos_encoding=LEARNED),
        'PVT sin-cos': dict(pos_encoding=ours('SinCosPositionEncoding')),
        'PVT IRPE': dict(rel_pos_encoding=IRPE), 'PVT SASA': dict(rel_pos_encoding=ours('SASARPE')),
        'PVT log CPB': dict(rel_pos_encoding=ours('LogSpacedCPB')),
        'PVT Shaw': dict(rel_pos_encoding=ours('ShawRPE', on_values=True)),
        'PVT ContextPool': dict(pos_encoding=POOL),
        'PVT with_cp': dict(pos_encoding=PEG, with_cp=True)}),
    (DeiT, VIT_SIZES, {
        'DeiT': dict(pos_encoding=LEARNED), 'CPVT': dict(pos_encoding=PEG),
        'ViT with options': dict(
            pos_encoding=dict(LEARNED, interpolation='bicubic_antialias', interpolation_offset=0.1),
            register_tokens=2, mlp='swiglu', qkv_bias='qv', pre_norm=True, attn_norm=True,
            mlp_norm=True),
        'DeiT IRPE': dict(rel_pos_encoding=dict(IRPE, rpe_on='qkv')),
        'DeiT projected by convolutions': dict(conv_projection=(0, 1), rel_pos_encoding=IRPE),
        'DeiT on queries and keys': dict(pos_encoding=dict(PEG, apply_to='qk')),
        'DeiT rotary': dict(rel_pos_encoding=ours('RotaryEmbedding2D', mode='mixed')),
        'DeiT rotary of DINOv3': dict(rel_pos_encoding=ours(
            'RotaryEmbedding2D', axes='yx', planes='halves', normalize='separate'))}),
    (Swin, SWIN_SIZES, {
        'Swin': {}, 'Swin IRPE': dict(rel_pos_encoding=IRPE), 'Swin PEG': dict(pos_encoding=PEG),
        'Swin small maps': dict(pad_small_map=False), 'Swin V2': dict(arch='v2-tiny')}))
    for name, options in cases.items()}


def backbone(name, **options):
    kind, given = BACKBONES[name]
    model = kind(**given, **options)
    return nn.SyncBatchNorm.convert_sync_batchnorm(model) if 'Sync' in name else model


@pytest.mark.parametrize('name, masked, large', [
    *((name, True, False) for name in BACKBONES),
    *((name, False, False) for name in ('PVT', 'PVT ContextPool', 'DeiT', 'DeiT IRPE', 'Swin')),
    *((name, True, True) for name in ('PVT IRPE', 'PVT Shaw', 'DeiT IRPE', 'Swin', 'Swin IRPE',
                                      'DeiT projected by convolutions'))])
def test_backbones(name, masked, large, monkeypatch):
    """One wait for the sizes of images that differ, and one for each ContextPool; in the forms of
    small grids, or of large ones."""
    if large:
        monkeypatch.setattr(limits, 'ACCELERATOR_DEFINITION_BYTES', 0)
        monkeypatch.setattr(limits, 'ACCELERATOR_PIECE_BYTES', 32 * 1024)
    torch.manual_seed(0)
    model = off_zero(backbone(name, mask_padding=masked))
    sizes = [(96, 128), (70, 100)] if masked else None
    waits = compare(model, lambda m, x: m(x, sizes), [draw(2, 3, 96, 128)])
    pools = sum(type(module).__name__ == 'ContextPool' for module in model.modules())
    assert waits.total() <= masked + pools, waits


@pytest.mark.parametrize('name', [name for name in BACKBONES if 'Swin' in name])
def test_swins_train_with_deterministic_algorithms(name, monkeypatch, deterministic):
    """In the forms of large maps, with dropout: no operator is refused."""
    monkeypatch.setattr(limits, 'ACCELERATOR_DEFINITION_BYTES', 0)
    model = off_zero(backbone(name, mask_padding=True, attn_drop_rate=0.1)).train()
    with Device() as gpu:
        outs = gpu.module(model)(gpu.tensor(draw(2, 3, 96, 128)), [(96, 128), (70, 100)])
        sum(out.square().mean() for out in outs).backward()


@pytest.mark.parametrize('name, dtype', [
    *((name, torch.bfloat16) for name in (
        'PVT PEG with BatchNorm', 'PVT IRPE', 'PVT SASA', 'PVT log CPB', 'DeiT IRPE', 'DeiT rotary',
        'Swin', 'Swin V2')),
    *((name, torch.float16) for name in ('PVT SASA', 'DeiT IRPE', 'Swin V2'))])
def test_half_precision(name, dtype, monkeypatch):
    """Under autocast, in the forms of large maps: finite, near float32, and gradients in the
    parameters' own dtype."""
    monkeypatch.setattr(limits, 'ACCELERATOR_DEFINITION_BYTES', 0)
    monkeypatch.setattr(limits, 'WINDOW_PAIRS', 0)
    torch.manual_seed(0)
    model = off_zero(backbone(name, mask_padding=True))
    x, sizes = draw(2, 3, 96, 128), [(96, 128), (70, 100)]
    with Device() as gpu:
        moved = gpu.module(model)
        with gpu.autocast(dtype):
            outs = moved(gpu.tensor(x), sizes)
        sum(out.float().square().mean() for out in outs).backward()
        for parameter in moved.parameters():
            assert parameter.grad is None or parameter.grad.dtype == torch.float32
            assert parameter.grad is None or to_cpu(parameter.grad).isfinite().all()
    for out, expected in zip(outs, model(x, sizes), strict=True):
        close(to_cpu(out), expected.detach(), 0.05, 'output')


def check_step(found, expected):
    """The losses and gradients of a step are those of the CPU."""
    for key, value in expected[0].items():
        close(to_cpu(found[0][key]), value.detach(), 1e-4, key)
    close_gradients(found[1], expected[1], 2e-3)


def test_context_pool_resnet():
    torch.manual_seed(0)
    waits = compare(CPResNet(20), lambda m, x: m(x), [draw(2, 3, 32, 32)])
    assert waits.total() <= len([m for m in CPResNet(20).modules()
                                 if type(m).__name__ == 'ContextPool']), waits


class Encoder(nn.Module):
    """Encoder and decoder of a DETR, from a map."""

    def __init__(self, detector):
        super().__init__()
        self.detector = detector

    def forward(self, feature):
        from mmdet.structures import DetDataSample
        full = (9 * 32, 11 * 32)
        found = [DetDataSample(metainfo=dict(img_shape=size, batch_input_shape=full))
                 for size in (full, (5 * 32 - 3, 8 * 32))]
        inputs, others = self.detector.pre_transformer((feature,), found)
        memory = self.detector.forward_encoder(**inputs)
        queries, _ = self.detector.pre_decoder(**memory)
        others.update(queries)
        return self.detector.forward_decoder(**others)['hidden_states']


@pytest.mark.parametrize('name', tinydetr.ENCODERS)
def test_detr(name):
    """One wait for the sizes of the images."""
    encoder, attention = tinydetr.ENCODERS[name]
    model = tinydetr.build(tinydetr.detr(encoder=dict(encoder), attn=dict(attention)))
    waits = compare(Encoder(model), lambda m, x: m(x), [draw(2, 16, 9, 11)], tolerance=5e-4)
    assert waits.total() <= 1, waits


CONFIGS = (
    'detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py',
    'detection/mask_rcnn/mask-rcnn_swin-t-peg_fpn_1x_coco.py',
    'detection/detr/detr_r50_irpe-ctx-9x9_8xb2-150e_coco.py',
    'detection/deformable_detr/deformable-detr_r50-none-peg_16xb2-50e_coco.py',
    'segmentation/upernet/upernet_swin-t_irpe-qkv_8xb2-160k_ade20k-512x512.py',
    'segmentation/sem_fpn/fpn_pvt-t_8xb4-40k_ade20k-512x512.py')


#: Lines whose waits are counted; data loading, losses and post-processing wait as upstream's do.
OURS = ('mmposenc/functional', 'mmposenc/attention', 'mmposenc/encodings', 'mmposenc/backbones',
        'mmposenc/operators/deform_attn')


def without_dropout(model):
    """Fused kernels and pieces draw in orders of their own."""
    for module in model.modules():
        for rate in ('p', 'attn_drop', 'drop_prob', 'dropout'):
            if isinstance(getattr(module, rate, None), float):
                setattr(module, rate, 0.0)
    return model


def losses(model, data, device=None):
    """All losses of a training step."""
    if device is not None:
        model.data_preprocessor._device = device
    torch.manual_seed(1)
    prepared = model.data_preprocessor(copy.deepcopy(data), training=True)
    with deterministic_forms():
        loss, found = model.parse_losses(model(**prepared, mode='loss'))
        loss.backward()
    return found, {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize('name', CONFIGS)
def test_whole_models(name, deterministic):
    """Losses and gradients of a training step are the CPU's, with deterministic algorithms."""
    cfg = shrink(load_config(str(ROOT / 'configs' / name)))
    model = without_dropout(revert_sync_batchnorm(build(cfg))).train()
    data = collated(samples(cfg, 2))
    expected = losses(copy.deepcopy(model), data)
    with Device() as gpu:
        found = losses(gpu.module(model), data, CUDA)
        own = {wait: count for wait, count in gpu.report().items() if wait.where.startswith(OURS)}
    for wait, count in own.items():
        assert count <= (wait.where.startswith('mmposenc/operators/deform_attn')), own
    check_step(found, expected)


@pytest.mark.parametrize('dtype', ['bfloat16', 'float16'])
def test_a_step_of_mixed_precision(dtype, monkeypatch):
    """Through the wrapper that ``--amp`` takes: parameters in float32 and finite; the loss is
    scaled in float16 alone, and a step whose gradients overflow is left out."""
    from mmengine.optim.optimizer import amp_optimizer_wrapper as theirs
    from mmengine.runner import amp as context

    from mmposenc.engine import AmpOptimWrapper
    from mmposenc.engine.training import amp as ours
    for module in (ours, context):
        monkeypatch.setattr(module, 'get_device', lambda: 'cuda')
    monkeypatch.setattr(theirs, 'is_cuda_available', lambda: True)
    torch.manual_seed(0)
    with Device() as gpu:
        model = gpu.module(off_zero(backbone('PVT IRPE', mask_padding=True)))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
        wrapper = AmpOptimWrapper(optimizer=optimizer, dtype=dtype, loss_scale=2.0 ** 10)
        assert wrapper.loss_scaler.is_enabled() == (dtype == 'float16')
        image = gpu.tensor(draw(2, 3, 96, 128))
        for overflow in (False, True):
            before = [to_cpu(p).clone() for p in model.parameters()]
            with wrapper.optim_context(model):
                outs = model(image, [(96, 128), (70, 100)])
            loss = sum(out.float().square().mean() for out in outs)
            wrapper.update_params(loss * (1e38 if overflow and dtype == 'float16' else 1.0))
            after = [to_cpu(p) for p in model.parameters()]
            assert all(p.dtype == torch.float32 and p.isfinite().all() for p in after)
            moved = any(not torch.equal(one, other) for one, other in zip(before, after,
                                                                          strict=True))
            assert moved != (overflow and dtype == 'float16')
