"""Any encoding with any options in any backbone, its maps or pooled: it works, or a ValueError says
why.

A model that can be built takes a training step and a test, and gives the same from its own state
dict. One that can't raises a ValueError that names an argument. Values are drawn by the name of a
parameter, right and wrong ones, so that a new encoding's options are tried without a line here.
"""
from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections import Counter
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from mmengine.registry import MODELS
from torch.utils._pytree import tree_leaves

import mmposenc  # noqa: F401
from mmposenc import encodings
from mmposenc.backbones import PVT, Swin, ViT
from mmposenc.command_line import describe
from mmposenc.encodings.base import TokenEncoding

#: Values of a parameter by its name; the wrong ones come last, and are drawn as often as one value.
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    'conv': (['depthwise', 'separable', 'dense'], ['deep']),
    'kernel_size': ([1, 3, 5], [0, 2, -3]), 'num_layers': ([1, 2], [0]),
    'norm_act': ([True, False], []), 'bias': ([True, False], []), 'frozen': ([True, False], []),
    'padding': (['zeros', 'none'], ['same']), 'apply_to': (['qkv', 'qk'], ['v']),
    'interpolation': (['bicubic', 'bilinear', 'bicubic_antialias', 'bilinear_antialias',
                       'bilinear_corners'], ['nearest-ish']),
    'interpolation_offset': ([0.0, 0.1], [-0.1]),
    'drop': ([0.0, 0.1], [1.5, -0.1]), 'temperature': ([10000.0, 20.0], [0.0, -1.0]),
    'normalize': ([True, False], []), 'layout': (['split', 'interleaved'], ['mixed']),
    'method': (['product', 'euclidean', 'quant', 'cross', 'axes'], ['none']),
    'mode': (['contextual', 'bias', 'axial', 'mixed', 'swin', 'cr'], ['other']),
    'resize': ([None, 'geometric', 'geometric-cubic', 'bicubic'], ['linear']),
    'rpe_on': (['q', 'k', 'v', 'qk', 'kv', 'qkv'], ['x', '']),
    'shared_heads': ([True, False], []), 'ratio': ([None, 1.9, 0.1, 2.5], [0.0, -1.0]),
    'index': (['piecewise', 'clip'], ['round']), 'alpha': ([None, 1.0], [0.0]),
    'beta': ([None, 3.0], [-1.0]), 'gamma': ([None, 8.0], [0.5]),
    'quantization': (['squared', 'rank'], ['cubed']),
    'max_offset': ([1, 4, 8], [0, -2]), 'on_keys': ([True, False], []),
    'on_values': ([True, False], []), 'max_tokens': ([64, 400], [0, 3]),
    'max_size': ([8, (4, 16), 32], [0, 2]), 'grid_shape': ([(4, 4), (3, 5)], [(0, 2), (3,)]),
    'window_size': ([3, 7, (2, 4)], [0, -1]),
    'prefix_bias': ([True, False], []), 'theta': ([None, 100.0], [0.0]),
    'hidden_dims': ([None, 4, 8], [0, -1]),
    'dims': ([1, 2], [3]), 'causal': ([True, False], []),
    'weights': (['learned', 'unnormalized', 'uniform', 'nonlocal'], ['heavy']),
    'locality': (['gaussian', 'none', 'fixed_window', 'adaptive_window', 'random_sparse'], ['far']),
    'predictor': (['conv', 'mlp', 'attention'], ['oracle']),
    'size_norm': (['sigmoid', 'softmax'], ['tanh']), 'num_random': ([1, 8], [0]),
    'form': (['auto'], ['dense-ish']), 'truncate': ([5.0, 3.0], [0.0, -1.0])}
