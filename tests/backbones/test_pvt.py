"""What is PVT's own: drop path and small images."""
import pytest
import torch
from helpers.tiny_backbones import randomize

from mmposenc.backbones import PVT
from mmposenc.backbones.layers import DropPath

SIZES = dict(embed_dims=(8, 16, 24, 32), num_layers=(1, 2, 1, 1), num_heads=(1, 2, 3, 4),
             sr_ratios=(8, 4, 2, 1), mlp_ratios=(2, 2, 2, 2))


def test_drop_path_drops_images_and_keeps_the_mean():
    torch.manual_seed(0)
    out = DropPath(0.25)(torch.ones(4000, 2, 3))
    assert set(out.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert out.mean().item() == pytest.approx(1, abs=0.03)
    assert (out == out[:, :1, :1]).all()
    x = torch.ones(3, 2)
    assert DropPath(0.25).eval()(x) is x
    with pytest.raises(ValueError, match=r'drop_prob=1.0 must be in \[0, 1\)'):
        DropPath(1.0)


def test_small_images_are_named():
    model = PVT(**SIZES)
    with pytest.raises(ValueError, match='an image of 3x64 is smaller than the patch of 4x4'):
        model(torch.zeros(1, 3, 3, 64))
    with pytest.raises(ValueError, match='smaller than one'):
        model(torch.zeros(1, 3, 8, 64))  # reaches a reduction that its grid cannot fill


def test_a_class_token_with_one_window_sees_what_it_sees_on_the_whole_map():
    """In Twins-SVT too, where blocks of the last stage attend in windows in turn."""
    sizes = dict(embed_dims=(8, 12), num_layers=(1, 2), num_heads=(1, 3), mlp_ratios=(2, 2),
                 patch_sizes=(4, 2), sr_ratios=(1, 1), out_indices=(1,), pool='cls')
    windows = randomize(PVT(**sizes, window_sizes=(12, 6))).double().eval()
    whole = PVT(**sizes).double().eval()
    state = windows.state_dict()
    for name in [name for name in state if '.attn.qkv.' in name]:
        q, k, v = state.pop(name).chunk(3)
        state |= {name.replace('qkv', 'q'): q, name.replace('qkv', 'kv'): torch.cat((k, v))}
    whole.load_state_dict(state)
    images = torch.randn(2, 3, 48, 40, dtype=torch.float64)
    torch.testing.assert_close(windows(images), whole(images))
