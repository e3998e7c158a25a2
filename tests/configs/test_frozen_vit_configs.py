"""The configs of a frozen, pretrained ViT-S/14, which `mmposenc quickstart pretrained` trains."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from scripts import load_tool, named
from tinydata import make_nuclei

from mmposenc.backbones import ViT
from mmposenc.engine import load_config
from mmposenc.engine.config.checks import check_num_classes

pytest.importorskip('mmdet')
pytest.importorskip('mmseg')
TREES, BLOCK = (f'mmposenc::detection/small/retinanet_vit-s14_sfp_1xb4-10e_{name}.py'
                for name in ('trees', 'trees-block'))
CAMVID, NUCLEI = (f'mmposenc::segmentation/small/linear_vit-s14_1xb4-10e_{name}.py'
                  for name in ('camvid-252x336', 'nuclei-448x448'))


def build(cfg):
    from mmdet.registry import MODELS as DETECTORS
    from mmengine.registry import init_default_scope
    from mmseg.registry import MODELS as SEGMENTORS
    init_default_scope(cfg.default_scope)
    return (DETECTORS if cfg.default_scope == 'mmdet' else SEGMENTORS).build(cfg.model)


@pytest.mark.parametrize('config, trained', [
    # A LayerNorm a block, 1x1 from all to 11 classes.
    (CAMVID, 4 * 2 * 384 + (4 * 384 + 1) * 11), (NUCLEI, 4 * 2 * 384 + (4 * 384 + 1) * 2),
    # Norms and 1x1; levels: 2x2 to half the channels, then 1x1, norm, 3x3, norm; the head's two
    # towers of two 3x3 with norms, and 3x3 to a class and four sides of 2 anchors.
    (TREES, 3 * 2 * 384 + (3 * 384 + 1) * 64 + (4 * 64 + 1) * 32 + (32 + 2 * 64) * 64
     + 3 * (9 * 64 * 64 + 4 * 64) + 4 * (9 * 64 * 64 + 2 * 64) + (9 * 64 + 1) * 10)])
def test_only_the_head_is_trained(config, trained):
    cfg = load_config(config)
    check_num_classes(cfg, ('train', 'val', 'test'))
    model = build(cfg).train()
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == trained
    assert not any(p.requires_grad for p in model.backbone.parameters())
    # DINOv2's 22,056,576 without the mask token and the last norm.
    assert sum(p.numel() for p in model.backbone.parameters()) == 22_056_576 - 384 - 2 * 384


@pytest.mark.slow
def test_train_and_test(tmp_path, monkeypatch):
    """What the quickstart runs, on four tiles and a narrow backbone with weights of its own."""
    make_nuclei(tmp_path / 'data' / 'nuclei', side=32)
    monkeypatch.chdir(tmp_path)
    narrow = ['model.backbone.embed_dims=8', 'model.backbone.num_heads=1',
              'model.neck.in_channels=8,8,8,8', 'model.decode_head.in_channels=32',
              'model.decode_head.channels=32', 'train_dataloader.num_workers=0',
              'val_dataloader.num_workers=0', 'test_dataloader.num_workers=0']
    torch.manual_seed(0)
    state = ViT('dinov2-small', embed_dims=8, num_heads=1).state_dict()
    save_file({name: torch.randn_like(value) / 4 for name, value in state.items()},
              'mine.safetensors')
    load_tool('train').main([
        NUCLEI, '--work-dir', 'work', '--cfg-options', *narrow, 'train_cfg.max_epochs=2',
        'train_cfg.val_interval=2', 'model.backbone.init_cfg.checkpoint=mine.safetensors',
        'custom_hooks.1.views=2', *named('pretrained_train')])
    log = next(Path('work').glob('*/*.log')).read_text()
    assert '24 read, 0 damaged, 8 written, 0 no room, 0 not kept' in log
    weights = torch.load('work/epoch_2.pth', weights_only=False)['state_dict']
    kept = weights['backbone.blocks.3.mlp.fc1.weight']
    assert torch.equal(kept, load_file('mine.safetensors')['blocks.3.mlp.fc1.weight'])
    load_tool('test').main([NUCLEI, 'work/epoch_2.pth', '--work-dir', 'work/strip', '--cfg-options',
                            *narrow, *named('pretrained_test')])
