"""DINOv3: rounded periods, what files need, and what has no rule."""
from functools import partial

import pytest
import torch
from published import DINOV3, published
from tinybackbones import randomize
from torch import nn

from mmposenc.backbones import ViT, checkpoints, load_pretrained
from mmposenc.checkpoint import convert
from mmposenc.commands.convert import main

timm = pytest.importorskip('timm')


@pytest.mark.parametrize('rounded', [True, False])
def test_periods_of_dinov3s_release_are_rounded(rounded, monkeypatch, tmp_path, capsys):
    """By the documented option, a part of the arch's encoding, features are those of the file's
    periods; with the other value of it a warning names the file's."""
    theirs = randomize(DINOV3(rope_temperature=100, dynamic_img_size=True, norm_layer=partial(
        nn.LayerNorm, eps=1e-5)), 0.3).double().eval()
    if rounded:
        theirs.rope.periods = theirs.rope.periods.bfloat16().to(theirs.rope.periods)
    state = {**published('dinov3', theirs.state_dict()), 'rope_embed.periods': theirs.rope.periods}
    said = []
    monkeypatch.setattr(checkpoints, 'print_log', lambda text, *_: said.append(text))
    x = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    expected = theirs.forward_features(x)[:, 5:].mT.unflatten(2, (4, 6)).detach()
    errors = []
    for rounds in (rounded, not rounded):
        ours = ViT('dinov3-small', embed_dims=128, num_layers=3, num_heads=2, pool=None,
                   rel_pos_encoding=dict(round_periods=rounds)).double().eval()
        load_pretrained(ours, {'model': state})
        errors.append(float((ours(x)[0].detach() - expected).abs().max() / expected.std()))
    assert errors[0] < 1e-6 < 1e-4 < errors[1], errors
    option = 'rel_pos_encoding.round_periods='
    assert len(said) == 1 and f'{option}{rounded} has its features' in said[0]
    torch.save(state, tmp_path / 'in.pth')
    main(['auto', str(tmp_path / 'in.pth'), str(tmp_path / 'out.pth')])
    assert (f'model.backbone.{option}True' in capsys.readouterr().out) == rounded


def test_bad_input():
    state = DINOV3().state_dict()
    with pytest.raises(ValueError, match="source='eva' has no rule for 1 of .*blocks.0.attn.gate"):
        convert({**state, 'blocks.0.attn.gate.weight': torch.zeros(1)}, 'eva')
    apart = published('dinov3, hugging face', state)
    del apart['layer.1.attention.k_proj.weight']
    with pytest.raises(ValueError, match='is there without blocks.1.attn.k_proj.weight'):
        convert(apart, 'eva')
