"""The RetinaNet-PVT configs for COCO."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from optimizer_checks import weight_decays

import mmposenc  # noqa: F401
from mmposenc.engine import load_config, override

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted(path.name for path in (ROOT / 'configs' / 'detection' / 'pvt').glob('*.py'))
SIZES = {'t': ('tiny', [2, 2, 2, 2]), 's': ('small', [3, 4, 6, 3]), 'm': ('medium', [3, 4, 18, 3])}
#: Parameters of the classifiers, of which a detector has no head, no last norm and no class token.
RELEASED = {'-peg': (12_849_640, 24_106_216, 43_828_456), '': (13_229_288, 24_485_864, 44_208_104)}
HEAD, NORM, CLASS_TOKEN = 512 * 1000 + 1000, 2 * 512, 512


def load(name: str):
    return load_config(f'mmposenc::detection/pvt/{name}')


def build(cfg):
    init_default_scope('mmdet')
    return MODELS.build(cfg.model)


def shrink(cfg):
    """Four stages of 8 channels and one block, a head of 8 channels, random weights."""
    cfg.model.backbone.update(arch=None, embed_dims=[8] * 4, num_layers=[1] * 4,
                              num_heads=[1] * 4, mlp_ratios=[1] * 4, init_cfg=None)
    cfg.model.neck.update(in_channels=[8] * 4, out_channels=8)
    cfg.model.bbox_head.update(num_classes=2, in_channels=8, feat_channels=8, stacked_convs=1)
    return cfg


def parts(name: str) -> tuple[str, str, bool]:
    """Size letter, variant ('', '-peg', '-gap', '-peg-gap') and whether it is the long one."""
    model = name.split('_')[1].removeprefix('pvt-')
    return model[0], model[1:], '3x' in name


def test_every_size_and_variant_is_there() -> None:
    found = {parts(name) for name in CONFIGS}
    assert found == {(size, variant, long) for size in SIZES
                     for variant in ('', '-peg', '-gap', '-peg-gap') for long in (False, True)}
    assert {name for name in CONFIGS if 'crop' in name} == {
        f'retinanet_pvt-{size}-peg-gap_fpn_ms-480-800-crop-3x_coco.py' for size in 'sm'}


@pytest.mark.parametrize('name', CONFIGS)
def test_config(name: str) -> None:
    size, variant, long = parts(name)
    text = (ROOT / 'configs' / 'detection' / 'pvt' / name).read_text()
    assert 'not trained here' in text and name in text and 'Recipe:' in text
    body = [line for line in text.splitlines() if not line.startswith('#')]
    assert len(body) <= 8  # a delta

    cfg = load(name)
    backbone = cfg.model.backbone
    assert backbone.arch == SIZES[size][0]
    encoding = 'PEG' if 'peg' in variant else 'LearnedPositionEmbedding'
    assert backbone.pos_encoding.type == f'mmposenc.{encoding}'
    assert backbone.mask_padding
    assert cfg.model.data_preprocessor.type == 'mmposenc.DetDataPreprocessor'
    released = variant == '' or (variant == '-peg-gap' and size != 't')
    assert (backbone.get('init_cfg') is not None) == released
    assert ('CHECKPOINT' in text) == (not released)
    if variant == '':
        assert backbone.init_cfg.checkpoint.endswith(f'/pvt_{SIZES[size][0]}.pth')

    assert cfg.optim_wrapper.optimizer == dict(
        type='AdamW', lr=1e-4, weight_decay=0.05 if long else 1e-4)
    assert cfg.train_cfg.max_epochs == (36 if long else 12)
    assert cfg.param_scheduler[1].milestones == ([27, 33] if long else [8, 11])
    assert cfg.param_scheduler[1].end == cfg.train_cfg.max_epochs
    resize = cfg.train_dataloader.dataset.pipeline[2]
    if 'crop' in name:  # the Twins release's
        _, cropped = cfg.train_dataloader.dataset.pipeline[3].transforms
        assert cropped[0].scales == [(400, 1333), (500, 1333), (600, 1333)]
        assert cropped[1].crop_size == (384, 600)
        assert cropped[2].scales == [(side, 1333) for side in range(480, 801, 32)]
    elif long:
        assert resize == dict(type='RandomResize', scale=[(1333, 640), (1333, 800)],
                              keep_ratio=True)
    else:
        assert resize == dict(type='Resize', scale=(1333, 800), keep_ratio=True)
    assert cfg.auto_scale_lr == dict(enable=False, base_batch_size=16)


@pytest.mark.parametrize('name', [name for name in CONFIGS if '3x' not in name])
def test_full_model_has_the_releases_parameters(name: str) -> None:
    size, variant, _ = parts(name)
    init_default_scope('mmdet')
    backbone = MODELS.build({**load(name).model.backbone, 'init_cfg': None})
    count = sum(p.numel() for p in backbone.parameters())
    index = list(SIZES).index(size)
    if 'peg' in variant:
        assert count == RELEASED['-peg'][index] - HEAD - NORM
    else:  # the class token also has a row in the last position table
        assert count == RELEASED[''][index] - HEAD - NORM - 2 * CLASS_TOKEN
    assert [len(stage.blocks) for stage in backbone.stages] == SIZES[size][1]


@pytest.mark.parametrize('name', ['retinanet_pvt-t_fpn_1x_coco.py',
                                  'retinanet_pvt-t-peg_fpn_ms-640-800-3x_coco.py'])
def test_no_weight_decay_on_norms_and_encodings(name: str) -> None:
    cfg = shrink(load(name))
    model = build(cfg)
    names = weight_decays(model, cfg)
    assert len(names) == len(list(model.parameters()))
    free = {n for n, value in names.items() if value == 0}
    norms = {f'{n}.{p}' for n, m in model.named_modules() for p, _ in m.named_parameters()
             if isinstance(m, torch.nn.LayerNorm)}
    encodings = {n for n in names if '.pos_encodings.' in n}
    assert len(encodings) >= 4 and len(norms) > 16
    assert free == norms | encodings
    base = cfg.optim_wrapper.optimizer.weight_decay
    assert {names[n] for n in names if n not in free} == {base}


@pytest.mark.parametrize('variant', ['', '-peg', '-gap', '-peg-gap'])
def test_one_step_of_a_small_version(variant: str) -> None:
    torch.manual_seed(0)
    model = build(shrink(load(f'retinanet_pvt-t{variant}_fpn_1x_coco.py')))
    model.init_weights()
    model.train()
    from mmdet.structures import DetDataSample
    from mmengine.structures import InstanceData
    samples = []
    for height, width in ((64, 64), (45, 61)):  # the second is padded
        sample = DetDataSample(metainfo=dict(img_shape=(height, width)))
        sample.gt_instances = InstanceData(bboxes=torch.tensor([[4.0, 6.0, 40.0, 38.0]]),
                                           labels=torch.tensor([1]))
        samples.append(sample)
    images = [torch.randint(0, 256, (3, *s.img_shape), dtype=torch.uint8) for s in samples]
    data = model.data_preprocessor(dict(inputs=images, data_samples=samples), training=True)
    losses = model(**data, mode='loss')
    loss, _ = model.parse_losses(losses)
    loss.backward()
    assert torch.isfinite(loss)
    without = [n for n, p in model.named_parameters() if p.grad is None]
    assert without == []


def test_weights_of_a_command_line_replace_no_weights() -> None:
    """The headers' command."""
    cfg = load('retinanet_pvt-t-peg-gap_fpn_1x_coco.py')
    override(cfg, {'model.backbone.init_cfg.type': 'Pretrained',
                   'model.backbone.init_cfg.checkpoint': 'mine.pth'})
    assert cfg.model.backbone.init_cfg == dict(type='Pretrained', checkpoint='mine.pth')


def test_unknown_encoding_is_named() -> None:
    cfg = shrink(load('retinanet_pvt-t_fpn_1x_coco.py'))
    override(cfg, {'model.backbone.pos_encoding.type': 'mmposenc.PEGG'})
    with pytest.raises(ValueError, match='PEGG'):
        build(cfg)
