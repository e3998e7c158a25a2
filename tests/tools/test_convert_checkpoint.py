"""The converter as a command, on the golden files: from an official file to its logits."""

import pytest
import torch
from golden import assert_released, load_golden
from scripts import load_tool

from mmposenc.backbones import PVT, DeiT, Swin
from mmposenc.checkpoint import read_checkpoint

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


@pytest.mark.parametrize('stem', MODELS)
def test_official_file_to_logits(main, tmp_path, capsys, stem):
    output = 'out.pth' if 'plain' in stem else 'out.safetensors'
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
    assert_released(logits, arrays['logits'])


@pytest.mark.parametrize('weights', ['in.pth', 'out.safetensors'])
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
    assert 'the model that takes them needs' not in capsys.readouterr().out.splitlines()[-1]


def test_a_trained_detector_gives_its_backbone_to_timm(main, tmp_path, capsys):
    model = DeiT(**DEIT_SIZES)
    state = {f'backbone.{name}': value for name, value in model.state_dict().items()}
    torch.save({'state_dict': {**state, 'neck.convs.0.weight': torch.ones(1)}, 'meta': {}},
               tmp_path / 'epoch_1.pth')
    main(['auto', str(tmp_path / 'epoch_1.pth'), str(tmp_path / 'out.pth'), '--to', 'timm'])
    assert 'no weight of the backbone or of a linear head' in capsys.readouterr().out
    assert len(read_checkpoint(tmp_path / 'out.pth').state_dict) == len(state)


def test_what_does_not_go_to_timm_is_said(main, tmp_path):
    params, _ = load_golden('deit_plain')
    torch.save(params, tmp_path / 'timm.pth')
    peg = DeiT(**DEIT_SIZES | dict(pos_encoding=[LEARNED, dict(type='PEG')]))
    torch.save(peg.state_dict(), tmp_path / 'peg.pth')
    cases = [('auto', 'timm.pth', "has names of source 'deit'; --to timm takes weights in the nam"),
             ('auto', 'peg.pth', 'after0.0.proj.0.bias.* have no place in any of the models of'),
             ('pvt', 'peg.pth', "source='pvt' does not go back to timm's names; .*'deit'")]
    for source, file, said in cases:
        with pytest.raises(SystemExit, match=f'error: .*{said}'):
            main([source, str(tmp_path / file), str(tmp_path / 'out.pth'), '--to', 'timm'])
    assert not (tmp_path / 'out.pth').exists()
