"""The Semantic FPN and UperNet configs for ADE20K."""
from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import torch
from mmengine.model.utils import revert_sync_batchnorm
from optimizer_checks import weight_decays
from scopes import scope_fixture

import mmposenc  # noqa: F401
from mmposenc.engine import load_config, override
from mmposenc.engine.checks import check_num_classes

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / 'configs' / 'segmentation'
CONFIGS = sorted(str(path.relative_to(FOLDER)) for folder in ('sem_fpn', 'upernet')
                 for path in (FOLDER / folder).glob('*.py'))
scope = scope_fixture('mmseg')
PVTS = {'t': 'tiny', 's': 'small', 'm': 'medium'}
#: steps, images a step, learning rate, weight decay
SCHEDULES = {'40k': (40000, 32, 2e-4, 1e-4), '80k': (80000, 16, 1e-4, 1e-4),
             '160k': (160000, 16, 6e-5, 0.01)}

def load(name: str):
    return load_config(f'mmposenc::segmentation/{name}')


read = functools.cache(load)  # of configs that are not changed


def build(cfg):
    from mmseg.registry import MODELS
    return revert_sync_batchnorm(MODELS.build(cfg.model))


def shrink(cfg):
    """The same parts with 8 channels a stage and one block, 3 classes, random weights."""
    backbone, model = cfg.model.backbone, cfg.model
    backbone.init_cfg = None
    kind = backbone.type.rpartition('.')[2]
    if kind == 'PVT':
        backbone.update(arch=None, embed_dims=[8] * 4, num_layers=[1] * 4, num_heads=[1] * 4,
                        mlp_ratios=[1] * 4)
        dims = [8] * 4
    elif kind == 'Swin':
        backbone.update(embed_dims=4, num_layers=[1] * 4, num_heads=[1] * 4, window_size=4,
                        mlp_ratio=1.0)
        dims = [4, 8, 16, 32]
    else:
        backbone.update(arch=None, img_size=64, embed_dims=8, num_layers=4, num_heads=2,
                        mlp_ratio=1.0)
        dims = [8] * 4
    model.data_preprocessor.size = (64, 64)
    if isinstance(model.get('neck'), list):
        backbone.out_indices = (0, 1, 2, 3)
        model.neck[0].embed_dim = 8
        model.neck[1].update(in_channels=dims, out_channels=8)
    elif model.get('neck'):
        model.neck.update(in_channels=dims, out_channels=8)
    head = model.decode_head
    head.update(channels=8, num_classes=3, in_channels=[8] * 4 if model.get('neck') else dims)
    if model.get('auxiliary_head'):
        model.auxiliary_head.update(channels=8, num_classes=3, in_channels=dims[2])
    return cfg


def samples(sizes, labels=3, ignored=False):
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample
    made = []
    for size in sizes:
        maps = torch.full((1, *size), 255) if ignored else torch.randint(0, labels, (1, *size))
        made.append(SegDataSample(gt_sem_seg=PixelData(data=maps), metainfo=dict(
            img_shape=size, ori_shape=size)))
    return dict(inputs=[torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in sizes],
                data_samples=made)


def test_every_row_is_there() -> None:
    sem_fpn = {f'sem_fpn_{model}_512x512_{schedule}_ade20k.py' for schedule in ('40k', '80k')
               for model in [f'pvt-{size}{variant}' for size in PVTS
                             for variant in ('', '-peg', '-gap', '-peg-gap')]
               + ['swin-t', 'swin-t-peg-gap', 'swin-t_irpe-qkv', 'deit-s', 'deit-s-peg',
                  'deit-s_irpe-k', 'pvt-t_irpe-k', 'pvt-s_irpe-k']}
    upernet = {f'upernet_{model}_512x512_160k_ade20k.py' for model in (
        'swin-t', 'swin-t-peg-gap', 'swin-t_irpe-qkv', 'swinv2-t', 'pvt-s', 'pvt-s-peg-gap',
        'pvt-m-peg-gap')}
    assert {name for name in CONFIGS if name.startswith('sem_fpn/')} == {
        f'sem_fpn/{name}' for name in sem_fpn}
    assert {name for name in CONFIGS if name.startswith('upernet/')} == {
        f'upernet/{name}' for name in upernet}


@pytest.mark.parametrize('name', CONFIGS)
def test_config(name: str) -> None:
    text, stem = (FOLDER / name).read_text(), Path(name).stem
    header = ' '.join(line.strip('# \\') for line in text.splitlines() if line.startswith('#'))
    assert 'not trained here' in header and f'{stem}.py 8' in header and 'Recipe:' in header
    body = [line for line in text.splitlines() if not line.startswith('#')]
    assert len(body) <= 11  # a delta

    cfg = read(name)
    backbone, model = cfg.model.backbone, stem.split('_512x512_')[0].partition('_')[2]
    model = model.removeprefix('fpn_')
    assert backbone.mask_padding
    assert cfg.model.data_preprocessor.type == 'mmposenc.SegDataPreProcessor'
    encodings = {key: backbone[key].type.rpartition('.')[2]
                 for key in ('pos_encoding', 'rel_pos_encoding') if backbone.get(key)}
    if 'peg' in model:
        assert encodings == {'pos_encoding': 'PEG'}
    elif model.startswith('swin'):
        assert encodings == ({'rel_pos_encoding': 'IRPE'} if 'irpe' in model else {})
    else:
        assert encodings['pos_encoding'] == 'LearnedPositionEmbedding'
        assert ('rel_pos_encoding' in encodings) == ('irpe' in model)
    if model.startswith('swin'):
        assert backbone.get('window_bias', True) == (model in ('swin-t', 'swinv2-t'))
    if 'irpe' in model:
        assert backbone.rel_pos_encoding.rpe_on == model.rpartition('-')[2]
    if model.startswith('pvt'):
        assert backbone.arch == PVTS[model[4]]
    released = {'pvt-t', 'pvt-s', 'pvt-m', 'swin-t', 'swinv2-t', 'deit-s', 'deit-s_irpe-k',
                'pvt-t_irpe-k', 'pvt-s_irpe-k', 'pvt-s-peg-gap', 'pvt-m-peg-gap'}
    assert (backbone.get('init_cfg') is not None) == (model in released)
    assert ('CHECKPOINT' in text) == (model not in released)

    steps, images, lr, decay = SCHEDULES[re.search(r'_(\d+k)_', stem)[1]]
    assert cfg.optim_wrapper.optimizer.type == 'AdamW'
    assert (cfg.optim_wrapper.optimizer.lr, cfg.optim_wrapper.optimizer.weight_decay) == (lr, decay)
    assert cfg.train_cfg.max_iters == cfg.param_scheduler[-1].end == steps
    assert cfg.train_dataloader.batch_size * 8 == images == cfg.auto_scale_lr.base_batch_size
    assert cfg.default_hooks.checkpoint.by_epoch is cfg.log_processor.by_epoch is False
    check_num_classes(cfg, ('train', 'val', 'test'))


