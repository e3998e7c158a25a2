"""Backbones with encodings at random: each trains a step whose numbers are finite, and gives the
same from its own state dict, or raises a ValueError that names an argument.

Options of an encoding are those of its examples, mixed, and wrong ones of the same kind, so that a
new encoding is tried without a line here.
"""
import copy
import inspect
import re
from collections import Counter
from typing import Any

import examples
import pytest
import torch
from helpers.tiny_backbones import BUILD, flat
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from mmposenc import encodings
from mmposenc.terminal.messages import error_text

#: Right values of backbones' options, and a wrong one where there is one.
SHARED = dict(
    drop_path_rate=(0.3, 1.0), drop_rate=(0.1, 2.0), attn_drop_rate=(0.1, -1.0), with_cp=(True,),
    mask_padding=(True,), qkv_bias=(False, 'k'), rel_pos_sharing=('all', 'block'),
    positions=((-1, 0), (9,)), frozen_stages=(1, 9), pool=('gap', 'max'))
OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    'pvt': dict(SHARED, sr_ratios=((1, 1), (0, 1)), key_cells=(3, 0), overlap=(True,),
                stage_norm=(True,), num_heads=((2, 4), (3, 5))),
    'vit': dict(SHARED, distilled=(True,), register_tokens=(4, -1), class_token=(True,),
                mlp=('swiglu', 'glu'), act=('quick_gelu', 'swiglu'), attn_norm=(True,),
                mlp_norm=(True,), pre_norm=(True,), final_norm=(False, 'all'), patch_size=(16, 0),
                mlp_hidden_dims=(5, 0), num_heads=(4, 5)),
    'swin': dict(SHARED, window_size=((2, 4), 0), cosine=(True,),
                 mask_window_padding=(False,), num_heads=((1, 4), (3, 5)))}
SIZES = [(64, 64), (64, 96), (32, 160), (33, 65), (96, 40)]
WRONG = {str: 'nonsense', int: -1, float: -1.0, tuple: (0, 0)}


def mixed(draw: Any, table: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """An example, with up to two options of others of its class; one in twelve is wrong."""
    config = copy.deepcopy(draw(st.sampled_from(list(table.values()))))
    found = [item for each in table.values() if each['type'] == config['type']
             for item in each.items() if item[0] not in ('type', 'encodings')]
    for name, value in draw(st.lists(st.sampled_from(found), max_size=2)) if found else ():
        config[name] = value
        if type(value) in WRONG and name not in ('turns', 'layer_slopes') and not draw(
                st.integers(0, 11)):
            config[name] = WRONG[type(value)]
    return config


@st.composite
def models(draw: Any) -> tuple[str, dict[str, Any], tuple[int, int]]:
    """A backbone with its options, and the size of an image."""
    kind = draw(st.sampled_from(sorted(BUILD)))
    table = OPTIONS[kind]
    options = {name: table[name][draw(st.integers(0, 11)) == 11 and len(table[name]) > 1]
               for name in draw(st.lists(st.sampled_from(sorted(table)), max_size=4, unique=True))}
    for name, choices in (('pos_encoding', examples.TOKEN_OPTIONS),
                          ('rel_pos_encoding', examples.RELATIVE)):
        if draw(st.booleans()):
            options[name] = mixed(draw, choices)
    return kind, options, draw(st.sampled_from(SIZES))


def names_of(options: dict[str, Any]) -> set[str]:
    """Arguments of the backbone and of its encodings."""
    kinds = [option['type'] for option in options.values() if isinstance(option, dict)]
    return {'hw_shape', 'img_shapes', 'x', 'num_prefix_tokens', 'image', *options}.union(*(
        inspect.signature(getattr(encodings, kind)).parameters for kind in kinds))


def check(kind: str, options: dict[str, Any], size: tuple[int, int]) -> str:
    """'works' or 'refused'; an AssertionError or the exception itself when neither."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size)
    try:
        model = BUILD[kind](**copy.deepcopy(options))
        first = flat(model.eval()(x))
    except ValueError as error:
        told = re.findall(r'\w+', error_text(error))
        assert names_of(options) & set(told), f'no argument is named: {error_text(error)}'
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
def test_options_build_and_run_or_are_refused_by_name() -> None:
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
    assert counts['works'] > 60 and counts['refused'] > 6
    assert all(counts[kind] > 12 for kind in BUILD)
