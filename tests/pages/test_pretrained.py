"""Every block of docs/pretrained.md does what the page says."""
import re

import pytest
import torch
from helpers.page_blocks import run_page
from helpers.tiny_backbones import close, randomize

from mmposenc.backbones import ViT, load_pretrained
from mmposenc.registry import MODELS

PAGE = 'docs/pretrained.md'


@pytest.fixture(scope='module')
def names(tmp_path_factory):
    """What the page leaves."""
    return run_page(PAGE, tmp_path_factory.mktemp('pretrained'))


def backbone(**options):
    return ViT('dinov2-small', embed_dims=24, num_heads=3, img_size=56,
               out_indices=(2, 5, 8, 11), final_norm='every', **options)


@pytest.mark.parametrize('name, trained', [
    ('frozen', r'$'), ('last_four', r'norm\.|blocks\.([89]|10|11)\.'),
    ('with_peg', r'pos_encodings\.at\.after0\.'), ('with_irpe', r'.*rel_pos_encoding')])
def test_what_is_trained(names, name, trained):
    """And what is new changes nothing at first."""
    plain, model = randomize(backbone(), 0.1), backbone(**names[name])
    load_pretrained(model, plain.state_dict())
    assert {key for key, p in model.named_parameters() if p.requires_grad} == {
        key for key, _ in model.named_parameters() if re.match(trained, key)}
    x = torch.randn(1, 3, 56, 70)
    for out, expected in zip(model.eval()(x), plain.eval()(x), strict=True):
        close(out, expected, 1e-4)


def test_lora_is_mmpretrains(names):
    module = dict(names['with_lora']['module'], embed_dims=24, num_heads=3, img_size=56)
    model = MODELS.build({**names['with_lora'], 'module': module})
    trained = {key for key, p in model.named_parameters() if p.requires_grad}
    assert trained == {f'module.blocks.{block}.attn.qkv.lora_{part}.weight'
                       for block in range(12) for part in ('down', 'up')}
    maps = model(torch.randn(1, 3, 56, 70))
    sum(each.sum() for each in maps).backward()
    assert all(model.get_parameter(key).grad.any() for key in trained if 'lora_up' in key)
