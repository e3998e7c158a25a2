"""What is Swin's own, V1 and V2: windows, their biases, and how archs are overridden."""
import pytest
import torch
from helpers.tiny_backbones import randomize

from mmposenc.backbones import Swin, load_pretrained

V1 = dict(embed_dims=12, num_layers=(2, 2), num_heads=(2, 3), mlp_ratio=2, window_size=4,
          drop_path_rate=0.)
V2 = dict(V1, cosine=True, post_norm=True, qkv_bias='qv',
          rel_pos_encoding=dict(type='mmposenc.LogSpacedCPB'))
TABLE = dict(type='mmposenc.RelativePositionBias')
IRPE = dict(type='mmposenc.IRPE', rpe_on='qkv')


@pytest.mark.parametrize('options', [
    dict(V1, rel_pos_encoding=None), dict(V2, pretrained_window_size=3)],
    ids=['no bias', 'log_cpb'])
def test_a_window_wider_than_the_map_is_one_of_its_size(options):
    """What fills up a window takes no attention; the unit of V2's biases is the smaller window, as
    its last stages are trained."""
    one = dict(options, num_layers=(2,), num_heads=(2,), pool='gap')
    small = randomize(Swin(**dict(one, window_size=3)), 0.3).eval()
    large = Swin(**dict(one, window_size=5)).eval()
    large.load_state_dict(small.state_dict())
    x = torch.randn(2, 3, 12, 12)
    torch.testing.assert_close(small(x), large(x))


def test_branches_of_v2_start_as_nothing():
    """Norms behind branches start at zero, as in the release."""
    block = Swin(**V2).stages[0].blocks[1].eval()
    x = torch.randn(1, 64, 12)
    assert torch.equal(block(x, (8, 8)), x)
    assert block.attn.w_msa.cosine.logit_scale[0].exp().item() == pytest.approx(10)


@pytest.mark.parametrize('options', [V1, V2, dict(V2, rel_pos_sharing='stage')],
                         ids=['v1', 'v2', 'v2 shared'])
def test_plain_weights_fit_where_an_encoding_is_added_to_the_bias(options):
    plain = randomize(Swin(**options), 0.3).eval()
    own = options.get('rel_pos_encoding', TABLE)
    both = Swin(**{**options, 'rel_pos_encoding': [own, IRPE]}).eval()  # whose tables start at 0
    load_pretrained(both, plain.state_dict())
    x = torch.randn(1, 3, 64, 50)
    torch.testing.assert_close(both(x), plain(x))


def test_weights_of_v2_go_to_any_window():
    state = Swin(**V2).state_dict()
    load_pretrained(Swin(**dict(V2, window_size=((6, 3), (2, 5)), pretrained_window_size=4)), state)
