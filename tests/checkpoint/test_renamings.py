"""Weights under every name they are published by: those of a model of timm, renamed as those who
publish them do, become what they become under timm's names."""
from __future__ import annotations

import re

# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
import pytest
import torch
from renamings import CASES, DIMS, VITS, dinov2, hugging_face
from tinybackbones import randomize

from mmposenc.backbones import ViT, load_pretrained
from mmposenc.checkpoint import convert, convert_with_report, recognise


@pytest.mark.parametrize('case', CASES)
def test_other_names_are_the_same_weights(case) -> None:
    build, rename, source, dropped = CASES[case]
    state = {name: value for name, value in randomize(build()).state_dict().items()
             if 'relative' not in name or 'table' in name and 'coords' not in name}
    expected, file = convert(state, recognise(state)), rename(dict(state))
    for prefix in ('', 'module.'):
        assert recognise(prefix + name for name in file) == source
    found = convert_with_report(file, source)
    assert found.dropped.keys() == {name for name in file if re.fullmatch(dropped, name)}
    assert all(found.dropped.values())
    assert found.state_dict.keys() == expected.keys()
    for name, value in found.state_dict.items():
        assert torch.equal(value, expected[name]), name


def test_a_row_of_the_class_token_beside_registers_goes_back_into_it() -> None:
    """DINOv2's files have one; timm's models have none, and it is added to the token."""
    state = randomize(CASES['dinov2-reg'][0]()).double().state_dict()
    row = torch.randn(1, 1, DIMS, dtype=torch.float64)
    with_row = {**state, 'cls_token': state['cls_token'] - row,
                'pos_embed': torch.cat((row, state['pos_embed']), 1)}
    for rename in (dinov2, hugging_face('dinov2')):
        file = rename(dict(with_row))
        converted = convert(file, recognise(file))
        for name, value in mmposenc.checkpoint.convert_back(converted).state_dict.items():
            torch.testing.assert_close(value, state[name], rtol=0, atol=1e-14)


@pytest.mark.parametrize('case, arch, options', [
    ('dinov3 huggingface, ', 'dinov3-small', {}),
    ('dinov3 release, gated', 'dinov3-small-plus', {}),
    ('sam', 'sam-base', dict(window_size=3, global_blocks=(1,), neck_channels=6, patch_size=4))])
def test_a_file_becomes_a_model(case, arch, options) -> None:
    """By init_cfg's road, told by its names alone."""
    build, rename, _, _ = CASES[case]
    theirs = randomize(build())
    hidden = theirs.state_dict()['blocks.0.mlp.fc2.weight'].shape[1]
    ours = ViT(arch, **{**dict(embed_dims=DIMS, num_layers=3, num_heads=2, patch_size=16,
                               img_size=32, pool=None, mlp_hidden_dims=hidden), **options})
    load_pretrained(ours, {'model': rename(dict(theirs.state_dict()))})
    assert torch.equal(ours.blocks[1].attn.proj.weight, theirs.blocks[1].attn.proj.weight)


def test_the_pooling_head_of_timm_is_dropped() -> None:
    state = VITS(global_pool='map').state_dict()
    dropped = convert_with_report(state, recognise(state)).dropped
    assert dropped and all(name.startswith('attn_pool') for name in dropped)
