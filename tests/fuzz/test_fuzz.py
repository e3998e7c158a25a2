"""Backbones with encodings at random: each trains a step whose numbers are finite, and gives the
same from its own state dict, or its options do not go together, which a ValueError says.

Options of an encoding are those of its examples, mixed, so that a new encoding is tried without a
line here. (Wrong values: backbones/test_all.py and encodings/test_examples.py.)
"""
import copy
from collections import Counter
from typing import Any

import examples
import pytest
import torch
from helpers.tiny_backbones import BUILD, flat
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

#: Options of backbones, of all and of each.
SHARED = dict(
    drop_path_rate=0.3, drop_rate=0.1, attn_drop_rate=0.1, with_cp=True, mask_padding=True,
    qkv_bias=False, rel_pos_sharing='all', positions=(-1, 0), frozen_stages=1, pool='gap')
OPTIONS: dict[str, dict[str, Any]] = {
    'pvt': dict(SHARED, sr_ratios=(1, 1), key_cells=3, overlap=True, stage_norm=True,
                num_heads=(2, 4)),
    'vit': dict(SHARED, distilled=True, register_tokens=4, class_token=True, mlp='swiglu',
                act='quick_gelu', attn_norm=True, mlp_norm=True, pre_norm=True, final_norm=False,
                patch_size=16, mlp_hidden_dims=5, num_heads=4),
    'swin': dict(SHARED, window_size=(2, 4), cosine=True, mask_window_padding=False,
                 num_heads=(1, 4))}
SIZES = [(64, 64), (64, 96), (32, 160), (33, 65), (96, 40)]


def mixed(draw: Any, table: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """An example, with up to two options of others of its class."""
    config = copy.deepcopy(draw(st.sampled_from(list(table.values()))))
    found = [item for each in table.values() if each['type'] == config['type']
             for item in each.items() if item[0] not in ('type', 'encodings')]
    return config | dict(draw(st.lists(st.sampled_from(found), max_size=2)) if found else ())


@st.composite
def models(draw: Any) -> tuple[str, dict[str, Any], tuple[int, int]]:
    """A backbone with its options, and the size of an image."""
    kind = draw(st.sampled_from(sorted(BUILD)))
    names = draw(st.lists(st.sampled_from(sorted(OPTIONS[kind])), max_size=4, unique=True))
    options = {name: OPTIONS[kind][name] for name in names}
    for name, choices in (('pos_encoding', examples.TOKEN_OPTIONS),
                          ('rel_pos_encoding', examples.RELATIVE)):
        if draw(st.booleans()):
            options[name] = mixed(draw, choices)
    return kind, options, draw(st.sampled_from(SIZES))


def check(kind: str, options: dict[str, Any], size: tuple[int, int]) -> str:
    """'works' or 'refused'; an AssertionError or the exception itself when neither."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size)
    try:
        model = BUILD[kind](**copy.deepcopy(options))
        first = flat(model.eval()(x))
    except ValueError:
        return 'refused'
    assert all(out.isfinite().all() for out in first)
    again = BUILD[kind](**copy.deepcopy(options)).eval()
    again.load_state_dict(model.state_dict())
    if 'random_sparse' not in str(options):
        torch.testing.assert_close(flat(again(x)), first, rtol=0, atol=0)
    before = {name: value.shape for name, value in model.state_dict().items()}
    loss = sum(out.square().mean() for out in flat(model.train()(x)))
    if loss.requires_grad:
        loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is None or p.grad.isfinite().all(), f'gradient of {name}'
    assert before == {name: value.shape for name, value in model.state_dict().items()}
    return 'works'


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
def test_options_build_and_run_or_are_refused() -> None:
    """A larger number of examples tries more."""
    counts: Counter[str] = Counter()

    @seed(0)
    @settings(max_examples=120, deadline=None, database=None,
              phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck))
    @given(models())
    def each(drawn: tuple[str, dict[str, Any], tuple[int, int]]) -> None:
        note(str(drawn))
        counts.update((check(*drawn), drawn[0]))

    each()
    assert counts['works'] > 60
    assert all(counts[kind] > 12 for kind in BUILD)
