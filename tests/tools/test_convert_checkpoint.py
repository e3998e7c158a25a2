"""The converter as a command, on the golden files."""

import pytest
import torch
from helpers.golden_backbones import CASES
from helpers.golden_files import load_golden
from helpers.scripts import load_tool

from mmposenc.checkpoint import convert, read_checkpoint

DEIT = CASES['deit_plain'][1]


@pytest.fixture(scope='module')
def main():
    return load_tool('convert_checkpoint').main


@pytest.mark.parametrize('stem', CASES)
def test_official_and_converted_files_are_what_backbones_take(main, tmp_path, capsys, stem):
    """Its logits: tests/backbones/test_goldens.py."""
    output = 'out.pth' if 'plain' in stem else 'out.safetensors'
    params, _ = load_golden(stem)
    source, build, *_ = CASES[stem]
    torch.save({'model': params, 'epoch': 299}, tmp_path / 'in.pth')
    main([source, str(tmp_path / 'in.pth'), str(tmp_path / output)])
    printed = capsys.readouterr().out
    assert f'{len(params)} weights read' in printed
    assert 'not weights, left out: epoch' in printed
    assert ('relative_position_index' in printed) == (source == 'swin')
    state = read_checkpoint(tmp_path / output).state_dict
    torch.testing.assert_close(dict(state), dict(convert(params, source)), rtol=0, atol=0)
    for weights in ('in.pth', output):
        model = build()
        model.init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / weights))
        model.init_weights()
        torch.testing.assert_close(dict(model.state_dict()), {
            key[9:]: value for key, value in state.items() if key.startswith('backbone.')},
            rtol=0, atol=0)


def test_there_and_back_to_timms_names(main, tmp_path, capsys):
    params, _ = load_golden('deit_plain')
    torch.save(params, tmp_path / 'in.pth')
    main(['auto', str(tmp_path / 'in.pth'), str(tmp_path / 'ours.pth')])
    for source in ('auto', 'deit'):
        out = tmp_path / f'{source}.safetensors'
        main([source, str(tmp_path / 'ours.pth'), str(out), '--to', 'timm'])
        back = read_checkpoint(out).state_dict
        assert set(back) == set(params)
        assert all(torch.equal(back[name], value) for name, value in params.items())
    assert 'the model for these weights needs' not in capsys.readouterr().out.splitlines()[-1]


def test_a_trained_detector_gives_its_backbone_to_timm(main, tmp_path, capsys):
    model = DEIT()
    state = {f'backbone.{name}': value for name, value in model.state_dict().items()}
    torch.save({'state_dict': {**state, 'neck.convs.0.weight': torch.ones(1)}, 'meta': {}},
               tmp_path / 'epoch_1.pth')
    main(['auto', str(tmp_path / 'epoch_1.pth'), str(tmp_path / 'out.pth'), '--to', 'timm'])
    assert 'no weight of the backbone or of a linear head' in capsys.readouterr().out
    assert len(read_checkpoint(tmp_path / 'out.pth').state_dict) == len(state)
