"""The example of CONTRIBUTING.md does what the page says."""
import pytest
import torch
from relative_checks import GRIDS, check_forms, check_logits, positions
from running import run_page

from mmposenc.attention import attend
from mmposenc.backbones import PVT, DeiT, Swin


@pytest.fixture(scope='module')
def alibi(tmp_path_factory):
    return run_page('CONTRIBUTING.md', tmp_path_factory.mktemp('contributing'))['ALiBi']


@pytest.mark.parametrize('q_grid,k_grid', GRIDS)
@pytest.mark.parametrize('prefix', [0, 1])
def test_against_the_formula(alibi, q_grid, k_grid, prefix):
    encoding = alibi(2, num_prefix_tokens=prefix)
    queries, keys = positions(q_grid, k_grid, prefix)

    def pair_term_of(q, k):
        def term(b, h, i, j):
            if queries[i] is None or keys[j] is None:
                kind = 2 if queries[i] is keys[j] is None else 0 if queries[i] is None else 1
                return encoding.prefix_bias[h, kind]
            apart = sum((a - b) ** 2 for a, b in zip(queries[i], keys[j], strict=True)) ** 0.5
            return -apart * 2.0 ** -(h + 1)
        return term

    check_logits(encoding, pair_term_of, q_grid, k_grid)
    check_forms(encoding, q_grid, k_grid)


@pytest.mark.parametrize('build', [
    lambda **o: DeiT(embed_dims=24, num_layers=1, num_heads=3, patch_size=8, pool=None, **o),
    lambda **o: PVT(embed_dims=(8, 16), num_layers=(1, 1), num_heads=(1, 2), sr_ratios=(4, 2),
                    mlp_ratios=(2, 2), patch_sizes=(4, 2), out_indices=(0, 1), **o),
    lambda **o: Swin(embed_dims=12, num_layers=(1, 1), num_heads=(2, 3), window_size=4,
                     window_bias=False, **o)])
def test_in_every_backbone(alibi, build):
    torch.manual_seed(0)
    x = torch.randn(1, 3, 64, 96)
    plain, model = (build(rel_pos_encoding=each).eval() for each in (None, dict(type=alibi)))
    model.load_state_dict(plain.state_dict(), strict=False)
    assert not torch.allclose(model(x)[-1], plain(x)[-1], atol=1e-6)


def test_fades_with_distance(alibi):
    q = torch.zeros(1, 1, 5, 4)
    _, weights = attend(q, q, q, alibi(1), (1, 5), need_weights=True)
    assert bool((weights[0, 0, 0].diff() < 0).all())
