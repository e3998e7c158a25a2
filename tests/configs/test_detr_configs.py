"""The DETR configs: every one builds, trains a step and says where it comes from."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from tinydetr import images, total_loss

import mmposenc  # noqa: F401
from mmposenc.engine import load_config

ROOT = Path(__file__).resolve().parents[2] / 'configs' / 'detection'
COCO = sorted(f'{path.parent.name}/{path.name}' for folder in ('detr', 'deformable_detr')
              for path in (ROOT / folder).glob('*.py'))
SMALL = sorted(f'small/{path.name}' for path in (ROOT / 'small').glob('deformable-detr*.py'))


def load(name: str):
    return load_config(f'mmposenc::detection/{name}')


def shrink(cfg):
    """A backbone of a few channels, one layer each, narrow FFNs, few queries, no weights."""
    model = cfg.model
    backbone = model.backbone
    if backbone.type.endswith('ResNet'):
        backbone.update(depth=18, base_channels=4, stem_channels=4, init_cfg=None)
        last = {1: 8, 2: 16, 3: 32}
        model.neck.in_channels = [last[i] for i in backbone.out_indices]
    else:
        backbone.update(arch=None, embed_dims=8, num_layers=[1] * 4, num_heads=[1] * 4,
                        init_cfg=None)
        if backbone.type == 'mmposenc.PVT':
            backbone.update(embed_dims=[8] * 4, mlp_ratios=[1] * 4)
        model.neck.in_channels = [8 if backbone.type == 'mmposenc.PVT' else 64]
    model.num_queries = 5
    model.bbox_head.num_classes = max(3, model.bbox_head.num_classes)
    model.test_cfg.max_per_img = 5
    for coder in (model.encoder, model.decoder):
        coder.num_layers = 1
        coder.layer_cfg.ffn_cfg.feedforward_channels = 8
    return cfg


def build(cfg):
    init_default_scope('mmdet')
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    return model


@pytest.mark.parametrize('name', COCO + SMALL)
def test_one_step_of_a_small_version(name: str) -> None:
    cfg = shrink(load(name))
    model = build(cfg).train()
    loss = total_loss(model, images(((64, 64), (45, 61))))
    loss.backward()
    assert torch.isfinite(loss)
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert all('backbone' in n for n in frozen)
    # queries of the first layer are zeros in DETR: nothing tells its self-attention's values apart
    without = [n for n, p in model.named_parameters() if p.grad is None and n not in frozen]
    assert without == []
    for n, p in model.named_parameters():
        if 'rel_pos_encoding' in n or 'encoder.pos_encodings' in n:
            assert p.grad.abs().max() > 0, n


@pytest.mark.parametrize('name', [name for name in COCO if 'dc5' in name])
def test_dc5_is_torchvisions(name: str) -> None:
    """DETR takes torchvision's replace_stride_with_dilation: the first block is not dilated."""
    from torchvision.models import resnet50
    theirs = resnet50(replace_stride_with_dilation=[False, False, True])
    init_default_scope('mmdet')
    ours = MODELS.build({**load(name).model.backbone, 'init_cfg': None})
    for a, b in zip(ours.layer4, theirs.layer4, strict=True):
        for conv in ('conv1', 'conv2', 'conv3'):
            for part in ('stride', 'padding', 'dilation'):
                assert getattr(getattr(a, conv), part) == getattr(getattr(b, conv), part)
    assert [block.conv2.dilation[0] for block in ours.layer4] == [1, 2, 2]
    assert ours.layer4[0].downsample[0].stride == theirs.layer4[0].downsample[0].stride


@pytest.mark.parametrize('name', COCO)
def test_header(name: str) -> None:
    text = (ROOT / name).read_text()
    file = Path(name).name
    assert 'ot trained here' in text and f'/{file} ' in text and 'Recipe:' in text
    body = [line for line in text.splitlines() if not line.startswith('#')]
    assert len(body) <= 12  # a delta
    folder = (ROOT / name).parent
    assert f'configs/detection/{name}' in (folder / 'metafile.yml').read_text()
    readme = (folder / 'README.md').read_text()
    stem = file.removesuffix('_coco.py')
    assert stem in readme or stem.replace('-300e', '-150e') in readme