# With few channels other sizes of PVT, and longer schedules, are the same models.
@pytest.mark.parametrize('name', [name for name in CONFIGS
                                  if not re.search('80k|pvt-[tm]', name)])
def test_one_step_of_a_small_version(name: str) -> None:
    """Sizes that are no multiple of anything, in a padded batch; every parameter learns."""
    torch.manual_seed(0)
    model = build(shrink(load(name)))
    model.init_weights()
    model.train()
    data = model.data_preprocessor(samples([(64, 64), (45, 61)]), training=True)
    assert data['inputs'].img_shapes == [(64, 64), (45, 61)]
    loss, _ = model.parse_losses(model(**data, mode='loss'))
    loss.backward()
    assert torch.isfinite(loss)
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize('name', [
    'sem_fpn/sem_fpn_pvt-t_512x512_40k_ade20k.py',
    'sem_fpn/sem_fpn_pvt-m-peg_512x512_80k_ade20k.py',
    'sem_fpn/sem_fpn_swin-t_512x512_80k_ade20k.py',
    'sem_fpn/sem_fpn_deit-s_irpe-k_512x512_40k_ade20k.py',
    'upernet/upernet_swin-t_irpe-qkv_512x512_160k_ade20k.py'])
def test_no_weight_decay_on_norms_and_encodings(name: str) -> None:
    cfg = shrink(load(name))
    model = build(cfg)
    free = {name for name, decay in weight_decays(model, cfg).items() if decay == 0}
    norms = {f'{n}.{p}' for n, m in model.named_modules() for p, _ in m.named_parameters()
             if isinstance(m, (torch.nn.LayerNorm, torch.nn.modules.batchnorm._BatchNorm))}
    encodings = {n for n, _ in model.named_parameters()
                 if '.pos_encodings.' in n or '.rel_pos_encoding.' in n}
    tokens = {n for n, _ in model.named_parameters() if 'cls_token' in n}
    assert encodings and norms and free == norms | encodings | tokens


def test_the_whole_model_has_the_releases_backbone() -> None:
    """Semantic FPN on PVT-tiny: PVT's paper, Table 5, gives 17.0 M parameters."""
    cfg = load('sem_fpn/sem_fpn_pvt-t_512x512_40k_ade20k.py')
    cfg.model.backbone.init_cfg = None
    parameters = sum(p.numel() for p in build(cfg).parameters())
    assert round(parameters / 1e6, 1) == pytest.approx(17.0, abs=0.5)


def test_views_of_test_time_augmentation_are_rounded_to_the_last_stride() -> None:
    cfg = read(CONFIGS[0])
    from mmseg.registry import TRANSFORMS
    views = TRANSFORMS.build(cfg.tta_pipeline[-1])
    assert len(views.subroutines) == 12
    steps = cfg.tta_pipeline[-1].transforms
    assert steps[1][0] == dict(type='ResizeToMultiple', size_divisor=32)
    assert [step.scale[1] for step in steps[0]] == [256, 384, 512, 640, 768, 896]
    assert cfg.tta_model.type == 'SegTTAModel'


def test_weights_of_a_command_line_replace_no_weights() -> None:
    """The headers' command."""
    cfg = load('sem_fpn/sem_fpn_pvt-t-peg_512x512_80k_ade20k.py')
    override(cfg, {'model.backbone.init_cfg.type': 'Pretrained',
                   'model.backbone.init_cfg.checkpoint': 'mine.pth'})
    assert cfg.model.backbone.init_cfg == dict(type='Pretrained', checkpoint='mine.pth')


@pytest.mark.parametrize('folder', ['sem_fpn', 'upernet'])
def test_every_config_is_listed_for_mim(folder: str) -> None:
    import yaml
    meta = yaml.safe_load((FOLDER / folder / 'metafile.yml').read_text())
    assert [model['Config'] for model in meta['Models']] == [
        f'configs/segmentation/{name}' for name in CONFIGS if name.startswith(f'{folder}/')]
    for model in meta['Models']:
        cfg = read(f"{folder}/{model['Name']}.py")
        assert model['Metadata']['Iterations'] == cfg.train_cfg.max_iters
        assert model['In Collection'] == meta['Collections'][0]['Name']
    assert (ROOT / meta['Collections'][0]['README']).is_file()
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())
    assert f'configs/segmentation/{folder}/metafile.yml' in index['Import']