#: The same of backbones.
SHARED = {'drop_path_rate': ([0.0, 0.3], [1.0, -0.1]), 'with_cp': ([False, True], []),
          'mask_padding': ([False, True], []), 'qkv_bias': ([True, False], []),
          'rel_pos_sharing': (['layer', 'stage', 'all'], ['block']),
          'drop_rate': ([0.0, 0.1], [2.0]), 'attn_drop_rate': ([0.0, 0.1], [-1.0])}
BACKBONES: dict[str, tuple[type, dict[str, Any], dict[str, tuple[list[Any], list[Any]]]]] = {
    'PVT': (PVT, dict(mlp_ratios=(1, 1, 1, 1)), {
        **SHARED, 'embed_dims': ([(8, 8, 16, 16), (12, 12, 12, 12)], [(8, 8), (7, 9, 8, 8)]),
        'num_layers': ([(1, 1, 1, 1), (1, 2, 1, 1)], [(1, 1), (0, 1, 1, 1)]),
        'num_heads': ([(1, 1, 2, 2), (2, 2, 4, 4)], [(3, 3, 3, 5)]),
        'sr_ratios': ([(8, 4, 2, 1), (1, 1, 1, 1)], [(0, 1, 1, 1)]),
        'positions': ([None, (0,), (-1,)], [(9,), (0, 0)]),
        'frozen_stages': ([-1, 0, 2], [9])}),
    'ViT': (ViT, dict(mlp_ratio=1.0, pool=None, img_size=64), {
        **SHARED, 'embed_dims': ([16, 24], [15, 0]), 'num_layers': ([1, 2], [0]),
        'num_heads': ([2, 4], [5, 0]), 'patch_size': ([8, 16], [0]),
        'positions': ([None, (0,), (-1,)], [(9,), (0, 0)]),
        'distilled': ([False, True], []), 'frozen_stages': ([-1, 1], [9]),
        'register_tokens': ([0, 1, 4], [-1]), 'class_token': ([None, False, True], []),
        'mlp': (['mlp', 'swiglu'], ['glu']), 'mlp_hidden_dims': ([None, 5], [0]),
        'act': (['gelu', 'gelu_tanh', 'quick_gelu'], ['swiglu']),
        'qkv_bias': ([True, False, 'qv'], ['k']), 'pre_norm': ([False, True], []),
        'attn_norm': ([False, True], []), 'mlp_norm': ([False, True], []),
        'final_norm': ([True, False, 'every'], ['all']),
        'layer_scale_init_value': ([None, 0.1], [])}),
    'Swin': (Swin, dict(mlp_ratio=1.0), {
        **SHARED, 'embed_dims': ([8, 16], [0, 6]), 'num_layers': ([(1, 1), (1, 2, 1)], [()]),
        'num_heads': ([(2, 2), (1, 2, 4)], [(3, 5)]), 'window_size': ([4, 7, (2, 4)], [0]),
        'window_bias': ([True, False], []), 'positions': ([None, (0,), (-1,)], [(9,)]),
        'mask_window_padding': ([True, False], []), 'frozen_stages': ([-1, 1], [9])})}
SIZES = [(64, 64), (64, 96), (32, 160), (33, 65), (96, 40)]
TOKEN = [name for name in encodings.ENCODINGS
         if issubclass(getattr(encodings, name), TokenEncoding)]
RELATIVE = [name for name in encodings.ENCODINGS if name not in TOKEN]


def options_of(draw: Any, table: dict[str, tuple[list[Any], list[Any]]], names: list[str],
               most: int) -> dict[str, Any]:
    """Up to ``most`` of the named options; one in twelve of the values is a wrong one."""
    chosen = draw(st.lists(st.sampled_from(names), max_size=most, unique=True)) if names else []
    picked = {}
    for name in chosen:
        right, wrong = table[name]
        bad = bool(wrong) and draw(st.integers(0, 11)) == 11
        picked[name] = draw(st.sampled_from(wrong if bad else right))
    return picked


