"""Every block of docs/pretrained.md does what the page says."""
from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.model.utils import revert_sync_batchnorm
from mmengine.registry import DefaultScope
from optimizer_checks import build_optimizer
from tinymodels import build, collated, samples, shrink

from mmposenc.backbones import ViT, load_pretrained
from mmposenc.engine import load_config
from mmposenc.engine.arguments import check_arguments
from mmposenc.engine.checks import check_sections

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / 'docs' / 'pretrained.md').read_text()
BLOCKS = re.findall(r'```python\n(.*?)```', PAGE, re.DOTALL)
CONFIGS = {'detector': BLOCKS[0], 'segmentor': BLOCKS[1]}


def load(kind: str, folder: Path) -> Config:
    path = folder / 'config.py'
    path.write_text(CONFIGS[kind])
    return load_config(str(path))


def deltas() -> dict[str, dict]:
    names: dict = {}
    for block in BLOCKS[2:]:
        if 'merge_lora' not in block:
            exec(block, names)
    return {name: value for name, value in names.items() if isinstance(value, dict)
            and name != '__builtins__'}


@pytest.mark.parametrize('kind', CONFIGS)
def test_the_configs_are_complete(kind, tmp_path):
    cfg = load(kind, tmp_path)
    check_sections(cfg, ('train', 'val', 'test'))
    check_arguments(cfg, ('train', 'val', 'test'))
    assert cfg.default_scope == dict(detector='mmdet', segmentor='mmseg')[kind]
    cfg = shrink(cfg)
    model = revert_sync_batchnorm(build(cfg, initialize=False)).train()
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        data = model.data_preprocessor(collated(samples(cfg, 2)), training=True)
        loss, _ = model.parse_losses(model(**data, mode='loss'))
        loss.backward()
        rates = {group['lr'] for group in build_optimizer(model, cfg).optimizer.param_groups}
    assert torch.isfinite(loss)
    assert [n for n, p in model.named_parameters() if (p.grad is None) == p.requires_grad] == []
    assert (len(rates) > 3) == (kind == 'detector')


def backbone(**options):
    options = {key: value for key, value in options.items() if key != 'type'}
    return ViT('dinov2-small', **{**dict(embed_dims=24, num_heads=3, img_size=56,
                                         out_indices=(2, 5, 8, 11), final_norm='every'), **options})


@pytest.mark.parametrize('name, trained', [
    ('frozen', r'$'), ('last_four', r'norm\.|blocks\.([89]|10|11)\.'),
    ('with_peg', r'pos_encodings\.at\.after0\.'), ('with_irpe', r'.*rel_pos_encoding'),
    ('with_lora', r'.*qkv\.lora_'), ('on_the_mlp_too', r'.*(qkv|proj|fc1|fc2)\.lora_')])
def test_what_is_trained(name, trained):
    options = deltas()[name]
    if 'lora' in options:
        pytest.importorskip('peft', exc_type=ImportError)
    plain = backbone()
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    model = backbone(**options)
    load_pretrained(model, plain.state_dict())
    assert {key for key, p in model.named_parameters() if p.requires_grad} == {
        key for key, _ in model.named_parameters() if re.match(trained, key)}
    x = torch.randn(1, 3, 56, 70)
    for out, expected in zip(model.eval()(x), plain.eval()(x), strict=True):
        error = 0.05 if 'frozen_dtype' in options else 1e-4
        torch.testing.assert_close(out, expected, rtol=0, atol=error * float(expected.abs().max()))


def test_every_delta_of_the_page_is_tested():
    assert set(deltas()) == {'frozen', 'last_four', 'with_peg', 'with_irpe', 'with_lora',
                             'on_the_mlp_too'}


def test_lora_is_merged_as_the_page_says():
    pytest.importorskip('peft', exc_type=ImportError)
    names = dict(model=backbone(**deltas()['with_lora']))
    exec(next(block for block in BLOCKS if 'merge_lora' in block), names)
    assert names['weights'].keys() == backbone().state_dict().keys()


def test_its_links_lead_somewhere():
    for target in re.findall(r'\]\(([^)#]+)[^)]*\)', PAGE):
        assert target.startswith('https://') or (ROOT / 'docs' / target).exists(), target
