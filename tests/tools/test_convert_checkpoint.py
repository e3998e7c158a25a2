"""The converter as a command, on the golden files."""
import pytest
import torch
from helpers.golden_backbones import CASES
from helpers.golden_files import load_golden

from mmposenc.checkpoint import convert, read_checkpoint
from mmposenc.commands.convert import main


@pytest.mark.parametrize('stem, suffix', [
    ('swin_plain_41', 'pth'), ('pvt_peg_gap_11', 'safetensors')])
def test_an_official_file_is_written_under_our_names(tmp_path, capsys, stem, suffix):
    """The outputs of such weights: tests/backbones/test_goldens.py."""
    params, _ = load_golden(stem)
    source, output = CASES[stem][0], tmp_path / f'out.{suffix}'
    torch.save({'model': params, 'epoch': 299}, tmp_path / 'in.pth')
    main([source, str(tmp_path / 'in.pth'), str(output)])
    printed = capsys.readouterr().out
    assert f'{len(params)} weights read' in printed
    assert 'not weights, left out: epoch' in printed
    assert ('relative_position_index' in printed) == (source == 'swin')
    torch.testing.assert_close(dict(read_checkpoint(output).state_dict),
                               dict(convert(params, source)), rtol=0, atol=0)


def test_a_trained_detector_gives_its_backbone_to_timm(tmp_path, capsys):
    """The weights that it had of timm, under timm's names."""
    params, _ = load_golden('deit_plain')
    state = {**convert(params, 'deit'), 'neck.convs.0.weight': torch.ones(1)}
    torch.save({'state_dict': state, 'meta': {}}, tmp_path / 'epoch_1.pth')
    for source in ('auto', 'deit'):
        out = tmp_path / f'{source}.safetensors'
        main([source, str(tmp_path / 'epoch_1.pth'), str(out), '--to', 'timm'])
        printed = capsys.readouterr().out
        assert 'no weight of the backbone or of a linear head' in printed
        assert 'the model for these weights needs' not in printed
        back = read_checkpoint(out).state_dict
        assert set(back) == set(params)
        assert all(torch.equal(back[name], value) for name, value in params.items())