def encoding(draw: Any, names: list[str]) -> dict[str, Any]:
    kind = draw(st.sampled_from(names))
    parameters = inspect.signature(getattr(encodings, kind)).parameters
    known = sorted(set(parameters) & set(VALUES))
    picked = options_of(draw, VALUES, known, 4)
    for name in known:  # what has no default must be there
        if parameters[name].default is inspect.Parameter.empty and name not in picked:
            picked[name] = VALUES[name][0][-1]
    if kind == 'CombinedRPE':
        picked['encodings'] = [encoding(draw, [n for n in RELATIVE if n != kind])
                               for _ in range(draw(st.integers(1, 2)))]
    return dict(type=f'mmposenc.{kind}', **picked)


@st.composite
def models(draw: Any) -> dict[str, Any]:
    """A config of a backbone with encodings, its maps or pooled, and the size of an image."""
    kind = draw(st.sampled_from(sorted(BACKBONES)))
    _, fixed, table = BACKBONES[kind]
    backbone = {**fixed, **{name: table[name][0][0] for name in ('embed_dims', 'num_layers',
                                                                'num_heads')}}
    backbone.update(options_of(draw, table, sorted(table), 4))
    if draw(st.booleans()):
        backbone['pos_encoding'] = [encoding(draw, TOKEN)
                                    for _ in range(draw(st.integers(1, 2)))]
    if draw(st.booleans()):
        backbone['rel_pos_encoding'] = encoding(draw, RELATIVE)
    if draw(st.booleans()):
        backbone['pool'] = 'gap'
    return dict(backbone=dict(type=f'mmposenc.{kind}', **backbone),
                size=draw(st.sampled_from(SIZES)))


def build(config: dict[str, Any]) -> torch.nn.Module:
    return MODELS.build(copy.deepcopy(config['backbone']))


def outputs(model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    return [each for each in tree_leaves(model(x)) if isinstance(each, torch.Tensor)]


def names_in(config: Any) -> set[str]:
    if isinstance(config, dict):
        return set(config) | {name for value in config.values() for name in names_in(value)}
    return {name for value in config for name in names_in(value)} \
        if isinstance(config, (list, tuple)) else set()


#: Arguments that a backbone passes on by itself, and those of a call.
PASSED_ON = {'image', 'head_dims', 'grid_shape', 'hw_shape', 'num_prefix_tokens', 'img_size', 'x',
             'out_indices', 'patch_sizes', 'pool', 'window_shape'}


def check(config: dict[str, Any]) -> str:
    """'works' or 'refused'; an AssertionError or the exception itself when neither."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, *config['size'])
    try:
        model = build(config)
        first = outputs(model.eval(), x)
    except ValueError as error:
        named = names_in(config) | PASSED_ON
        told = re.findall(r'\w+', describe(error))
        assert named & set(told), f'a ValueError that names no argument: {describe(error)}'
        return 'refused'
    assert first and all(out.isfinite().all() for out in first)
    again = build(config).eval()
    again.load_state_dict(model.state_dict())
    for a, b in zip(first, outputs(again, x), strict=True):
        assert torch.equal(a, b), 'not the same after a round trip through state_dict'
    before = {name: value.shape for name, value in model.state_dict().items()}
    trained = outputs(model.train(), x)
    loss = sum(out.float().square().mean() for out in trained)
    if loss.requires_grad:
        loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is None or p.grad.isfinite().all(), f'gradient of {name}'
    assert before == {name: value.shape for name, value in model.state_dict().items()}
    return 'works'


def run(examples: int) -> Counter[str]:
    """Checks that many models; raises what the smallest failing one raises."""
    counts: Counter[str] = Counter()

    @seed(0)
    @settings(max_examples=examples, deadline=None, database=None,
              phases=[Phase.generate, Phase.shrink],
              suppress_health_check=list(HealthCheck))
    @given(models())
    def each(config: dict[str, Any]) -> None:
        note(str(config))
        counts[check(config)] += 1
        counts[config['backbone']['type']] += 1
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        each()
    return counts