def test_each_config_encodes_as_its_name_says() -> None:
    for name in COCO + SMALL:
        encoder = load(name).model.encoder
        assert (encoder.encoder_pos is None) == ('-none' in name), name
        keys = load(name).model.decoder.get('key_pos', 'sine')
        assert (keys is None) == ('anywhere' in name), name
        peg = encoder.get('pos_encoding')
        assert (peg is not None) == ('-peg' in name), name
        if peg is not None:
            assert peg == dict(type='mmposenc.PEG', norm_act=True, bias=False)
            assert tuple(encoder.positions) == (0,)
        relative = encoder.layer_cfg.self_attn_cfg.get('rel_pos_encoding')
        assert (relative is not None) == ('irpe' in name), name
        if relative is not None:
            from mmposenc.encodings import IRPE
            args = {k: v for k, v in relative.items() if k != 'type'}
            side = next(n for n in (7, 9, 15) if f'-{n}x{n}' in name)
            table = IRPE(32, 8, **args)
            assert table.num_buckets == side * side and table.rpe_on == 'k'
            assert (table.mode == 'contextual') == ('-ctx' in name) and table.method == 'product'
            assert table.params.function == ('clip' if 'clip' in name else 'piecewise')


@pytest.mark.parametrize('name', COCO)
def test_recipe(name: str) -> None:
    cfg = load(name)
    epochs = int(name.split('-')[-1].split('e_')[0])
    gpus, images_each = (int(part) for part in name.split('_')[-2].split('-')[0].split('xb'))
    assert cfg.train_cfg.max_epochs == cfg.param_scheduler[0].end == epochs
    assert cfg.param_scheduler[0].milestones == [{50: 40, 150: 100, 300: 200}[epochs]]
    assert cfg.train_dataloader.batch_size == images_each
    assert cfg.auto_scale_lr.base_batch_size == gpus * images_each
    deformable = name.startswith('deformable')
    optimizer = cfg.optim_wrapper.optimizer
    assert optimizer == dict(type='AdamW', lr=2e-4 if deformable else 1e-4, weight_decay=1e-4)
    backbone_lr = optimizer.lr * cfg.optim_wrapper.paramwise_cfg.custom_keys.backbone.lr_mult
    assert backbone_lr == pytest.approx(1e-5 if epochs > 50 and not deformable else 2e-5)
    assert cfg.model.num_queries == (300 if deformable else 100)
    assert cfg.train_dataloader.dataset.pipeline[3].type == 'RandomChoice'
    assert cfg.train_dataloader.dataset.filter_cfg.filter_empty_gt == (not deformable)


@pytest.mark.parametrize('name', ['detr/detr_r50_irpe-ctx-9x9_8xb2-150e_coco.py',
                                  'deformable_detr/deformable-detr_r50-none-peg_16xb2-50e_coco.py',
                                  'small/deformable-detr_r18-w16-none-peg_bccd.py'])
def test_encodings_take_no_weight_decay_and_start_as_they_should(name: str) -> None:
    cfg = shrink(load(name))
    model = build(cfg)
    holder = type('Holder', (), {'model': model})()
    optimizer = Runner.build_optim_wrapper(holder, cfg.optim_wrapper).optimizer
    decay = {id(p): group['weight_decay'] for group in optimizer.param_groups
             for p in group['params']}
    tables = [n for n, _ in model.named_parameters()
              if 'rel_pos_encoding' in n or '.pos_encodings' in n]
    assert tables
    for n, p in model.named_parameters():
        if n in tables:
            assert decay[id(p)] == 0, n
        if 'rel_pos_encoding' in n:
            assert not p.any()
    assert decay[id(model.encoder.layers[0].ffn.layers[1].weight)] > 0


@pytest.mark.parametrize('name, theirs', [
    ('detr/detr_r50_8xb2-150e_coco.py', 'mmdet::detr/detr_r50_8xb2-150e_coco.py'),
    ('deformable_detr/deformable-detr_r50_16xb2-50e_coco.py',
     'mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco.py')])
def test_mmdets_checkpoints_fit(name: str, theirs: str) -> None:
    """Parameters have mmdet's names and shapes, so its files load with strict=True."""
    ours, upstream = shrink(load(name)), shrink(load_config(theirs))
    ours.model.num_queries = upstream.model.num_queries
    state = build(upstream).state_dict()
    build(ours).load_state_dict(state)
