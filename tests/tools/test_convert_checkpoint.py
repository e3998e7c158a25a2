"""The converter as a command, on the golden files: from an official file to its logits."""
import pathlib

import pytest
import torch
from golden import TOLERANCE, load_golden
from scripts import load_tool

from mmposenc.backbones import PVT, DeiT, Swin
from mmposenc.checkpoint import read_checkpoint

TOOL = pathlib.Path(__file__).resolve().parents[2] / 'tools' / 'convert_checkpoint.py'
LEARNED = dict(type='LearnedPositionEmbedding', interpolation='bilinear')
PVT_SIZES = dict(embed_dims=(8, 16, 24, 32), num_layers=(1, 2, 1, 1), num_heads=(1, 2, 3, 4),
                 sr_ratios=(8, 4, 2, 1), mlp_ratios=(2, 2, 2, 2), img_size=64)
DEIT_SIZES = dict(embed_dims=24, num_layers=2, num_heads=3, mlp_ratio=2, img_size=64,
                  pos_encoding=LEARNED)
MODELS = {
    'deit_plain': ('deit', lambda: DeiT(**DEIT_SIZES)),
    'deit_irpe_product_ctx_qkv': ('irpe-deit', lambda: DeiT(
        **DEIT_SIZES, rel_pos_encoding=dict(type='IRPE', rpe_on='qkv'))),
    'pvt_peg_gap_11': ('twins', lambda: PVT(**PVT_SIZES, pool='gap',
                                            pos_encoding=dict(type='PEG'))),
    'pvt_plain_21': ('pvt', lambda: PVT(**PVT_SIZES, pool='cls', pos_encoding=LEARNED)),
    'swin_plain_41': ('swin', lambda: Swin(embed_dims=12, num_layers=(2, 2), num_heads=(2, 3),
                                           mlp_ratio=2, window_size=4, pool='gap')),
}


@pytest.fixture(scope='module')
def main():
    return load_tool('convert_checkpoint').main


@pytest.mark.parametrize('output', ['out.pth', 'out.safetensors'])
@pytest.mark.parametrize('stem', MODELS)
def test_official_file_to_logits(main, tmp_path, capsys, stem, output):
    params, arrays = load_golden(stem)
    source, build = MODELS[stem]
    torch.save({'model': params, 'epoch': 299}, tmp_path / 'in.pth')
    main([source, str(tmp_path / 'in.pth'), str(tmp_path / output)])
    printed = capsys.readouterr().out
    assert f'{len(params)} weights read' in printed
    assert 'not weights, left out: epoch' in printed
    assert ('relative_position_index' in printed) == (source == 'swin')
    state = read_checkpoint(tmp_path / output).state_dict
    model = build().eval()
    model.load_state_dict({k[9:]: v for k, v in state.items() if k.startswith('backbone.')})
    pooled, = model(arrays['x'])
    logits = pooled @ state['head.fc.weight'].T + state['head.fc.bias']
    torch.testing.assert_close(logits, arrays['logits'], **TOLERANCE)


@pytest.mark.parametrize('weights', ['in.pth', 'out.pth', 'out.safetensors'])
@pytest.mark.parametrize('stem', MODELS)
def test_backbones_take_official_and_converted_files(main, tmp_path, stem, weights):
    params, _ = load_golden(stem)
    source, build = MODELS[stem]
    torch.save({'model': params}, tmp_path / 'in.pth')
    if weights != 'in.pth':
        main([source, str(tmp_path / 'in.pth'), str(tmp_path / weights)])
    model = build()
    model.init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / weights))
    model.init_weights()
    main([source, str(tmp_path / 'in.pth'), str(tmp_path / 'check.pth')])
    expected = read_checkpoint(tmp_path / 'check.pth').state_dict
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, expected[f'backbone.{name}'], rtol=0, atol=0)


def test_errors_are_one_line_and_leave_nothing_behind(main, tmp_path):
    path, out = tmp_path / 'in.pth', tmp_path / 'out.pth'
    torch.save({'what': torch.zeros(1)}, path)
    cases = [(['deit', path, out], "error: source='deit' has no rule for 1 of 1 parameters: what"),
             (['deit', tmp_path / 'no.pth', out], 'error: .*no.pth is no file'),
             (['deit', path, tmp_path / 'out.h5'], 'error: .*must end in .safetensors or .pth'),
             (['deit', path, path], 'error: .*in.pth exists; give --overwrite'),
             (['deit', path, tmp_path / 'no' / 'out.pth'], 'error: .*no is no folder')]
    for args, message in cases:
        with pytest.raises(SystemExit, match=message):
            main([str(arg) for arg in args])
    assert [p.name for p in tmp_path.iterdir()] == ['in.pth']
    with pytest.raises(SystemExit):
        main(['no-such-source', str(path), str(out)])
