"""Weights under every name they are published by become what they become under timm's names."""
# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
import pytest
import torch
from helpers.published_weights import DINOV3, KINDS, REGISTERS, VIT, models, published
from helpers.tiny_backbones import randomize

from mmposenc.checkpoint import convert, convert_back, convert_with_report, recognise


@pytest.mark.parametrize('kind', KINDS)
def test_other_names_are_the_same_weights(kind) -> None:
    for build in models(kind):
        state = {name: value for name, value in randomize(build()).state_dict().items()
                 if 'relative' not in name or 'table' in name and 'coords' not in name}
        expected, file = convert(state, recognise(state)), published(kind, state)
        for prefix in ('', 'module.'):
            assert recognise(prefix + name for name in file) == KINDS[kind]['source']
        found = convert_with_report(file, KINDS[kind]['source'])
        assert found.dropped.keys() == {
            name for name, ours in KINDS[kind]['names'].items() if ours is None}
        assert all(found.dropped.values())
        assert found.state_dict.keys() == expected.keys()
        for name, value in found.state_dict.items():
            assert torch.equal(value, expected[name]), name


def test_a_row_of_the_class_token_beside_registers_goes_back_into_it() -> None:
    """DINOv2's files have one; timm's models have none, and it is added to the token."""
    state = randomize(REGISTERS()).double().state_dict()
    row = torch.randn(1, 1, 12, dtype=torch.float64)
    with_row = {**state, 'cls_token': state['cls_token'] - row,
                'pos_embed': torch.cat((row, state['pos_embed']), 1)}
    for kind in ('dinov2', 'dinov2, hugging face'):
        file = {name.replace('reg_token', 'dinov2.embeddings.register_tokens')
                if 'hugging' in kind else name: value
                for name, value in published(kind, with_row).items()}
        converted = convert(file, recognise(file))
        for name, value in convert_back(converted).state_dict.items():
            torch.testing.assert_close(value, state[name], rtol=0, atol=1e-14)


def test_the_pooling_head_of_timm_is_dropped() -> None:
    state = VIT(global_pool='map').state_dict()
    dropped = convert_with_report(state, recognise(state)).dropped
    assert dropped and all(name.startswith('attn_pool') for name in dropped)


def test_names_of_no_dinov3() -> None:
    state = DINOV3().state_dict()
    with pytest.raises(ValueError, match="source='eva' has no rule for 1 of .*blocks.0.attn.gate"):
        convert({**state, 'blocks.0.attn.gate.weight': torch.zeros(1)}, 'eva')
    apart = published('dinov3, hugging face', state)
    del apart['layer.1.attention.k_proj.weight']
    with pytest.raises(ValueError, match='is there without blocks.1.attn.k_proj.weight'):
        convert(apart, 'eva')
