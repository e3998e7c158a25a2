"""Pretrained weights: official files load as they are, and what does not fit is named."""
import pytest
import torch
from golden import load_golden

from mmposenc.backbones import PVT, load_pretrained
from mmposenc.functional.position_tables import resize_position_table

SIZES = dict(embed_dims=(8, 16, 24, 32), num_layers=(1, 2, 1, 1), num_heads=(1, 2, 3, 4),
             sr_ratios=(8, 4, 2, 1), mlp_ratios=(2, 2, 2, 2))
LEARNED = dict(type='LearnedPositionEmbedding')


def save(tmp_path, state, wrap=None):
    path = tmp_path / 'weights.pth'
    torch.save(state if wrap is None else {wrap: state}, path)
    return dict(type='Pretrained', checkpoint=str(path))


@pytest.mark.parametrize('wrap', [None, 'state_dict', 'model'])
@pytest.mark.parametrize('prefix', ['', 'backbone.'])
def test_own_weights_load(tmp_path, wrap, prefix):
    source = PVT(**SIZES, pos_encoding=dict(type='PEG'))
    state = {prefix + k: v for k, v in source.state_dict().items()}
    if prefix:
        state['neck.weight'] = torch.zeros(1)
    model = PVT(**SIZES, pos_encoding=dict(type='PEG'), init_cfg=save(tmp_path, state, wrap))
    model.init_weights()
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, source.state_dict()[key], rtol=0, atol=0)


def test_official_file_loads(tmp_path):
    params, arrays = load_golden('pvt_peg_gap_11')
    model = PVT(**SIZES, pos_encoding=dict(type='PEG'), init_cfg=save(tmp_path, params)).eval()
    model.init_weights()
    torch.testing.assert_close(model(arrays['x'])[3], arrays['stage3'], atol=2e-5, rtol=1e-4)


def test_learned_tables_are_resized():
    source = PVT(**SIZES, pos_encoding=LEARNED, img_size=64)
    model = PVT(**SIZES, pos_encoding=LEARNED, img_size=(96, 160))
    load_pretrained(model, source.state_dict())
    key = 'stages.0.pos_encodings.at.before.0.pos_embed'
    torch.testing.assert_close(
        model.state_dict()[key],
        resize_position_table(source.state_dict()[key], (16, 16), (24, 40)))


def test_another_architecture_is_an_error_that_names_everything(tmp_path):
    state = PVT(**SIZES, pos_encoding=dict(type='PEG')).state_dict()
    state['stages.0.blocks.0.attn.q.weight'] = torch.zeros(4, 4)
    cfg = save(tmp_path, state)
    model = PVT(**{**SIZES, 'num_layers': (1, 2, 1, 2)}, init_cfg=cfg)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ValueError) as error:
        model.init_weights()
    message = str(error.value)
    assert 'does not fit PVT' in message and 'strict=False' in message
    assert 'missing: stages.3.blocks.1.' in message
    assert 'unexpected: stages.0.pos_encodings.at.after0.0.proj.0.bias' in message
    assert 'stages.0.blocks.0.attn.q.weight: (4, 4) in the file, (8, 8) here' in message
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_not_strict_loads_what_fits(tmp_path):
    source = PVT(**SIZES)
    cfg = save(tmp_path, source.state_dict())
    model = PVT(**SIZES, pos_encoding=dict(type='PEG'), init_cfg=dict(**cfg, strict=False))
    model.init_weights()
    for key, value in source.state_dict().items():
        torch.testing.assert_close(model.state_dict()[key], value, rtol=0, atol=0)


def test_unknown_options_are_named(tmp_path):
    model = PVT(**SIZES, init_cfg=dict(type='Pretrained', checkpoint='x.pth', strct=False))
    with pytest.raises(ValueError, match=r"unknown: \['strct'\]"):
        model.init_weights()


def test_a_missing_file_is_named():
    model = PVT(**SIZES, init_cfg=dict(type='Pretrained', checkpoint='no/such/file.pth'))
    with pytest.raises(FileNotFoundError, match='no/such/file.pth'):
        model.init_weights()
